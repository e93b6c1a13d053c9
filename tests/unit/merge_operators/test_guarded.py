from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slate_async.errors import InvalidError
from slate_async.merge_operators import guarded
from slate_async.merge_operators.guarded import Guarded, MergeError
from slate_async.merge_operators.registry import merge_operator


class Broken:
    """Makes what it was given, or raises that."""

    name = "broken"

    def __init__(self, made: object) -> None:
        self._made = made

    def check(self, operand: bytes) -> None:
        self._answer()

    def fold(self, operands: Sequence[bytes]) -> bytes:
        return self._answer()

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        return self._answer()

    def _answer(self) -> bytes:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made  # type: ignore[return-value]


def test_a_bad_operand_is_refused_by_the_operators_name() -> None:
    with pytest.raises(InvalidError, match="not an operand of add_i64: a 64-bit integer has 8 bytes, not 1") as refused:
        Guarded(merge_operator("add_i64")).check(b"1")
    assert refused.value.outcome == "not_applied"


def test_a_read_names_the_key() -> None:
    with pytest.raises(MergeError, match=r"b'visits' cannot be merged by add_i64: .*; put or delete the key") as failed:
        Guarded(merge_operator("add_i64")).merged(b"visits", b"one", [b"\0" * 8])
    assert failed.value.key == b"visits"
    with pytest.raises(MergeError, match=r"b'kkk+'… cannot"):
        Guarded(Broken(KeyError("x"))).merged(b"k" * 100, None, [b""])


@pytest.mark.parametrize("made", [ValueError("no"), KeyError("x"), RecursionError(), None, "text", bytearray(b"x")])
def test_folds_that_fail_leave_the_operands(made: object) -> None:
    broken = Guarded(Broken(made))
    folds: list[Callable[[], bytes | None]] = [lambda: broken.folded([b""]), lambda: broken.settled(None, [b""])]
    assert [fold() for fold in folds] == [None, None]
    with pytest.raises(MergeError):
        broken.merged(b"k", None, [b""])


def test_what_is_longer_than_a_value_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "MAX_VALUE_BYTES", 3)
    append = Guarded(merge_operator("append"))
    assert append.folded([b"ab", b"c"]) == b"abc"
    assert append.folded([b"ab", b"cd"]) is None
    assert append.settled(b"ab", [b"cd"]) is None
    assert append.failures == 2
    with pytest.raises(MergeError, match="4 bytes are more than a value has"):
        append.merged(b"k", b"ab", [b"cd"])
