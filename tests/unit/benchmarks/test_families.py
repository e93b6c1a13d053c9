"""Every family of benchmarks runs, on a few rows, and has figures for its goals. Peers run where they are installed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.benchmarks.engines import missing_peers
from tests.benchmarks.families.durable import STORE
from tests.benchmarks.families.registry import FAMILIES
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS
from tests.benchmarks.report import report
from tests.benchmarks.rounds import Plan, Samples, Turn

PLAN = Plan(rounds=1, size="tiny")
IN_SPARK = ("spark", "lookup", "micro-batches", "first-read", "spark-collections")
"""Those that tests/spark runs."""


@pytest.fixture(autouse=True)
def _fast_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a disk shows nothing here."""
    if Path("/dev/shm").is_dir():
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


def reported(family: Family, samples: Samples, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the report writes, in ``folder``."""
    monkeypatch.chdir(folder)
    report(family, samples, PLAN, Console(quiet=True))
    return json.loads(Path("bench-results", f"{family.name}.json").read_text())["results"]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in IN_SPARK])
async def test_a_family_measures_what_its_goals_are_about(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, samples = FAMILIES[name], Samples()
    await family.one_round(Turn(0, PLAN, samples))
    written = reported(family, samples, tmp_path, monkeypatch)
    assert set(written["units"]) == set(written["samples"]) != set()
    for goal in family.goals:
        assert samples.has(goal.of, goal.subject), goal.text
        if goal.to is not None and (goal.to[1] == OURS or not missing_peers()):
            assert samples.has(*goal.to), goal.text


@pytest.mark.parametrize("name", ["put", "get", "durable"])
@pytest.mark.parametrize("only", [OURS, "another engine"])
async def test_a_report_is_written_and_drawn_without_peers(
    name: str, only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, family, samples = replace(PLAN, only=(only,)), FAMILIES[name], Samples()
    await family.one_round(Turn(0, plan, samples))
    written = reported(family, samples, tmp_path, monkeypatch)
    assert {subject for found in written["samples"].values() for subject in found} <= {only, STORE}
    assert (tmp_path / "bench-results" / f"{name}.png").exists() == bool(samples.found)
