"""Everything the simulator can run, by name."""

from __future__ import annotations

from tests.simulation.rules.table import HIDDEN, SWITCHES
from tests.simulation.scenarios.engine import DUEL, ENGINE
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.tiny import TINY

_RULES = [made for switch in (*SWITCHES, *HIDDEN) for made in (switch.scenario(), switch.control())]

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (*TINY, *ENGINE, DUEL, *_RULES)}
"""In the order ``scripts/simulate --list`` shows them."""
