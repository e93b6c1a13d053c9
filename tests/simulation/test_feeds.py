"""Consumers of the change feed in the simulator, among writers, a compactor and a collector that crash and sleep."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.life import FEEDS
from tests.slices import seeds

NAMES = [scenario.name for scenario in FEEDS]
SLICE_SEEDS = 10
FULL_SEEDS = 2_500
COVERAGE_SEEDS = 8


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", NAMES)
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_consumers_read_on_where_much_was_compacted() -> None:
    """On seeds that stay the same."""
    happened = Counter[str]()
    for scenario in NAMES:
        for result in run_seeds(scenario, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("changes", "compactions-committed", "objects-collected", "crashes", "feeds-begun-anew"):
        assert happened[what] > COVERAGE_SEEDS / 2, f"{what} hardly ever happens: {happened}"
