"""Every protocol rule, switched off, is noticed; the same seed with the rule on passes.

The switches live here (`tests.simulation.rules`), not in the product.
"""

from __future__ import annotations

import pytest

from tests.simulation.rules.ingest_table import INGEST_SWITCHES
from tests.simulation.rules.life_table import LIFE_SWITCHES
from tests.simulation.rules.outage_table import OUTAGE_SWITCHES
from tests.simulation.rules.place_table import PLACE_SWITCHES
from tests.simulation.rules.region_table import REGION_SWITCHES
from tests.simulation.rules.standby_table import STANDBY_SWITCHES
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
from tests.slices import seeds

SLICE_SEEDS = 10
FULL_SEEDS = 500
ALL_SWITCHES = (
    *SWITCHES,
    *PLACE_SWITCHES,
    *LIFE_SWITCHES,
    *INGEST_SWITCHES,
    *REGION_SWITCHES,
    *OUTAGE_SWITCHES,
    *STANDBY_SWITCHES,
)


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
)
MISTAKES = {error.__name__ for error in (TypeError, AttributeError, NameError, ImportError)}
"""What a stand-in raises that was left behind when what it stands in for changed."""
OFTEN = 3
"""Any change of the engine moves what is noticed with which seed: so many seeds leave room for that."""


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("switch", ALL_SWITCHES, ids=lambda switch: switch.name)
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


@pytest.mark.parametrize("switch", [switch for switch in SWITCHES if switch.hidden], ids=lambda switch: switch.name)
def test_a_hidden_rule_alone_is_not_noticed(switch: Switch) -> None:
    """Documented as hidden while others hold. If this fails, it is hidden no more: say so in the table."""
    assert [seed for seed in range(switch.within) if run_seed(f"alone-{switch.name}", seed).failed] == []


@pytest.mark.parametrize("scenario", [script.name for script in ALL_SCRIPTS])
def test_a_script_passes_with_all_rules_on(scenario: str, full: bool) -> None:
    results = list(run_seeds(scenario, seeds(FULL_SEEDS if full else SLICE_SEEDS)))
    assert [(result.seed, result.kind, result.message) for result in results if result.failed] == []
