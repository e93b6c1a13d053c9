"""Folders of unit tests mirror the packages, so that the tests of a module are found where the module is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parent
ROOT = UNIT.parents[1]

OTHERS = {"benchmarks", "engine/compaction/cases"}
"""Folders that mirror no package: tests of `tests/benchmarks`, and cases that a test module reads."""


WITHOUT_FOLDER = {
    "metastores/testing": "the suite of metastores, which `unit/metastores/test_suites.py` runs against broken ones",
    "objectstore/testing": "the suite of stores, which `tests/conformance` runs",
}
"""Packages without a folder of unit tests, and why."""


def folders(below: Path) -> set[str]:
    """Paths of the folders below ``below`` that hold files, relative to it."""
    files = (path for path in below.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.parent.relative_to(below).as_posix() for path in files} - {"."}


def packages(root: Path) -> set[str]:
    """Folders of tests that there may be: those of `slate_async`, and of `metastores`."""
    of_metastores = {f"metastores/{folder}" for folder in folders(root / "metastores")}
    return folders(root / "slate_async") | {"metastores"} | of_metastores


IMPORT = re.compile(r"^\s*from tests\.unit\.([\w.]+) import", re.MULTILINE)


def reaches(tests: Path) -> dict[str, list[str]]:
    """What each module below ``tests`` imports from folders of unit tests in which it does not lie."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        folder = path.parent.relative_to(tests / "unit").parts if path.is_relative_to(tests / "unit") else ()
        for module in IMPORT.findall(path.read_text(encoding="utf-8")):
            parts = tuple(module.split("."))
            owner = parts if (tests / "unit" / Path(*parts)).is_dir() else parts[:-1]
            if not folder or folder[: len(owner)] != owner:
                found.setdefault(path.relative_to(tests).as_posix(), []).append(module)
    return found


def test_what_tests_of_several_packages_share_lies_in_support() -> None:
    assert reaches(UNIT.parent) == {}


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("unit/engine/read/test_scan.py", "engine.read.test_hot", True),
        ("unit/engine/read/test_scan.py", "engine.helpers", True),
        ("unit/engine/read/test_scan.py", "engine.write.helpers", False),
        ("unit/engine/test_all.py", "engine.read.helpers", False),
        ("property/test_scan.py", "engine.read.helpers", False),
        ("unit/engine/test_all.py", "cli", False),
    ],
)
def test_a_helper_of_another_folder_is_found(tmp_path: Path, module: str, imported: str, allowed: bool) -> None:
    (tmp_path / "unit" / "cli").mkdir(parents=True)
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / module).write_text(f"from tests.unit.{imported} import something\n", encoding="utf-8")
    assert (reaches(tmp_path) == {}) is allowed


def test_every_folder_mirrors_a_package() -> None:
    assert folders(UNIT) - packages(ROOT) == OTHERS


def test_every_package_has_its_folder() -> None:
    assert packages(ROOT) - folders(UNIT) == WITHOUT_FOLDER.keys()


def test_every_folder_of_a_package_has_tests() -> None:
    mirrors = {UNIT / package for package in packages(ROOT) - WITHOUT_FOLDER.keys()}
    assert sorted(folder for folder in mirrors if not list(folder.rglob("test_*.py"))) == []


def test_every_folder_with_tests_is_a_package() -> None:
    with_tests = {path.parent for path in UNIT.rglob("test_*.py")}
    assert [folder for folder in with_tests if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("tests", "mirrored"),
    [("engine/read", True), ("metastores/testing", True), ("read", False), ("engine/reads", False)],
)
def test_a_folder_that_mirrors_nothing_is_found(tmp_path: Path, tests: str, mirrored: bool) -> None:
    for package in ("slate_async/engine/read", "metastores/testing"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    assert (tests in packages(tmp_path)) is mirrored
