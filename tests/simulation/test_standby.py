"""Standbys in the simulator: nothing is lost when a live writer is taken for dead, and in a calm world none is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import run_seeds
from tests.slices import seeds

SLICE_SEEDS = {"standby": 16, "standby-calm": 8}
FULL_SEEDS = 1_000


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_standbys_take_over_from_one_another(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in ("acknowledged", "took-over", "was-first"):
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"
