"""Transactions in the simulator: whatever happens, they could have run one after another."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.transactions.ledger import Ledger, Txn
from tests.slices import seeds

SLICE_SEEDS = {"transactions": 12, "transactions-ingest": 8, "transactions-calm": 6}
FULL_SEEDS = 1_000


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_transactions_could_have_run_one_after_another(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in ("committed", "read-only", "retries", "conflict-written", "cancelled"):
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"


def txn(ledger: Ledger, reads: dict[bytes, tuple[int, ...]], appends: set[bytes], *, ok: bool = True) -> Txn:
    """One that ended before the next one began."""
    made = ledger.begin("writer", float(len(ledger.txns)))
    made.reads, made.appends = reads, appends
    if ok:
        made.outcome, made.ended = "ok", made.began + 0.5
    return made


def violation(ledger: Ledger, final: dict[bytes, tuple[int, ...]]) -> str:
    """The kind of violation that is found."""
    with pytest.raises(Violation) as caught:
        ledger.check(final)
    return caught.value.kind


def test_the_checker_passes_what_is_right() -> None:
    ledger = Ledger()
    txn(ledger, {b"a": ()}, {b"a"})
    txn(ledger, {b"a": (1,), b"b": ()}, {b"a", b"b"})
    txn(ledger, {b"a": (1,)}, set())  # one that reads may be older
    txn(ledger, {b"b": (2,)}, {b"b"}, ok=False)
    ledger.check({b"a": (1, 2), b"b": (2,)})
    ledger.check({b"a": (1, 2), b"b": (2, 4)})


def test_the_checker_finds_write_skew_and_lost_updates() -> None:
    ledger = Ledger()
    txn(ledger, {b"a": (), b"b": ()}, {b"a"})
    txn(ledger, {b"a": (), b"b": ()}, {b"b"})
    assert violation(ledger, {b"a": (1,), b"b": (2,)}) == "cycle"
    ledger = Ledger()
    txn(ledger, {b"a": ()}, {b"a"})
    txn(ledger, {b"a": ()}, {b"a"})
    assert violation(ledger, {b"a": (1, 2)}) == "cycle"
    assert violation(ledger, {b"a": (2,)}) == "lost-append"


def test_the_checker_finds_one_that_ran_before_the_number_that_it_has() -> None:
    ledger = Ledger()
    first = txn(ledger, {}, {b"ingested"})
    second = txn(ledger, {b"ingested": (), b"a": ()}, {b"a"})
    first.ended, second.began = second.ended, first.began  # side by side
    final: dict[bytes, tuple[int, ...]] = {b"ingested": (1,), b"a": (2,)}
    ledger.check(final)
    first.seq, second.seq = 8, 7
    ledger.check(final)
    first.seq, second.seq = 7, 8
    assert violation(ledger, final) == "cycle"


def test_the_checker_finds_what_an_outcome_forbids() -> None:
    ledger = Ledger()
    txn(ledger, {}, {b"a", b"b"})
    assert violation(ledger, {b"a": (1,)}) == "torn"
    assert violation(ledger, {b"a": (1, 1), b"b": (1,)}) == "twice"
    assert violation(ledger, {}) == "lost-append"
    ledger = Ledger()
    txn(ledger, {}, {b"a"}, ok=False).outcome = "refused"
    assert violation(ledger, {b"a": (1,)}) == "refused"
    ledger = Ledger()
    txn(ledger, {b"a": (7,)}, set())
    assert violation(ledger, {}) == "lost-read"
    ledger = Ledger()  # an acknowledged write that the next one did not see
    txn(ledger, {b"a": ()}, {b"a"})
    txn(ledger, {b"a": (), b"b": ()}, {b"b"})
    assert violation(ledger, {b"a": (1,), b"b": (2,)}) == "cycle"
