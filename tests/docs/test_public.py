"""Public names: each is documented, the reference shows it, and a change of one is seen."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import griffe
import pytest

import slate_async as slate
from scripts.docs_openings import Openings
from slate_async.database.opener import Opener
from tests.docs import public
from tests.docs.public import HANDED_ON, OPAQUE, PACKAGES, Public, exported, public_names, unannotated, unlisted

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_every_name_is_as_written_down() -> None:
    """`scripts/public_names.py` writes the file; a change of a public name belongs in the changelog."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "public_names.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_has_a_docstring() -> None:
    names = list(public_names())
    assert len(names) > 500
    assert [name.name for name in names if name.needs_doc and not name.doc] == []


def test_every_name_in_a_signature_is_public_itself() -> None:
    names = public_names()
    assert unlisted(names) == {}
    assert not {name.name.rpartition(".")[2] for name in names} & set(OPAQUE), "what is public is not opaque"
    shapes = " ".join(name.shape for name in names)
    assert [name for name in OPAQUE if not re.search(rf"\b{name}\b", shapes)] == [], "no signature mentions it"


def test_a_name_in_a_signature_that_is_not_public_is_noticed() -> None:
    taken = Public(
        "slate_async.f", '(state: ManifestDriver, mode: Literal[x] = "Memtable") -> T', None, needs_doc=False
    )
    assert unlisted([taken]) == {"ManifestDriver": str(taken)}


def test_extension_points_and_aliases_are_written_down() -> None:
    """A new method of a protocol breaks whoever implements it, and a narrower alias whoever passes its old values."""
    written = {name.name: str(name) for name in public_names()}
    assert written["slate_async.Scope"] == "slate_async.Scope = Literal[all, durable]"
    assert written["slate_async.TimeLike"] == "slate_async.TimeLike = datetime | float"
    assert written["slate_async.EventSink"] == "slate_async.EventSink = Callable[[CompactionEvent], None]"
    assert {"seq", "log_seq", "log_position", "log_floor"} <= members("slate_async.FeedPosition", written)
    assert members("slate_async.objectstore.ObjectStore", written) == {"put", "get", "head", "list", "delete", "close"}
    assert members("slate_async.objectstore.StoreFactory", written) == {"__call__"}
    assert members("metastores.Register", written) == {"read", "compare_and_set", "close"}
    assert members("slate_async.runtime.Clock", written) == {"now_ms", "monotonic", "sleep"}
    assert members("slate_async.Executor", written) == {"run"}
    assert members("slate_async.ReadAhead", written) == set(), "its callers never look into it"


def members(kind: str, written: dict[str, str]) -> set[str]:
    """The public members of a class."""
    return {name.rpartition(".")[2] for name in written if name.rpartition(".")[0] == kind}


def test_every_attribute_is_annotated_in_its_class() -> None:
    """One that only ``__init__`` sets would be neither in the file nor on a page."""
    kinds = [
        (f"{package}.{name}", found)
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
        if f"{package}.{name}" not in HANDED_ON
        if inspect.isclass(found := getattr(importlib.import_module(package), name))
    ]
    assert {name: missing for name, kind in kinds if (missing := unannotated(kind))} == {}


def test_an_attribute_that_only_init_sets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful:
        said: int
        """In time."""

        def __init__(self) -> None:
            self.said = 1
            self.unsaid, self._own = 2, 3

    assert unannotated(Forgetful) == set(), "another package's classes are not looked at"
    monkeypatch.setattr(public, "OURS", ("tests",))
    assert unannotated(Forgetful) == {"unsaid"}


def test_the_reference_shows_every_name() -> None:
    shown = [
        found
        for page in sorted((REFERENCE / "api").glob("*.md"))
        for found in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(shown) == sorted(exported())


def test_the_reference_shows_the_arguments_of_functions_that_are_made_of_methods() -> None:
    shown = griffe.load("slate_async", search_paths=[str(ROOT)], extensions=griffe.load_extensions(Openings))
    holders = {slate: shown, slate.sync: shown["sync"], slate.sync.Environment: shown["sync.Environment"]}
    for holder, page in holders.items():
        for name in (name for name in slate.__all__ if hasattr(Opener, name)):
            function, wanted = page[name], getattr(holder, name)
            assert function.is_function
            assert [parameter.name for parameter in function.parameters] == list(inspect.signature(wanted).parameters)
            assert str(function.returns) == inspect.signature(wanted).return_annotation
            assert function.docstring.value == inspect.getdoc(wanted)


def test_the_sync_packages_names_are_those_of_the_package() -> None:
    assert set(slate.sync.__all__) <= set(slate.__all__)


def test_signatures_are_of_what_callers_write() -> None:
    written = {name.name: str(name) for name in public_names()}
    assert written["slate_async.Db.put"].startswith("slate_async.Db.put(key: BytesLike, value: BytesLike, ")
    assert written["slate_async.WriteBatch"] == "slate_async.WriteBatch() -> None"
    assert "(awaited)" in written["slate_async.Db.close"]
    assert "(awaited)" not in written["slate_async.sync.Db.close"]
    assert "slate_async.Settings.flush_interval_ms" in written
    assert written["slate_async.Db.checkpoints"] == "slate_async.Db.checkpoints: Checkpoints"
    assert not [line for line in written.values() if "object at 0x" in line or "ForwardRef" in line]
    assert len({name.partition(".")[0] for name in written}) == len({package.partition(".")[0] for package in PACKAGES})
