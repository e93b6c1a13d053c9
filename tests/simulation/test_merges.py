"""Merges in the simulator: whatever happens, a value is what its operands make, each of them once and in order."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.merges import Ledger
from tests.slices import seeds

SLICE_SEEDS = {"merges": 12, "merges-calm": 8}
FULL_SEEDS = 1_000


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_values_are_what_their_operands_make(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in ("acknowledged", "looks", "moments", "views"):
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"


def violation(ledger: Ledger, final: dict[bytes, list[int]]) -> str:
    """The kind of violation that is found."""
    with pytest.raises(Violation) as caught:
        ledger.check({b"b": [], b"c": [], **final})
    return caught.value.kind


def test_the_checker_finds_what_is_wrong() -> None:
    ledger = Ledger()
    first, second = ledger.new(b"a"), ledger.new(b"a")
    first.seq, second.seq = 1, 2
    ledger.check({b"a": [1, 2], b"b": [], b"c": []})
    assert violation(ledger, {b"a": [2, 1]}) == "order"
    assert violation(ledger, {b"a": [1]}) == "lost"
    ledger.seen("reader", {b"a": b"1,"}, 0)
    ledger.check({b"a": [1, 2], b"b": [], b"c": []})
    assert violation(ledger, {b"a": [2]}) == "order"
    with pytest.raises(Violation, match="twice"):
        ledger.seen("reader", {b"a": b"1,1,"}, 0)
    second.seq, second.expire_ms = None, 1_000
    with pytest.raises(Violation, match="outlived"):
        ledger.seen("reader", {b"a": b"1,2,"}, 2_000)
    second.refused = True
    assert violation(ledger, {b"a": [1, 2]}) == "refused"
