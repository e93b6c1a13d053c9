"""Bulk ingests in the simulator, beside writers, followers, compactors and collectors.

CI runs a slice that moves with every commit; ``--full``, or ``scripts/simulate --seeds 2000``, more of it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.engine import INGEST
from tests.simulation.scenarios.leases import LEASES
from tests.simulation.scenarios.life import INGEST_LIFE
from tests.slices import seeds

SLICE_SEEDS = 6
FULL_SEEDS = 2_000
COVERAGE_SEEDS = 8
OFTEN = ("ingests-applied", "ingests-pending", "ingests-aborted-on-abort", "ingests-too-early", "crashes")


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", [scenario.name for scenario in (*INGEST, *INGEST_LIFE, *LEASES)])
def test_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_every_part_of_an_ingest_happens() -> None:
    """On seeds that stay the same."""
    happened = Counter[str]()
    for scenario in INGEST:
        for result in run_seeds(scenario.name, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in OFTEN:
        assert happened[what] > COVERAGE_SEEDS, f"{what} hardly ever happens: {happened}"


def test_every_part_of_a_lease_happens() -> None:
    happened = Counter[str]()
    for scenario in LEASES:
        for result in run_seeds(scenario.name, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("leases-applied", "leases-UnavailableError", "crashes"):
        assert happened[what] > COVERAGE_SEEDS // 2, f"{what} hardly ever happens: {happened}"
    for what in ("leases-expired", "leases-unknown"):
        assert happened[what], f"{what} never happens: {happened}"


def test_every_part_of_a_replacement_happens() -> None:
    happened = Counter[str]()
    for scenario in INGEST_LIFE:
        for result in run_seeds(scenario.name, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("replacements-applied", "replacements-pending", "replacements-refused"):
        assert happened[what] > COVERAGE_SEEDS // 2, f"{what} hardly ever happens: {happened}"
