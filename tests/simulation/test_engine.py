"""The real engine in the simulator: with all rules on, no seed fails.

CI runs a slice that moves with every commit; ``--full`` more of it; ``scripts/simulate --seeds 5000`` all of it. A seed
that ever failed stays here for good.
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
SLICE_SEEDS = 120
FULL_SEEDS = 1500

FOUND = [
    # creating: another process had made the database, or a dead one had left the first manifest's body
    ("engine-contiguous-wal", 1031),
    ("engine-contiguous-wal", 1073),
    ("engine-contiguous-wal", 1231),
    # without a WAL: log objects were compacted and collected while they were read
    ("engine-contiguous-sst", 2032),
    ("engine-contiguous-sst", 2480),
    ("engine-contiguous-sst", 5136),
    ("engine-epochs-sst", 5136),
    # without a WAL: a log object was compacted before it was acknowledged; whoever waited for it waited for ever
    ("engine-contiguous-sst", 76),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(one.seed, one.kind, one.message) for one in results if one.failed] == []
    happened = Counter[str]()
    for one in results:
        happened.update(one.stats)
    for what in ("acknowledged", "crashes", "freezes", "openings", "failed-openings", "compactions", "confirmed-reads"):
        assert happened[what] > len(results) / 20, f"{what} hardly ever happens: {happened}"


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_what_was_found_once(scenario: str, seed: int) -> None:
    result = run_seed(scenario, seed)
    assert result.kind is None, result.message


@pytest.mark.timeout(300)
def test_two_writers_opened_at_one_instant_one_wins_and_one_is_fenced(full: bool) -> None:
    results = list(run_seeds("engine-duel", seeds(2000 if full else 200)))
    assert [(one.seed, one.kind, one.message) for one in results if one.failed] == []
    ways = Counter[str]()
    for one in results:
        ways.update(one.stats)
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
