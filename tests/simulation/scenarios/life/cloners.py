"""Cloners: clone the source, work on the clones, and destroy them. Any number of processes do each, and die
anywhere."""

from __future__ import annotations

import asyncio

from slate_async.errors import InvalidError
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import record_view
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.life.beside import CALM, nap, writes_of
from tests.simulation.scenarios.life.estate import EXPECTED, Clone, Estate, lasting, rows_of

WRITES = 6
SHORT_PATIENCE_SECONDS = 1.2
"""Of the process that makes a clone to be left unfinished; it may be done before."""


async def clone(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """Go on with any of the clones: make it, write to it, compact it, destroy it."""
    for _ in database.turns(CALM):
        await nap(node, 0.5)
        chosen = node.rng.choice(estate.clones)
        try:
            if not chosen.made:
                if not chosen.begun:
                    chosen.left = estate.params.impatient and node.rng.random() < 0.5
                elif chosen.left and node.rng.random() < 0.8:
                    continue
                await make(estate, chosen, node)
            elif not chosen.ended:
                step = node.rng.choices((_write, _shrink, destroy), (0.5, 0.35, 0.15))[0]
                await step(estate, chosen, node)
        except EXPECTED:
            estate.count("cloners-failed")


async def make(estate: Estate, chosen: Clone, node: Node) -> None:
    """Make it, or go on making it, and see what it holds."""
    database = estate.source
    if not chosen.begun:
        chosen.begun = True
        chosen.acked = estate.acknowledged()
        kept = [promise for promise in estate.kept.values() if promise.promised(node) and promise.rows is not None]
        if kept and node.rng.random() < 0.4:
            chosen.source = node.rng.choice(kept)
    source = chosen.source
    end = None if source is None else source.expire_ms
    patience = node.rng.uniform(0, SHORT_PATIENCE_SECONDS) if chosen.left else None
    try:
        async with estate.admin(node, database) as admin, asyncio.timeout(patience):
            await admin.clone(chosen.database.name, checkpoint=None if source is None else source.id)
    except TimeoutError:
        return
    except InvalidError:
        if chosen.made:
            return  # by another process, and the clone needs its source no longer
        if estate.is_abandoned(chosen):
            estate.count("clones-abandoned")
        elif not chosen.doomed and (source is None or source.promised(node, end)):
            raise
        # by itself, as the checkpoint was deleted before it was pinned; or by a collector, as it took too long
        chosen.doomed = chosen.ended = chosen.made = True
        return
    if not chosen.made:
        chosen.made = True
        estate.count("clones")


async def see(estate: Estate, chosen: Clone, node: Node) -> None:
    """Compare what it holds with its source, if nobody has written to it yet."""
    async with estate.reader(node, chosen.database, pin=False) as reader:
        rows = await rows_of(reader)
    if chosen.database.history.writes or chosen.base is not None:
        return
    chosen.base = rows
    record_view(estate.source.history, node.name, Kind.DURABLE, rows)
    source = chosen.source
    if source is not None and lasting(rows) != lasting(source.rows or []):
        raise Violation("clone", f"{chosen.database.name} holds {rows}, its source {source.rows}")
    missing = {write.id for write in chosen.acked}.difference(writes_of(rows))
    if source is None and missing:
        raise Violation("clone", f"{chosen.database.name} misses writes {sorted(missing)}, acknowledged before it")


async def _write(estate: Estate, chosen: Clone, node: Node) -> None:
    """Be its writer for a while."""
    session = Session(chosen.database, node)
    try:
        if chosen.base is None:
            await see(estate, chosen, node)
        if chosen.base is None or not await session.open():
            return
    except InvalidError:
        _check_doomed(chosen)
        return
    await session.work(WRITES)
    session.check_end()
    await session.close()


async def _shrink(estate: Estate, chosen: Clone, node: Node) -> None:
    """Compact it whole, so that it needs its source no longer, and collect its garbage."""
    try:
        async with estate.compactor(node, chosen.database) as compactor:
            await compactor.compact(full=True)
        async with estate.collector(node, chosen.database) as collector:
            estate.count("detached", (await collector.collect()).detached)
    except InvalidError:
        _check_doomed(chosen)


async def destroy(estate: Estate, chosen: Clone, node: Node) -> None:
    """Destroy it, or go on with that."""
    chosen.doomed = True
    async with estate.admin(node, chosen.database) as admin:
        await admin.destroy()
    chosen.ended = True
    estate.count("clones-destroyed")


def _check_doomed(chosen: Clone) -> None:
    if not chosen.doomed:
        raise Violation("clone", f"{chosen.database.name} was refused, though nobody destroyed it")
