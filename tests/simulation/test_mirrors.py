"""Mirrors in the simulator: processes that mirror checkpoints onto each other's, crash and sleep, among all others."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.life import MIRRORS
from tests.slices import seeds

NAMES = [scenario.name for scenario in MIRRORS]
SLICE_SEEDS = 4
FULL_SEEDS = 1_500
COVERAGE_SEEDS = 6


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_mirrors_are_made_and_repeated() -> None:
    """On seeds that stay the same."""
    happened = Counter[str]()
    for scenario in NAMES:
        for result in run_seeds(scenario, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("mirrorings", "mirrorings-too-late", "mirror-views", "mirror-objects-collected", "crashes", "freezes"):
        assert happened[what] > COVERAGE_SEEDS / 2, f"{what} hardly ever happens: {happened}"
