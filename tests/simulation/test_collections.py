"""Collections in the simulator: histories by the product's decisions, the product's own roles, and each rule of them
switched off.

The switches are in `tests.simulation.rules.collections_table`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.amounts import AMOUNTS, FULL_SEEDS
from tests.simulation.rules.collections_table import COLLECTION_SWITCHES
from tests.simulation.rules.switch import Switch
from tests.simulation.runner import run_seed, run_seeds
from tests.simulation.scenarios.collections.scenarios import COLLECTIONS
from tests.simulation.scenarios.lake.scenarios import LAKES
from tests.simulation.test_rules import MISTAKES, OFTEN
from tests.slices import sample, seeds

SLICE_SWITCHES = 6
HAPPENS = ("acknowledged", "snapshots", "listened", "restarts", "clones", "revoked", "fenced", "late hold", "crashed")


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


def test_a_full_run_is_of_enough_seeds() -> None:
    roles = [scenario.name for scenario in LAKES]
    assert sum(amount.full() for amount in AMOUNTS.values()) >= FULL_SEEDS
    assert min(AMOUNTS[name].full() for name in roles) >= 1_000


@pytest.mark.timeout(1_200)
def test_a_rule_switched_off_is_caught(switch: Switch, full: bool) -> None:
    noticed: list[int] = []
    for seed in range(switch.within):
        result = run_seed(f"rule-{switch.name}", seed)
        assert result.kind not in MISTAKES, f"seed {seed}: not the rule is noticed but its stand-in: {result.message}"
        if result.failed:
            control = run_seed(f"on-{switch.name}", seed)
            assert not control.failed, f"seed {seed} fails with the rule on, too: {control.message}"
            noticed.append(seed)
            if len(noticed) == (OFTEN if full else 1):
                return
    pytest.fail(f"rule {switch.rule} off ({switch.broken}): {noticed} of {switch.within} seeds noticed")
