"""Interleavings of readers, checkpoints and destroyers that chance finds too rarely (see `engine.scripts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import slate_async as slate
from slate_async.errors import InvalidError
from slate_async.storage.log.names import PREFIX, contiguous_key
from slate_async.storage.sst.names import SST_PREFIX
from tests.simulation.checkers import Violation
from tests.simulation.history import History, Kind
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.engine.ingester import Ingester
from tests.simulation.scenarios.engine.play import world_of
from tests.simulation.scenarios.engine.rows import record_view
from tests.simulation.scenarios.engine.scripts import NO_WAL, SOON_SECONDS, behind_a_stale_fence
from tests.simulation.scenarios.engine.stage import CALM, Stage, summary_of
from tests.simulation.scenarios.life.consumed import Consumed, check_consumed
from tests.simulation.scenarios.life.consumers import finish, pull
from tests.simulation.scenarios.life.estate import Estate, rows_of
from tests.simulation.scenarios.life.keepers import Keeper
from tests.simulation.scenarios.life.params import draw_life
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

STEPS = 6
"""Of a consumer, until it has all there is."""


class LifeStage(Stage):
    """A stage with all that a life has."""

    def __init__(self, estate: Estate) -> None:
        super().__init__(estate.source)
        self.estate = estate

    async def compact_all(self, node: Node) -> None:
        """Everything into one run, by a process that is the compactor for as long as that takes."""

        async def work() -> None:
            async with self.estate.compactor(node, self.database) as compactor:
                await compactor.compact(full=True)

        await node.run(work())

    async def collect_all(self, node: Node) -> None:
        """All garbage there is."""

        async def work() -> None:
            async with self.estate.collector(node, self.database) as collector:
                for _ in range(3):
                    await collector.collect()

        await node.run(work())


async def stale_ids(stage: LifeStage) -> None:
    """An opener's fence lands at an id that was compacted and collected, where a reader looks."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    node = stage.world.node("reader")

    async def read() -> None:
        async with stage.estate.reader(node, stage.database, pin=False) as reader:

            async def poll() -> None:
                await node.run(reader.refresh())

            async def look() -> None:
                rows = await node.run(rows_of(reader))
                record_view(stage.database.history, node.name, Kind.DURABLE, rows)

            await behind_a_stale_fence(stage, owner, poll, look)

    await node.run(read())


async def stale_ids_feed(stage: LifeStage) -> None:
    """An opener's fence lands at an id that was compacted and collected, where a feed that retains nothing reads."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    node, consumed = stage.world.node("consumer"), Consumed(None, pin=False)
    stage.estate.consumers.append(consumed)

    async def read() -> None:
        async with stage.estate.reader(node, stage.database, pin=False) as reader, reader.changes() as feed:

            async def poll() -> None:
                if not consumed.turn:
                    await node.run(some(feed))

            await behind_a_stale_fence(stage, owner, poll, poll)

    async def some(feed: slate.ChangeFeed) -> None:
        try:
            await pull(stage.estate, node, consumed, 0, feed, STEPS)
        except InvalidError:  # what comes next was compacted: it begins anew, in the end
            consumed.forget()
            consumed.turn += 1

    await node.run(read())


async def skipped_log(stage: LifeStage) -> None:
    """A reader sleeps while the log behind what it has read is compacted, tombstones and all."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(2, 6))
    node, helper = stage.world.node("reader"), stage.world.node("helper")

    async def read() -> None:
        async with stage.estate.reader(node, stage.database, pin=stage.rng.random() < 0.5) as reader:
            await reader.refresh()
            asleep.set()
            await awake.wait()
            await reader.refresh()
            rows = await rows_of(reader)
            record_view(stage.database.history, node.name, Kind.DURABLE, rows)

    asleep, awake = asyncio.Event(), asyncio.Event()
    reading = node.spawn(read())
    await asleep.wait()
    node.freeze()
    await stage.write(owner, stage.rng.randint(3, 8))
    if stage.rng.random() < 0.5:
        await owner.node.run(owner.flush_l0())
    await stage.compact_all(helper)
    awake.set()
    node.thaw()
    await node.join(reading)


async def ingest_followed(stage: LifeStage) -> None:
    """A reader looks while it goes over to a manifest that has an ingest, and there are log rows that follow that."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    node, driver = stage.world.node("reader"), stage.world.node("driver")
    ingester = Ingester(stage.database, driver)

    async def ingest() -> None:
        write = ingester.begin()
        info = await ingester.run(write, f"ingest/{write.id}")
        write.seq = info.seq
        stage.database.history.ack(write)

    async def look(reader: slate.DbReader) -> None:
        record_view(stage.database.history, node.name, Kind.DURABLE, await rows_of(reader))

    async def read() -> None:
        async with stage.estate.reader(node, stage.database) as reader:
            await reader.refresh()
            opened.set()
            await applied.wait()
            pin = stage.hold(node, "manifest-commit")
            refreshing = asyncio.ensure_future(reader.refresh())
            await pin.caught()
            await look(reader)
            pin.release()
            await refreshing
            await look(reader)

    opened, applied = asyncio.Event(), asyncio.Event()
    reading = node.spawn(read())
    await opened.wait()
    ingesting = driver.spawn(ingest())
    while not ingesting.done():
        await owner.node.run(owner.db.confirm())  # it finds what waits for it
        await asyncio.sleep(SOON_SECONDS)
    await driver.join(ingesting)
    await stage.write(owner, stage.rng.randint(1, 4))
    applied.set()
    await node.join(reading)


async def gap_under_a_checkpoint(stage: LifeStage) -> None:
    """A checkpoint is made and read while a log object is on its way behind which others have landed."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(0, 3))
    stuck = stage.hold(owner.node, "put-create", contiguous_key(owner.db.status().log_end + 1))
    for _ in range(6):
        stage.begin(owner.node, owner.write())
    await stuck.caught()
    await asyncio.sleep(SOON_SECONDS)
    node = stage.world.node("keeper")
    keeper = Keeper(stage.estate, stage.database, node)
    await node.run(keeper.create())
    if crashes := stage.rng.random() < 0.5:
        owner.node.crash()
    stuck.release()
    await asyncio.sleep(SOON_SECONDS)
    if crashes:
        await stage.write(await stage.writer("successor"), stage.rng.randint(1, 3))
    await node.run(keeper.read())


async def copied_checkpoint(stage: LifeStage) -> None:
    """A checkpoint goes, and its version is collected, while another one is made of it."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    maker, copier, helper = (stage.world.node(name) for name in ("maker", "copier", "helper"))

    async def create(source: object = None) -> Any:
        async with stage.estate.admin(maker if source is None else copier, stage.database) as admin:
            return (await admin.checkpoints.create(source=source)).id  # type: ignore[arg-type]

    first = await maker.run(create())
    commit = stage.hold(copier, "manifest-commit")
    copying = copier.spawn(create(first))
    await commit.caught()

    async def delete() -> None:
        async with stage.estate.admin(maker, stage.database) as admin:
            await admin.checkpoints.delete(first)

    await maker.run(delete())
    await stage.write(owner, stage.rng.randint(1, 3))
    await owner.node.run(owner.flush_l0())
    await stage.collect_all(helper)
    commit.release()
    try:
        await copier.join(copying)
    except InvalidError:
        stage.database.count("refused-copies")
    await stage.collect_all(helper)


async def remade(stage: LifeStage) -> None:
    """A database is destroyed and recreated while a log object of its old writer is on its way."""
    first = await stage.writer("first")
    await stage.write(first, stage.rng.randint(1, 4))
    put = stage.hold(first.node, "put-", PREFIX)
    late = first.node.spawn(first.db.put(b"late", b"late"))
    await put.caught()
    first.node.freeze()
    destroyer = stage.world.node("destroyer")

    async def destroy() -> None:
        async with stage.estate.admin(destroyer, stage.database) as admin:
            await admin.destroy()

    await destroyer.run(destroy())
    stage.database.history = History(stage.world.loop.time)
    second = await stage.writer("second")
    await stage.write(second, stage.rng.randint(0, 2))
    put.release()
    first.node.thaw()
    await stage.write(second, stage.rng.randint(2, 6))
    await asyncio.sleep(SOON_SECONDS)
    if late.done() and late.exception() is None:
        raise Violation("lost", "a write was acknowledged after its database was destroyed")


async def taken_whole(stage: LifeStage) -> None:
    """Rows of rising keys come while a compaction takes a whole level, and nobody waits for that any more."""
    owner = await stage.writer("owner")
    keys = [b"rising %d" % number for number in range(6)]

    async def add(key: bytes) -> None:
        await owner.db.put(key, b"")
        await owner.db.flush(l0=True)

    for key in keys[:2]:
        await owner.node.run(add(key))
        await asyncio.sleep(SOON_SECONDS)
    output = stage.hold(owner.node, "put-", SST_PREFIX)
    compacting = owner.node.spawn(owner.db.compact(full=True))
    await output.caught()
    compacting.cancel()
    for key in keys[2:]:
        await owner.node.run(add(key))
        await asyncio.sleep(SOON_SECONDS)
    output.release()
    await asyncio.sleep(SOON_SECONDS)
    for key in keys:
        if await owner.node.run(owner.db.get(key)) is None:
            raise Violation("lost", f"{key!r} is gone")
        await owner.node.run(owner.db.delete(key))
    await owner.node.run(owner.db.compact(full=True))


_CALM = {**CALM, "min_age_ms": 0, "embedded": False, "clones": 1, "retention_ms": 0, "width": 4}


def scripted(
    name: str, script: Callable[[LifeStage], Coroutine[Any, Any, None]], *, by_hand: bool = False, **fixed: Any
) -> Scenario:
    """As `engine.stage.scripted`, with all that a life has. ``by_hand``: it deletes what the eyes see needed."""
    chosen = {**_CALM, **fixed}

    def make(seed: int, keep_trace: bool) -> World:
        return world_of(seed, keep_trace, draw_life(derived_rng(seed, "params"), chosen))

    async def play(world: World) -> Stats:
        stage = LifeStage(Estate(world, draw_life(derived_rng(world.seed, "params"), chosen)))
        await stage.database.create()
        await script(stage)
        stats = await stage.end()
        for consumed in stage.estate.consumers:
            node = world.node("caretaker")
            await node.run(finish(stage.estate, stage.database, node, consumed))
            check_consumed(stage.database.history, consumed, "the consumer")
        if not by_hand:
            stage.estate.check()
        return stats

    return Scenario(f"script-{name}", summary_of(script), make, play)


LIFE_SCRIPTS: Sequence[Scenario] = (
    scripted("stale-ids-reader", stale_ids, by_hand=True, **NO_WAL),
    scripted("stale-ids-feed", stale_ids_feed, by_hand=True, **NO_WAL),
    scripted("skipped-log", skipped_log, wal=False),
    scripted("gap-under-a-checkpoint", gap_under_a_checkpoint, protocol="contiguous"),
    scripted("ingest-followed", ingest_followed, metadata="server"),
    scripted("copied-checkpoint", copied_checkpoint, metadata="server"),
    scripted("remade", remade, protocol="contiguous"),
    scripted("taken-whole", taken_whole, style="leveled", width=2, embedded=True, wal=True, metadata="server"),
)
