"""The real engine in the simulator: with all rules on, no seed fails.

CI runs a slice that moves with every commit; ``--full``, or ``scripts/simulate --seeds 5000``, all of it. What
a seed found stays as a test of its own, laid out by hand (``tests/unit/database``): a seed means another run as soon as
something else is drawn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.runner import run_seed, run_seeds
from tests.simulation.scenarios.engine import ENGINE
from tests.slices import seeds

ROOT = Path(__file__).resolve().parents[2]
NAMES = [scenario.name for scenario in ENGINE]
SLICE_SEEDS = 60
FULL_SEEDS = 5_000
"""Of each of the four scenarios: 20,000."""


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in ("acknowledged", "crashes", "freezes", "openings", "failed-openings", "compactions", "confirmed-reads"):
        assert happened[what] > len(results) / 20, f"{what} hardly ever happens: {happened}"


@pytest.mark.timeout(300)
def test_two_writers_opened_at_one_instant_one_wins_and_one_is_fenced(full: bool) -> None:
    results = list(run_seeds("engine-duel", seeds(2000 if full else 60)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    ways = Counter[str]()
    for result in results:
        ways.update(result.stats)
    assert ways["duels"] == len(results)
    assert ways["fenced-while-opening"], ways
    assert ways["fenced-while-writing"], ways


def test_the_same_seed_gives_the_same_trace_in_two_interpreters() -> None:
    """Hashes of strings, of objects, and so the order of sets, differ between the two."""
    seed = seeds(1)[0]
    for scenario in NAMES:
        printed = []
        for hash_seed in ("1", "4242"):
            done = subprocess.run(
                [sys.executable, "-m", "tests.simulation.runner", scenario, str(seed)],
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            printed.append(done.stdout)
        here = run_seed(scenario, seed)
        assert printed[0] == printed[1] == f"{here.digest} {here.steps} {here.kind}\n"
        assert here.steps > 100
