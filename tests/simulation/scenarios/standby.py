"""Standbys: several processes of which one writes and the others wait for its end; they write, close, die and freeze.

``standby``: all faults; a writer that is called dead may only be frozen, and wakes as a zombie. ``standby-calm``: no
trouble, so nobody is ever fenced: each hands over by closing. ``standby-slept``: a standby that stood still finds an
old beat, and must not take over from a writer that lives. ``standby-frozen-writer``: one that takes over from one that
wakes. ``standby-outage``: the store goes away from writer or standby. ``standby-outage-taking-over``: while it takes
over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import slate_async as slate
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.log.names import PREFIX
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind
from tests.simulation.loop import SimTask
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.outages import away
from tests.simulation.scenarios.engine.play import Play, play_scenario
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.engine.workload import Session, check_quiet
from tests.simulation.scenarios.protocol import Scenario, Stats

HEARTBEAT_MS = 400
HEARTBEAT_S = HEARTBEAT_MS / 1000
BOUND_HEARTBEATS = 12
"""Three beats missed, looks between them, a slow poll, and the opening."""
TROUBLED: Mapping[str, Any] = {"ack": "committed", "writers": 4, "lives": 2, "active_seconds": 12.0, "rounds": 12}
HANDED_OVER: Mapping[str, Any] = {
    "ack": "committed",
    "writers": 4,
    "lives": 1,
    "rounds": 4,
    "active_seconds": 12.0,
    "faults": 0.0,
    "crashes": 0.0,
    "freezes": 0.0,
    "same_instant": True,
    "create_by_writers": True,
    "compactors": 0,
    "metadata": "server",
}


class StandbySession(Session):
    """A `Session` whose database is opened once nobody else writes it."""

    async def _opened(self) -> slate.Db:
        database, node = self.database, self.node
        settings = database.params.settings(self.rng, self._poll_ms).replace(heartbeat_interval_ms=HEARTBEAT_MS)
        return await on(node.runtime).open(
            database.store(node),
            name=database.name,
            metastore=database.factory(node),
            settings=settings,
            standby=True,
        )


async def stand_by(database: SimulatedDatabase, node: Node) -> None:
    """Wait, write for a while, then hand over, or stay."""
    session = StandbySession(database, node)
    opening = asyncio.create_task(session.open(), name="standing by")
    while not opening.done():
        await asyncio.wait([opening], timeout=0.5)
        if database.over and not opening.done():
            opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    if opening.cancelled() or not opening.result():
        if session.is_open:  # it was cancelled at its first look
            await session.close()
        check_quiet(node)
        return
    database.count("took-over" if session.epoch > 1 else "was-first")
    await session.work(database.params.rounds)
    session.check_end()
    if session.db.status().state == "fenced" and not database.over:
        database.count("fenced")
    if node.rng.random() < 0.9 or database.over:
        await session.close()
        check_quiet(node)
    else:
        await session.db.wait_closed()


class StandbyPlay(Play):
    """`Play` whose writers are standbys."""

    act = staticmethod(stand_by)

    def _stats(self) -> Stats:
        counts = super()._stats()
        params = self.database.params
        if not (params.faults or params.crashes or params.freezes) and counts.get("fenced"):
            raise Violation("needless", "a writer that lived was fenced by a standby")
        return counts


async def slept(stage: Stage) -> None:
    """A machine sleeps for many heartbeats with a writer and a standby, which wakes with an old beat before its eyes"""
    writer, standby, opening = await _pair(stage)
    await asyncio.sleep(stage.rng.uniform(0, 2 * HEARTBEAT_S))
    for candidate in (standby, writer):
        candidate.node.freeze()
    await asyncio.sleep(stage.rng.uniform(4, 20) * HEARTBEAT_S)
    beat = stage.hold(writer.node, "put", ALIVE_KEY)
    for candidate in (standby, writer):
        candidate.node.thaw()
    await asyncio.sleep(HEARTBEAT_S)
    beat.release()
    await asyncio.sleep(5 * HEARTBEAT_S)
    if opening.done() or not await writer.node.run(writer.look(Kind.DURABLE)):
        raise Violation("needless", "a writer that lives was called dead")
    await stage.write(writer, 2)
    await writer.node.run(writer.close())
    await _took_over(stage, standby, opening)


async def frozen_writer(stage: Stage) -> None:
    """A writer stands still with log objects on their way; a standby takes over; the writer wakes, and they land"""
    writer, standby, opening = await _pair(stage)
    await stage.write(writer, stage.rng.randint(1, 3))
    put = stage.hold(writer.node, "put", PREFIX)
    writing = stage.begin(writer.node, writer.work(stage.rng.randint(2, 6)))
    await asyncio.sleep(stage.rng.uniform(0, HEARTBEAT_S))
    writer.node.freeze()
    await _took_over(stage, standby, opening)
    put.release()
    writer.node.thaw()
    await writer.node.join(writing)
    await stage.write(standby, 2)
    if not await standby.node.run(standby.look(Kind.DURABLE)):
        raise Violation("needless", "a writer was undone by the one that it took over from")


async def outage(stage: Stage) -> None:
    """The store goes away from a writer, its standby or both; the standby goes on, and fences no writer that lives"""
    writer, standby, opening = await _pair(stage)
    await stage.write(writer, stage.rng.randint(1, 3))
    both = (writer, standby)
    cut_off = stage.rng.choice(((standby,), (writer,), both, both))
    with away(stage, *cut_off, landing=stage.rng.random() < 0.5):
        working = stage.begin(writer.node, writer.work(stage.rng.randint(2, 6)))
        await asyncio.sleep(stage.rng.uniform(0, 40) * HEARTBEAT_S)
    await writer.node.join(working)
    await asyncio.sleep(stage.rng.uniform(0, 6) * HEARTBEAT_S)
    if standby in cut_off and (opening.done() or writer.has_ended):
        raise Violation("needless", "a writer that lives was called dead by a standby that was cut off, too")
    await writer.node.run(writer.close())
    await _took_over(stage, standby, opening)


async def outage_taking_over(stage: Stage) -> None:
    """The store goes away from a standby while it takes over, which it then does when the store is back"""
    writer, standby, opening = await _pair(stage)
    await stage.write(writer, stage.rng.randint(1, 3))
    await writer.node.run(writer.close())
    await asyncio.sleep(stage.rng.uniform(0, 0.6))
    if not opening.done():
        with away(stage, standby):
            await asyncio.sleep(stage.rng.uniform(0, 100))
    await _took_over(stage, standby, opening)


async def _pair(stage: Stage) -> tuple[Session, Session, SimTask]:
    """A writer, and a standby that has looked at it."""
    writer, standby = (StandbySession(stage.database, stage.world.node(name)) for name in ("writer", "standby"))
    if not await writer.node.run(writer.open()):
        raise Violation("stuck", "the first writer could not open a calm database")
    opening = standby.node.spawn(standby.open())
    await asyncio.sleep(2 * HEARTBEAT_S)
    return writer, standby, opening


async def _took_over(stage: Stage, standby: Session, opening: SimTask) -> None:
    """The standby writes; within a few heartbeats."""
    try:
        async with asyncio.timeout(BOUND_HEARTBEATS * HEARTBEAT_S):
            opened = await standby.node.join(opening)
    except TimeoutError as error:
        raise Violation("stuck", "the standby did not take over") from error
    if not opened:
        raise Violation("stuck", "the standby could not open a calm database")
    await stage.write(standby, 2)


STANDBY: Sequence[Scenario] = (
    play_scenario("standby", "standbys wait for one another; all faults", TROUBLED, StandbyPlay),
    play_scenario(
        "standby-calm", "standbys hand over to one another; no faults, so nobody is fenced", HANDED_OVER, StandbyPlay
    ),
)
STANDBY_SCRIPTS: Sequence[Scenario] = (
    scripted("standby-slept", slept),
    scripted("standby-frozen-writer", frozen_writer),
    scripted("standby-outage", outage),
    scripted("standby-outage-taking-over", outage_taking_over),
)
