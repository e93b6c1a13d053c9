"""Range deletes in the simulator: whatever happens, each read shows what the writes that it sees have made."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.ranges import Ledger
from tests.slices import seeds

SLICE_SEEDS = {"ranges": 12, "ranges-calm": 8, "ranges-few": 8}
FULL_SEEDS = 1_000


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_reads_show_what_the_writes_have_made(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in (
        "acknowledged",
        "ranges",
        "looks",
        "moments",
        "feeds",
        "ingests",
        "views",
        "checkpoints",
        "subscribed",
    ):
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"
    assert happened["collected"] or scenario == "ranges", "SSTs that nothing needs go"


def test_the_checker_finds_what_is_wrong() -> None:
    ledger = Ledger()
    first, second = ledger.new([b"a", b"b"]), ledger.new([(b"a", b"b")])
    first.seq, second.seq = 1, 4
    rows = [(first.key, b"1", 1), (b"b", b"1", 3), (second.key, b"2", 4)]
    journal = ledger.seen("reader", rows)
    ledger.check(journal)
    for wrong in ([*rows, (b"a", b"1", 2)], [rows[0], rows[2]]):
        with pytest.raises(Violation, match="value"):
            ledger.seen("reader", wrong)
    ledger.feeds = [("feed", 3, 0, {b"a": b"1", b"b": b"1"}), ("feed", 5, 0, {b"b": b"1"})]
    ledger.feeds += [("feed", 2, 5, {}), ("feed", 3, 5, {b"b": b"1"}), ("feed", 5, 5, {b"b": b"1"})]
    ledger.check(journal)
    right = list(ledger.feeds)
    for wrong_feed in (("feed", 5, 0, {}), ("feed", 3, 5, {b"a": b"1", b"b": b"1"}), ("feed", 2, 5, {b"b": b"1"})):
        ledger.feeds = [*right, wrong_feed]
        with pytest.raises(Violation, match="feed"):
            ledger.check(journal)
    with pytest.raises(Violation, match="order"):
        ledger.check(journal[:1])
    ledger.views.clear()
    with pytest.raises(Violation, match="lost"):
        ledger.check(journal[:1])
    second.refused = True
    with pytest.raises(Violation, match="refused"):
        ledger.check(journal)
