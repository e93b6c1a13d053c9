"""Tables in the simulator: rows are in once and deleted rows stay away, whatever happens; each rule switched off."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.noticing import check_noticed
from tests.simulation.rules.switch import Switch
from tests.simulation.rules.tables_table import TABLE_SWITCHES
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.tables.forgotten import FORGOTTEN_MARK
from tests.simulation.scenarios.tables.ledger import Append, Ledger
from tests.slices import seeds

SLICE_SEEDS = {"tables": 6, "tables-marks": 6, "tables-calm": 3}
FULL_SEEDS = 2_000
HAPPENS = ("acknowledged", "looks", "deleted", "kept", "expired", "upserted", "together")


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", SLICE_SEEDS)
def test_rows_are_in_once_and_stay_deleted(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS[scenario])))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in HAPPENS:
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("switch", TABLE_SWITCHES, ids=lambda switch: switch.name)
def test_a_rule_that_is_off_is_noticed(switch: Switch, full: bool) -> None:
    check_noticed(switch, full)


def test_a_script_passes_with_all_rules_on(full: bool) -> None:
    results = list(run_seeds(FORGOTTEN_MARK.name, seeds(500 if full else 5)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    assert sum(result.stats.get("unknown", 0) for result in results) == len(results)


def judged(ledger: Ledger, found: list[int], before: list[Append], deleted: set[int], *, final: bool = False) -> str:
    """The kind of violation that is found."""
    with pytest.raises(Violation) as caught:
        ledger.seen("reader", found, before, deleted, final=final)
    return caught.value.kind


def test_the_checker_finds_what_is_wrong() -> None:
    ledger = Ledger()
    first, second = ledger.new(2), ledger.new(1)
    first.acknowledged = True
    ledger.seen("reader", [0, 1], [first], set())
    ledger.seen("reader", [1, 0, 2], [first], set())
    assert judged(ledger, [0, 1, 1], [first], set()) == "twice"
    assert judged(ledger, [2], [first], set()) == "lost"
    assert judged(ledger, [0], [], set()) == "torn"
    ledger.deleting.add(0)
    ledger.seen("reader", [1], [first], {0})
    assert judged(ledger, [0, 1], [first], {0}) == "came-back"
    upsert = ledger.new_upsert(7)
    upsert.acknowledged = True
    again = ledger.new_upsert(7)
    ledger.keys_seen("reader", [(again.row, 7)], {7})
    for found, kind in (
        ([(upsert.row, 7), (again.row, 7)], "one-row-a-key"),
        ([], "lost"),
        ([(upsert.row, 8)], "foreign"),
    ):
        with pytest.raises(Violation) as caught:
            ledger.keys_seen("reader", found, {7})
        assert caught.value.kind == kind
    second.refused = True
    assert judged(ledger, [0, 1, 2], [first], set(), final=True) == "refused"
