"""Databases alone with their writers, which compact and collect garbage by themselves: in the end nothing is missing
and, once a collector of a process of its own has come, nothing is left."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.life import ALONE
from tests.slices import seeds

NAMES = [scenario.name for scenario in ALONE]
SLICE_SEEDS = 4
FULL_SEEDS = 1_500
COVERAGE_SEEDS = 4


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_writers_collect() -> None:
    """On seeds that stay the same."""
    happened = Counter[str]()
    for scenario in NAMES:
        for result in run_seeds(scenario, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("collected-beside", "compactions-committed", "crashes"):
        assert happened[what] > COVERAGE_SEEDS, f"{what} hardly ever happens: {happened}"
