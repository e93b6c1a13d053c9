"""What the simulator runs. A scenario makes a `World` from a seed and judges what happened in it."""

from __future__ import annotations

from tests.simulation.rules.table import SWITCHES
from tests.simulation.scenarios.engine import ENGINE
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.tiny import TINY

RULES = [made for switch in SWITCHES for made in (switch.scenario(), switch.control())]
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (*TINY, *ENGINE, *RULES)}
"""By name, in the order ``scripts/simulate --list`` shows them."""
