from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from slate_async.errors import ConfigError, InvalidError
from slate_async.merge_operators import registry
from slate_async.merge_operators.registry import merge_operator, register_merge_operator


class Longest:
    name = "longest"

    def check(self, operand: bytes) -> None: ...

    def fold(self, operands: Sequence[bytes]) -> bytes:
        return max(operands, key=len)

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        return self.fold([*([] if base is None else [base]), *operands])


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def entry_point(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    entries = EntryPoints([EntryPoint(name, value, registry.ENTRY_POINTS)])
    monkeypatch.setattr(registry, "entry_points", lambda **wanted: entries.select(**wanted))


def test_a_registered_operator_is_found() -> None:
    mine = Longest()
    register_merge_operator(mine)
    register_merge_operator(mine)
    assert merge_operator("longest") is mine


def test_a_name_stands_for_one_operator() -> None:
    register_merge_operator(Longest())
    with pytest.raises(InvalidError, match="another merge operator 'longest'"):
        register_merge_operator(Longest())
    shipped = Longest()
    shipped.name = "add_i64"
    with pytest.raises(InvalidError, match="another merge operator 'add_i64'"):
        register_merge_operator(shipped)


@pytest.mark.parametrize("name", [None, "", "Add", "1st", "a b", "a" * 65, b"add"])
def test_other_names_are_refused(name: object) -> None:
    broken = Longest()
    broken.name = name  # type: ignore[assignment]
    with pytest.raises(InvalidError, match="1 to 64 of a-z"):
        register_merge_operator(broken)


def test_what_lacks_a_method_is_refused() -> None:
    class Half:
        name = "half"

        def check(self, operand: bytes) -> None: ...

    with pytest.raises(InvalidError, match="'half' has no fold and no apply"):
        register_merge_operator(Half())  # type: ignore[arg-type]


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(ConfigError, match=r"orders merges by the operator 'longest', which this process does not have"):
        merge_operator("longest", of="orders")


def test_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(monkeypatch, "longest", f"{__name__}:Longest")
    found = merge_operator("longest")
    assert isinstance(found, Longest)
    assert merge_operator("longest") is found


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("longest", "no_such_module:Longest", "No module named"),
        ("shortest", f"{__name__}:Longest", "it is called 'longest'"),
        ("longest", f"{__name__}:entry_point", "has no check and no fold and no apply"),
    ],
)
def test_entry_points_that_do_not_load_say_why(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    entry_point(monkeypatch, name, value)
    with pytest.raises(ConfigError, match=why):
        merge_operator(name)
