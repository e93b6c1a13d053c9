"""Everything the simulator can run, by name."""

from __future__ import annotations

from tests.simulation.rules.ingest_table import INGEST_SWITCHES
from tests.simulation.rules.life_table import LIFE_SWITCHES
from tests.simulation.rules.table import SWITCHES
from tests.simulation.scenarios.engine import DUEL, ENGINE, INGEST
from tests.simulation.scenarios.engine.scripts import SCRIPTS
from tests.simulation.scenarios.life import FEEDS, INGEST_LIFE, LIFE
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.recreated import RECREATED
from tests.simulation.scenarios.tiny import TINY

_RULES = [scenario for switch in (*SWITCHES, *LIFE_SWITCHES, *INGEST_SWITCHES) for scenario in switch.scenarios()]
_ALL = (*TINY, RECREATED, *ENGINE, *INGEST, *LIFE, *INGEST_LIFE, *FEEDS, DUEL, *SCRIPTS, *LIFE_SCRIPTS, *_RULES)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""In the order ``scripts/simulate --list`` shows them."""
