"""Maps in the simulator: whatever happens, an index is what the rows say."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.maps.session import Product, entries_of
from tests.slices import seeds

SLICE_SEEDS = {"maps": 12, "maps-calm": 6}
FULL_SEEDS = 1_000
EVENTS = ("puts", "refused", "conflicts", "compared", "not-built", "builds", "drops", "cancelled")
"""What has to happen often. A slice of some seeds may do without one of them: drops come several in a seed, or none."""


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_an_index_is_what_the_rows_say(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    rare = [what for what in EVENTS if happened[what] <= len(results) / 6]
    assert len(rare) <= (0 if full else 1), f"{rare} hardly ever happen: {happened}"


def test_the_judge_knows_what_indexes_have_to_have() -> None:
    found = entries_of({b"\x15\x01": Product("a", "red"), b"\x15\x02": Product(None, "red")})
    assert found == {
        b"\xfdm\0\x02sku\0\x02a\0": b"\x15\x01",
        b"\xfdm\0\x02color\0\x02red\0\x15\x01": b"\x15\x01",
        b"\xfdm\0\x02color\0\x02red\0\x15\x02": b"\x15\x02",
    }
    with pytest.raises(Violation, match="unique"):
        entries_of({b"\x15\x01": Product("a", "red"), b"\x15\x02": Product("a", "blue")})
