"""`scripts/bench --against`: either side runs with its own packages, and the table shows ratios of rounds."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks.against import ROOT, one_side, ratios, table


def test_a_side_measures_the_packages_it_is_given(tmp_path: Path) -> None:
    for package in ("slate_async", "metastores"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    here, there = one_side(ROOT, 400), one_side(tmp_path, 400)
    assert set(here) == set(there)
    assert {"get, memtable", "get, one run", "put, flush"} <= set(here)
    assert all(cost > 0 for cost in here.values())


def test_packages_that_are_not_there_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        one_side(tmp_path, 400)


def test_the_table_shows_how_many_times_as_fast_this_tree_is() -> None:
    old, new = {"put": [2.0, 3.0, 4.0]}, {"put": [1.0, 3.0, 2.0]}
    assert ratios(old, new) == {"put": [2.0, 1.0, 2.0]}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table("97ac487", old, new))
    shown = console.export_text()
    assert "97ac487" in shown
    assert "2.000" in shown
