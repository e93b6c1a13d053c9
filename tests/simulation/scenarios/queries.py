"""Streams whose batches two queries count, each from 0 on, because the checkpoint of the first one was lost (rule 30).

``script-query-anew``: a query that dies and comes back, and another one under the same app id, before it, beside it or
after it. What a batch was acknowledged for is there; what was refused is not.

``script-query-forgotten``: two streams of one app id, one after the other, that are counted by hand: the jobs of both
have the same names, and the app is forgotten in between.

``script-query-named``: a stream that is counted by hand, and after it a query under its app id, refused until that is
forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from slate_async.engine.ingest import manage
from slate_async.errors import InvalidError, SlateError
from tests.engine import on
from tests.simulation.history import Write
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.ingester import Ingester, batches_of
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.protocol import Scenario

APP = "orders"
POLL_MS = 200
LIVES = 50


@dataclass(slots=True)
class Query:
    """A query of the stream, through the product's own handle. Its rows and its progress outlive its process, as a
    source and a checkpoint do.

    refused: it was said that another query counts the batches, and stopped
    by_hand: its batches say no query, and its jobs are named by app and number"""

    database: SimulatedDatabase
    name: str
    batches: int
    writes: dict[int, Write] = field(default_factory=dict)
    done: int = 0
    refused: bool = False
    by_hand: bool = False

    async def run(self, node: Node) -> None:
        """Bring what is left, each batch until it is in."""
        while self.done < self.batches and not self.refused:
            write = self.writes.get(self.done) or Ingester(self.database, node).begin()
            self.writes[self.done] = write
            write.refused = False  # it is tried again
            try:
                info = await self._bring(node, write)
            except InvalidError as error:
                if "counts anew" not in str(error):
                    raise
                write.refused = self.refused = True
                self.database.count("queries-refused")
            except SlateError:
                await node.runtime.clock.sleep(0.1)
            else:
                write.seq = info.seq or write.seq
                self.database.history.ack(write)
                self.database.count(f"batches-{info.state}")
                self.done += 1

    async def _bring(self, node: Node, write: Write) -> manage.IngestInfo:
        database = self.database
        async with on(node.runtime).open_ingest(
            database.store(node),
            job_id=f"{APP}/{self.done}" if self.by_hand else f"{APP}/{self.name}/{self.done}",
            name=database.name,
            metastore=database.factory(node),
            settings=database.params.settings(node.rng, None),
        ) as job:
            if (await job.info()).state == "registered":
                await job.write(batches_of(write.id, write.changes))
            await node.runtime.clock.sleep(node.rng.choice((0.0, 0.0, 0.5)))
            batch = (APP, self.done) if self.by_hand else (APP, self.done, self.name)
            return await job.commit(batch=batch, timeout=3.0)


async def query_anew(stage: Stage) -> None:
    """A stream's query begins anew under its old app id, and its batches are refused until the app is forgotten"""
    rng, database = stage.rng, stage.database
    await _maybe_write(stage)
    first, second = (Query(database, name, rng.randint(1, 4)) for name in ("first", "second"))
    begun = asyncio.create_task(_live(stage, first, crashes=rng.randint(0, 2)))
    if rng.random() < 0.5:
        await begun
    else:
        await asyncio.sleep(rng.uniform(0, 2))
    await _live(stage, second, crashes=rng.randint(0, 1))
    await begun
    if second.refused and rng.random() < 0.7:
        await _forget_for(stage, second)


async def query_forgotten(stage: Stage) -> None:
    """A stream that is counted by hand ends, is forgotten, and another one has the names of its app and jobs"""
    rng, database = stage.rng, stage.database
    await _maybe_write(stage)
    for name in ("first", "second"):
        await _live(stage, Query(database, name, rng.randint(1, 4), by_hand=True), crashes=rng.randint(0, 2))
        await _forget(stage)


async def query_named(stage: Stage) -> None:
    """Batches are counted by hand, and then by a query under the same app id, which is refused until it is forgotten"""
    rng, database = stage.rng, stage.database
    await _maybe_write(stage)
    await _live(stage, Query(database, "first", rng.randint(1, 4), by_hand=True), crashes=rng.randint(0, 2))
    second = Query(database, "second", rng.randint(1, 6))
    await _live(stage, second, crashes=rng.randint(0, 1))
    if second.refused:
        await _forget_for(stage, second)


async def _maybe_write(stage: Stage) -> None:
    if stage.rng.random() < 0.5:
        writer = Session(stage.database, stage.world.node("writer"), poll_ms=POLL_MS)
        await writer.node.run(writer.open())


async def _forget(stage: Stage) -> None:
    helper = stage.world.node(f"admin{stage.database.history.next_id}")
    await helper.run(manage.forget_app(stage.database.handle(helper).driver, APP))


async def _forget_for(stage: Stage, query: Query) -> None:
    """Let a query that was refused begin."""
    await _forget(stage)
    query.refused = False
    await _live(stage, query, crashes=0)


async def _live(stage: Stage, query: Query, *, crashes: int) -> None:
    """Its processes, one after another."""
    for life in range(LIVES):
        node = stage.world.node(f"{query.name}{life}-{stage.database.history.next_id}")
        running = node.spawn(query.run(node))
        if life < crashes:
            await asyncio.sleep(stage.rng.uniform(0, 1.5))
            node.crash()
        with suppress(NodeCrashedError):
            await node.join(running)
            return
    raise AssertionError("a process that is not killed ends")


QUERY_SCRIPTS: Sequence[Scenario] = (
    scripted("query-anew", query_anew),
    scripted("query-forgotten", query_forgotten),
    scripted("query-named", query_named),
)
