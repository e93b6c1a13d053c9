"""Folders of unit tests mirror the packages, so that the tests of a module are found where the module is."""

from __future__ import annotations

from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parent
ROOT = UNIT.parents[1]

OTHERS = {"benchmarks", "engine/compaction/cases"}
"""Folders that mirror no package: tests of `tests/benchmarks`, and cases that a test module reads."""


def folders(below: Path) -> set[str]:
    """Paths of the folders below ``below`` that hold files, relative to it."""
    files = (path for path in below.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.parent.relative_to(below).as_posix() for path in files} - {"."}


def packages(root: Path) -> set[str]:
    """Folders of tests that there may be: those of `slate_async`, and of `metastores`."""
    of_metastores = {f"metastores/{folder}" for folder in folders(root / "metastores")}
    return folders(root / "slate_async") | {"metastores"} | of_metastores


def test_every_folder_mirrors_a_package() -> None:
    assert folders(UNIT) - packages(ROOT) == OTHERS


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
