"""Collections in the simulator: histories by the product's decisions, the product's own roles, and each rule of them
switched off.

The switches are in `tests.simulation.rules.collections_table`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.amounts import AMOUNTS, FULL_SEEDS, ROLES
from tests.simulation.noticing import check_noticed
from tests.simulation.rules.collections_table import COLLECTION_SWITCHES
from tests.simulation.rules.switch import Switch
from tests.simulation.runner import run_seeds
from tests.simulation.scenarios.collections.scenarios import COLLECTIONS
from tests.simulation.scenarios.lake.await_lives import AWAIT_LIVES
from tests.simulation.scenarios.lake.awaits import AWAITS, all_pairs
from tests.simulation.scenarios.lake.lives import LIVES
from tests.simulation.scenarios.lake.scenarios import LAKES
from tests.simulation.scenarios.lake.scripts import LAKE_SCRIPTS
from tests.simulation.scenarios.lake.services import SERVED
from tests.slices import sample, seeds

SLICE_SWITCHES = 6
SLICE_SCRIPT_SEEDS = 2
FULL_SCRIPT_SEEDS = 100
SLICE_FROZEN = 10
FROZEN_READERS = ("definite-reader", "compare-reader", "compare-cloner", "definite-under-a-pin")
EARLIEST, LATEST = 12, 32
"""Callbacks after which they hold something, and are not done yet."""
HAPPENS = (
    "acknowledged",
    "snapshots",
    "listened",
    "restarts",
    "clones",
    "revoked",
    "fenced",
    "late hold",
    "crashed",
    "merged by another",
)

PLAYED = ("acknowledged", "frozen", "fenced")
"""By the product's roles, in ten seeds of any play of them by chance."""
PLAYED_IN_FULL = (*PLAYED, "crashed", "revoked", "merges")
SERVING = ("served", "fenced")
SERVING_IN_FULL = (*SERVING, "standby claims", "crashed", "frozen")
REVOKING = ("lost-while-it-waits", "ghost", "late-clone", "reborn-name", "overdue-reader", "slow-reader")
"""Scripts in which a lease ends."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A slice of the switches that moves with every commit; all of them in the long form."""
    if "switch" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        switches = COLLECTION_SWITCHES if full else sample(COLLECTION_SWITCHES, SLICE_SWITCHES, "collections")
        metafunc.parametrize("switch", switches, ids=lambda switch: switch.name)


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", [scenario.name for scenario in COLLECTIONS])
def test_nothing_is_lost_repeated_or_deleted_too_early(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(AMOUNTS[scenario].of(full))))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    for what in HAPPENS:
        assert happened[what] > len(results) / 4, f"{what} hardly ever happens: {happened}"


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("scenario", [scenario.name for scenario in LAKES])
def test_the_products_roles_keep_every_promise(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(AMOUNTS[scenario].of(full))))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    happened = Counter[str]()
    for result in results:
        happened.update(result.stats)
    if AMOUNTS[scenario] is ROLES and scenario != LIVES.name:
        assert [what for what in (PLAYED_IN_FULL if full else PLAYED) if not happened[what]] == [], happened
        assert happened["snapshots"] + happened["split snapshots"] > 0
    if scenario == SERVED.name:
        assert [what for what in (SERVING_IN_FULL if full else SERVING) if not happened[what]] == [], happened


@pytest.mark.timeout(1_200)
def test_a_reader_that_stands_still_loses_its_lease(full: bool) -> None:
    """Else the pairs of a freeze and an await show less than they say."""
    frozen = [
        seed
        for seed, pair in enumerate(all_pairs())
        if pair.what == "freeze" and pair.role.name in FROZEN_READERS and EARLIEST <= pair.at <= LATEST
    ]
    results = list(run_seeds(AWAITS.name, frozen if full else sample(frozen, SLICE_FROZEN, "frozen readers")))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    assert sum(result.stats.get("revoked", 0) for result in results) > 0


def test_a_full_run_is_of_enough_seeds() -> None:
    assert sum(amount.full() for amount in AMOUNTS.values()) >= FULL_SEEDS
    assert min(AMOUNTS[scenario.name].full() for scenario in LAKES if scenario is not AWAIT_LIVES) >= 1_000


@pytest.mark.timeout(1_200)
def test_a_rule_switched_off_is_caught(switch: Switch, full: bool) -> None:
    check_noticed(switch, full)


@pytest.mark.parametrize("scenario", [script.name for script in LAKE_SCRIPTS])
def test_a_script_passes_with_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SCRIPT_SEEDS if full else SLICE_SCRIPT_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
    if scenario.removeprefix("script-collections-") in REVOKING:
        assert [result.seed for result in results if not result.stats["revoked"]] == []
