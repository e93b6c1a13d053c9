"""The simulator as a whole: same seed, same trace; it finds what is wrong and passes what is right."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.catalogue import SCENARIOS
from tests.simulation.runner import TooSlowError, limited, run_seed, run_seeds
from tests.simulation.world import World
from tests.slices import seeds

ROOT = Path(__file__).resolve().parents[2]
RIGHT = [scenario.name for scenario in SCENARIOS.values() if scenario.name.startswith("tiny") and not scenario.broken]
BROKEN = [scenario.name for scenario in SCENARIOS.values() if scenario.broken and scenario.name.startswith("tiny")]


def interpreter(*arguments: str, hash_seed: str) -> subprocess.Popen[str]:
    """A fresh interpreter with its own hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE)


def test_the_same_seed_gives_the_same_trace_in_two_interpreters() -> None:
    command = ("-m", "tests.simulation.runner", "tiny-object", "11")
    runs = [interpreter(*command, hash_seed=seed) for seed in ("1", "4242")]
    printed = [run.communicate(timeout=60)[0] for run in runs]
    here = run_seed("tiny-object", 11)
    assert printed[0] == printed[1] == f"{here.digest} {here.steps} {here.kind}\n"
    assert here.steps > 100


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_digests_are_printed_in_the_order_of_seeds(jobs: str) -> None:
    options = ["--scenario", "tiny-register", "--start", "3", "--seeds", "3", "--jobs", jobs, "--digests"]
    printed, _ = interpreter("scripts/simulate", *options, hash_seed="7").communicate(timeout=120)
    results = [run_seed("tiny-register", seed) for seed in (3, 4, 5)]
    assert printed.splitlines() == [
        f"tiny-register {result.seed} {result.kind or 'passed'} {result.steps} {result.digest}" for result in results
    ]


def test_other_seeds_give_other_traces_and_keeping_the_trace_changes_nothing() -> None:
    digests = {run_seed("tiny-register", seed).digest for seed in range(5)}
    assert len(digests) == 5
    kept = run_seed("tiny-register", 3, keep_trace=True)
    assert kept.digest in digests
    assert any("crash" in line for seed in range(5) for line in run_seed("tiny-register", seed, keep_trace=True).trace)


@pytest.mark.parametrize("scenario", RIGHT)
def test_what_is_right_passes(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(2000 if full else 15)))
    assert [(result.seed, result.message) for result in results if result.failed] == []
    assert sum(result.stats["acknowledged"] for result in results) > 10 * len(results)


@pytest.mark.parametrize("scenario", BROKEN)
def test_what_is_wrong_is_caught_within_30_seeds(scenario: str) -> None:
    for result in run_seeds(scenario, seeds(30)):
        if result.kind in ("lost", "renumbered", "two-seqs", "value", "linearizability"):
            return
    pytest.fail(f"no checker noticed {scenario}")


def test_code_that_never_comes_back_is_stopped() -> None:
    async def spin() -> None:
        while True:
            pass

    async def scenario(world: World) -> None:
        node = world.node("a")
        await asyncio.gather(node.run(spin()), return_exceptions=True)

    world = World(1)
    with pytest.raises(TooSlowError), limited(0.2):
        world.run(scenario(world))


def test_the_command_reports_failures_and_replays_them() -> None:
    command = ("scripts/simulate", "--scenario", "tiny-overwrite")
    runs = [
        interpreter(*command, "--seeds", "12", "--jobs", "1", hash_seed="5"),
        interpreter(*command, "--seed", "0", "--trace", hash_seed="6"),
        interpreter("scripts/simulate", "--scenario", "tiny-object", "--seeds", "4", "--jobs", "2", hash_seed="7"),
    ]
    many, one, passed = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [1, 1, 0]
    assert "12 seeds from 0" in many
    assert "replay: scripts/simulate --scenario tiny-overwrite --seed " in many
    assert "tiny-overwrite seed 0: lost" in one
    assert " a send put-overwrite(" in one
    assert "0 failed" in passed
