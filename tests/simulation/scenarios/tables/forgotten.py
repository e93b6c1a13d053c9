"""A script: the mark of a commit that had no answer is forgotten before its writer looks again (rule T2).

A writer's commit is in, and the answer gets lost. While it is about to look, others commit, and as many marks are kept
as there are of them. The writer may append again only what it knows not to be in.
"""

from __future__ import annotations

from unittest import mock

import pyarrow as pa

from slate_async.errors import SlateError
from slate_async.settings import Settings
from slate_async.tables.catalog import Catalog
from slate_async.tables.core import marks
from slate_async.tables.open import open_catalog
from slate_async.tables.table import Table
from tests.simulation.faults import NO_FAULTS, Fault, Rule
from tests.simulation.node import Node
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tables.ledger import Append, Ledger
from tests.simulation.scenarios.tiny import tiny_world
from tests.simulation.world import World

SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False)])
SHOP = "shop"
OTHERS = 2
"""As many marks are kept."""


async def play(world: World) -> Stats:
    """The script."""
    ledger = Ledger()
    with mock.patch.object(marks, "MAX_MARKS", OTHERS):
        creator, slow = world.node("creator"), world.node("slow")
        await creator.run(_create(world, creator))
        table = await slow.run(_table(world, slow))
        await slow.run(_append(table, ledger.new(1)))
        world.rule(
            Rule(lambda who, sent, _: who == slow.name and sent.startswith("manifest-commit"), Fault.LOST_RESPONSE)
        )
        look = Hold(world, slow, "manifest-latest")
        append = ledger.new(world.rng.randint(1, 3))
        appending = slow.spawn(_append(table, append))
        await look.caught()
        for number in range(OTHERS):
            other = world.node(f"other{number}")
            await other.run(_append(await other.run(_table(world, other)), ledger.new(1)))
        look.release()
        await slow.join(appending)
        ledger.count("acknowledged" if append.acknowledged else "unknown")
        observer = world.node("observer")
        await observer.run(_judge(await observer.run(_table(world, observer)), ledger))
    return {"appends": len(ledger.appends), **ledger.counts}


async def _catalog(world: World, node: Node) -> Catalog:
    settings = Settings(retry_deadline_ms=3_000, request_timeout_ms=1_000)
    factory = world.cloud.metastore(node)
    return await open_catalog(
        world.cloud.objects(node), name="memory://lake", metastore=factory, settings=settings, runtime=node.runtime
    )


async def _create(world: World, node: Node) -> None:
    catalog = await _catalog(world, node)
    await catalog.create_database(SHOP)
    await catalog.create_table(SHOP, "rows", SCHEMA)


async def _table(world: World, node: Node) -> Table:
    return await (await _catalog(world, node)).table(SHOP, "rows")


async def _append(table: Table, append: Append) -> None:
    try:
        await table.append(pa.table({"row": list(append.rows)}, SCHEMA))
    except SlateError as error:
        append.refused = error.outcome == "not_applied"
    else:
        append.acknowledged = True


async def _judge(table: Table, ledger: Ledger) -> None:
    found = (await table.scan().read()).column("row").to_pylist()
    ledger.seen("final", found, ledger.acknowledged(), ledger.deleted, final=True)


FORGOTTEN_MARK = Scenario(
    "script-tables-forgotten-mark",
    "a commit without an answer, whose mark is forgotten before its writer looks again",
    lambda seed, keep: tiny_world(seed, keep, NO_FAULTS),
    play,
)
