"""Every protocol rule, switched off, is noticed; the same seed with the rule on passes.

The switches live here (`tests.simulation.rules`), not in the product.
"""

from __future__ import annotations

import pytest

from tests.simulation.catalogue import ENGINE_SWITCHES
from tests.simulation.noticing import check_noticed
from tests.simulation.rules.switch import Switch
from tests.simulation.rules.table import SWITCHES
from tests.simulation.runner import run_seed, run_seeds
from tests.simulation.scenarios.engine.outages import OUTAGES
from tests.simulation.scenarios.engine.places import PLACES
from tests.simulation.scenarios.engine.scripts import SCRIPTS
from tests.simulation.scenarios.leases import LEASE_SCRIPTS
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.life.tails import TAILS
from tests.simulation.scenarios.probed import PROBED
from tests.simulation.scenarios.queries import QUERY_SCRIPTS
from tests.simulation.scenarios.recreated import RECREATED
from tests.simulation.scenarios.standby import STANDBY_SCRIPTS
from tests.simulation.scenarios.transactions.scripts import READ_BEFORE_A_LOSS
from tests.slices import sample, seeds

SLICE_SEEDS = 10
FULL_SEEDS = 500
ALL_SCRIPTS = (
    *SCRIPTS,
    *PLACES,
    *OUTAGES,
    *LIFE_SCRIPTS,
    *TAILS,
    *STANDBY_SCRIPTS,
    *LEASE_SCRIPTS,
    *QUERY_SCRIPTS,
    RECREATED,
    PROBED,
    READ_BEFORE_A_LOSS,
)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("switch", ENGINE_SWITCHES, ids=lambda switch: switch.name)
def test_a_rule_switched_off_is_caught(switch: Switch, full: bool) -> None:
    check_noticed(switch, full)


@pytest.mark.parametrize("switch", [switch for switch in SWITCHES if switch.hidden], ids=lambda switch: switch.name)
def test_a_hidden_rule_alone_is_not_noticed(switch: Switch, full: bool) -> None:
    """Documented as hidden while others hold. If this fails, it is hidden no more: say so in the table."""
    within = range(switch.within)
    tried = within if full else sample(within, SLICE_SEEDS, switch.name)
    assert [seed for seed in tried if run_seed(f"alone-{switch.name}", seed).failed] == []


@pytest.mark.parametrize("scenario", [script.name for script in ALL_SCRIPTS])
def test_a_script_passes_with_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
