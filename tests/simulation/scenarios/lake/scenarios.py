"""The scenarios ``collections-…`` over the product's roles."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.collections.codec.life import Appends
from tests.simulation.scenarios.lake.await_lives import AWAIT_LIVES
from tests.simulation.scenarios.lake.await_relays import AWAIT_RELAYS
from tests.simulation.scenarios.lake.await_services import AWAIT_SERVICES
from tests.simulation.scenarios.lake.awaits import AWAITS
from tests.simulation.scenarios.lake.lives import LIVES
from tests.simulation.scenarios.lake.play import lake_scenario
from tests.simulation.scenarios.lake.relays import RELAYS
from tests.simulation.scenarios.lake.services import SERVED, SERVED_CALMLY
from tests.simulation.scenarios.protocol import Scenario

LAKES: Sequence[Scenario] = (
    lake_scenario(
        "collections-writers",
        "the product's writers, several of one name and of others, beside its controllers and a reader: all faults",
        names=2,
        copies=2,
        readers=1,
        listeners=0,
    ),
    lake_scenario(
        "collections-readers",
        "the product's readers and listeners beside its writers and controllers: all faults",
        readers=2,
        listeners=1,
        near=2,
    ),
    lake_scenario(
        "collections-lending",
        "reads that one process plans, and others do under the hold that it lent, or adopt: all faults",
        readers=0,
        listeners=0,
        lenders=2,
        workers=2,
    ),
    lake_scenario(
        "collections-controllers",
        "controllers of the product that take the role from each other, by themselves and when asked: all faults",
        controllers=3,
        readers=1,
        listeners=1,
    ),
    lake_scenario(
        "collections-pipelined",
        "appends in flight at once, acknowledged in order, cancelled: all faults",
        appends=Appends.DEFINITE,
        parallelism=5,
        crashes=0.5,
        readers=1,
    ),
    lake_scenario(
        "collections-parts",
        "large batches in parts, whose writers die between parts and index: all faults",
        part_bytes=100,
        crashes=0.5,
    ),
    SERVED,
    SERVED_CALMLY,
    LIVES,
    AWAITS,
    AWAIT_LIVES,
    RELAYS,
    AWAIT_RELAYS,
    AWAIT_SERVICES,
)
