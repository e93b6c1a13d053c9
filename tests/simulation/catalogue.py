"""Everything the simulator can run, by name."""

from __future__ import annotations

from tests.simulation.rules.collections_table import COLLECTION_SWITCHES
from tests.simulation.rules.ingest_table import INGEST_SWITCHES
from tests.simulation.rules.life_table import LIFE_SWITCHES
from tests.simulation.rules.map_table import MAP_SWITCHES
from tests.simulation.rules.merge_table import MERGE_SWITCHES
from tests.simulation.rules.outage_table import OUTAGE_SWITCHES
from tests.simulation.rules.place_table import PLACE_SWITCHES
from tests.simulation.rules.range_table import RANGE_SWITCHES
from tests.simulation.rules.region_table import REGION_SWITCHES
from tests.simulation.rules.standby_table import STANDBY_SWITCHES
from tests.simulation.rules.table import SWITCHES
from tests.simulation.rules.tables_table import TABLE_SWITCHES
from tests.simulation.rules.transaction_table import TRANSACTION_SWITCHES
from tests.simulation.rules.watch_table import WATCH_SWITCHES
from tests.simulation.scenarios.collections.scenarios import COLLECTIONS
from tests.simulation.scenarios.engine import DUEL, ENGINE, INGEST
from tests.simulation.scenarios.engine.outages import OUTAGES
from tests.simulation.scenarios.engine.places import PLACES
from tests.simulation.scenarios.engine.scripts import SCRIPTS
from tests.simulation.scenarios.eventual import EVENTUAL
from tests.simulation.scenarios.lake.scenarios import LAKES
from tests.simulation.scenarios.lake.scripts import LAKE_SCRIPTS
from tests.simulation.scenarios.leases import LEASE_SCRIPTS, LEASES
from tests.simulation.scenarios.life import ALONE, FEEDS, INGEST_LIFE, LIFE, MIRRORS
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.life.tails import TAILS
from tests.simulation.scenarios.maps.scenarios import MAPS
from tests.simulation.scenarios.merges import MERGES
from tests.simulation.scenarios.probed import PROBED
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.queries import QUERY_SCRIPTS
from tests.simulation.scenarios.ranges import RANGES
from tests.simulation.scenarios.recreated import RECREATED
from tests.simulation.scenarios.standby import STANDBY, STANDBY_SCRIPTS
from tests.simulation.scenarios.tables.forgotten import FORGOTTEN_MARK
from tests.simulation.scenarios.tables.play import TABLES
from tests.simulation.scenarios.tables.upkeep import UPKEEP
from tests.simulation.scenarios.tiny import TINY
from tests.simulation.scenarios.transactions.scenarios import TRANSACTIONS
from tests.simulation.scenarios.transactions.scripts import READ_BEFORE_A_LOSS
from tests.simulation.scenarios.watches.scenarios import WATCHES

ENGINE_SWITCHES = (
    *SWITCHES,
    *PLACE_SWITCHES,
    *LIFE_SWITCHES,
    *INGEST_SWITCHES,
    *REGION_SWITCHES,
    *OUTAGE_SWITCHES,
    *STANDBY_SWITCHES,
    *TRANSACTION_SWITCHES,
    *WATCH_SWITCHES,
    *MAP_SWITCHES,
    *MERGE_SWITCHES,
    *RANGE_SWITCHES,
)
"""Of the rules in ``docs/design/protocol-rules.md``."""
ALL_SWITCHES = (*ENGINE_SWITCHES, *COLLECTION_SWITCHES, *TABLE_SWITCHES)
_RULES = [scenario for switch in ALL_SWITCHES for scenario in switch.scenarios()]
_ENGINE_SCRIPTS = (*SCRIPTS, *PLACES, *OUTAGES, *LIFE_SCRIPTS, *TAILS, *STANDBY_SCRIPTS, *LEASE_SCRIPTS, *QUERY_SCRIPTS)
_SCRIPTS = (*_ENGINE_SCRIPTS, *LAKE_SCRIPTS)
_LIVES = (*LIFE, *INGEST_LIFE, *FEEDS, *MIRRORS, *ALONE)
_ALL = (
    *TINY,
    *EVENTUAL,
    RECREATED,
    PROBED,
    *ENGINE,
    *INGEST,
    *LEASES,
    *COLLECTIONS,
    *LAKES,
    *_LIVES,
    *STANDBY,
    *TRANSACTIONS,
    READ_BEFORE_A_LOSS,
    *MERGES,
    *RANGES,
    *TABLES,
    FORGOTTEN_MARK,
    *UPKEEP,
    *WATCHES,
    *MAPS,
    DUEL,
    *_SCRIPTS,
    *_RULES,
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""In the order ``scripts/simulate --list`` shows them."""
