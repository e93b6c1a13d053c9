"""How many seeds of each ``collections-…`` scenario are run: in a slice, and in all of it, by tests and by
``scripts/simulate --full``.

All together at least `FULL_SEEDS`. A seed of pure decisions is ten histories; a seed of `AWAITS`,
`AWAIT_LIVES`, `AWAIT_RELAYS` or `AWAIT_SERVICES` is one of its pairs, and in full each pair is run once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation.scenarios.collections.scenarios import COLLECTIONS
from tests.simulation.scenarios.lake.await_lives import AWAIT_LIVES, all_life_pairs
from tests.simulation.scenarios.lake.await_relays import AWAIT_RELAYS, all_relay_pairs
from tests.simulation.scenarios.lake.await_services import AWAIT_SERVICES, all_service_pairs
from tests.simulation.scenarios.lake.awaits import AWAITS, all_pairs
from tests.simulation.scenarios.lake.relays import RELAYS
from tests.simulation.scenarios.lake.scenarios import LAKES
from tests.simulation.scenarios.lake.services import SERVED, SERVED_CALMLY

FULL_SEEDS = 20_000


@dataclass(frozen=True, slots=True)
class Amount:
    """Seeds of one scenario. ``full``: found out by a run of its roles, of some."""

    slice: int
    full: Callable[[], int]

    def of(self, full: bool) -> int:
        """So many."""
        return self.full() if full else self.slice


DECISIONS = Amount(16, lambda: 4_000)
ROLES = Amount(10, lambda: 1_000)
PAIRS = Amount(10, lambda: len(all_pairs()))
RELAYED = Amount(4, lambda: 1_000)
RELAY_PAIRS = Amount(4, lambda: len(all_relay_pairs()))
SERVED_SEEDS = Amount(4, lambda: 1_000)
SERVICE_PAIRS = Amount(10, lambda: len(all_service_pairs()))
LIFE_PAIRS = Amount(10, lambda: len(all_life_pairs()))

AMOUNTS: Mapping[str, Amount] = {
    **{scenario.name: DECISIONS for scenario in COLLECTIONS},
    **{scenario.name: ROLES for scenario in LAKES},
    AWAITS.name: PAIRS,
    AWAIT_LIVES.name: LIFE_PAIRS,
    RELAYS.name: RELAYED,
    AWAIT_RELAYS.name: RELAY_PAIRS,
    SERVED.name: SERVED_SEEDS,
    SERVED_CALMLY.name: SERVED_SEEDS,
    AWAIT_SERVICES.name: SERVICE_PAIRS,
}
