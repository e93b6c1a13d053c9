"""Watches in the simulator: whatever happens, each durable row is given once, in order, and no other."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.life.consumed import Row
from tests.simulation.scenarios.watches.watched import Watched, check_watched
from tests.slices import seeds

SLICE_SEEDS = {"watches": 12, "watches-ingest": 8, "watches-calm": 8}
FULL_SEEDS = 1_000
COVERAGE_SEEDS = 8


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_watchers_get_each_row_once(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []


def test_watchers_fall_behind_and_come_back() -> None:
    """On seeds that stay the same."""
    happened = Counter[str]()
    for scenario in SLICE_SEEDS:
        for result in run_seeds(scenario, range(COVERAGE_SEEDS)):
            happened.update(result.stats)
    for what in ("watched", "watch-delivered", "watch-lagged", "watch-feeds", "watches-ended"):
        assert happened[what] > COVERAGE_SEEDS, f"{what} hardly ever happens: {happened}"


def row(seq: int, key: bytes = b"k", value: bytes = b"v") -> Row:
    return (seq, "put", key, value)


WRITTEN = {seq: [row(seq)] for seq in (1, 2, 3)} | {4: [row(4, key) for key in (b"a", b"b", b"c")], 5: [row(5)]}


def check(given: list[Row], begin: int = 0, end: int = 5, prefix: bytes = b"") -> None:
    check_watched(WRITTEN, Watched("one", prefix, begin, end, given))


def test_the_checker_passes_what_is_right() -> None:
    everything = [found for rows in WRITTEN.values() for found in rows]
    check(everything)
    check(everything[2:], begin=2)
    check([row(4, b"a")], prefix=b"a")
    check([row(1), row(2), row(3), row(4, b"a")], end=3)


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ([row(1), row(3)], 3),
        ([row(1), row(1), row(2), row(3)], 3),
        ([row(2), row(1), row(3)], 3),
        ([row(1), row(2)], 3),
        ([row(1), row(2, value=b"other"), row(3)], 3),
        ([row(1), row(2), row(3), row(4, b"a"), row(4, b"a")], 3),
        ([row(1), row(2), row(3), row(4, b"x")], 3),
        ([row(1), row(2), row(3), row(4, b"b"), row(4, b"a")], 3),
    ],
    ids=["gap", "repeat", "order", "end", "value", "repeat-inside", "stranger", "order-inside"],
)
def test_the_checker_finds_what_is_wrong(given: list[Row], end: int) -> None:
    with pytest.raises(Violation):
        check(given, end=end)
