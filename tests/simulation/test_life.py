"""A database's whole life in the simulator, with the product's compactors, collectors, readers, checkpoints and clones.

CI runs a slice that moves with every commit; ``--full``, or ``scripts/simulate --seeds 5000``, all of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.runner import run_seed, run_seeds
from tests.simulation.scenarios.life import LIFE
from tests.slices import seeds

ROOT = Path(__file__).resolve().parents[2]
NAMES = [scenario.name for scenario in LIFE]
SLICE_SEEDS = 25
FULL_SEEDS = 5_000
"""Of each of the four scenarios: 20,000."""
COVERAGE_SEEDS = 15
OFTEN = (
    "acknowledged",
    "compactions-committed",
    "objects-collected",
    "versions-collected",
    "reader-views",
    "checkpoints",
    "checkpoint-views",
    "clones",
    "crashes",
    "freezes",
)


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_every_part_of_a_life_happens() -> None:
    """On seeds that stay the same: what a few seeds of a moving slice happen to show would fail by chance."""
    happened = Counter[str]()
    for scenario in NAMES:
        for result in run_seeds(scenario, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in OFTEN:
        assert happened[what] > COVERAGE_SEEDS / 3, f"{what} hardly ever happens: {happened}"


def test_the_same_seed_gives_the_same_trace_in_another_interpreter() -> None:
    seed = seeds(1)[0]
    for scenario in NAMES[:2]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.runner", scenario, str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "4242"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        here = run_seed(scenario, seed)
        assert done.stdout == f"{here.digest} {here.steps} {here.kind}\n"
