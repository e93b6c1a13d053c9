"""Processes that change a database: real edits, the real commit driver, made-up SSTs. Each may die at any step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from slate_async.engine.gc.sweeper import Limits, Sweeper
from slate_async.errors import ConflictError, FencedError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import CREATE, ObjectExistsError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log.names import contiguous_key
from slate_async.storage.manifest.compaction_inputs import Inputs
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints, RefreshCheckpoint
from slate_async.storage.manifest.edits.compactions import (
    ClaimCompactor,
    CommitCompaction,
    FinishRange,
    RegisterCompaction,
)
from slate_async.storage.manifest.edits.writer import AddL0, ClaimWriter
from slate_async.storage.manifest.state import Compaction, ManifestState, RangeOutput, SstRef
from slate_async.storage.sst.names import sst_key
from tests.engine import ManualClock
from tests.property.gc.oracle import FENCE, SEGMENT, Oracle, driver_of
from tests.property.gc.turnstile import GatedStore

KEYS = ((b"a", b"l"), (b"m", b"z"))
MIN_AGE_MS = 2_000
SKEW_MS = 100
STALLED_MS = 3_000


class Died(Exception):
    """The process ended here."""


@dataclass
class World:
    """What all actors share."""

    store: GatedStore
    oracle: Oracle
    runtime: Runtime
    clock: ManualClock
    random: random.Random
    deaths: bool = True

    def driver(self) -> ManifestDriver:
        return driver_of(self.store, self.runtime)

    def risk(self) -> None:
        """A place to die at; time passes."""
        self.clock.wall_ms += self.random.randint(0, 200)
        if self.deaths and self.random.random() < 0.04:
            raise Died

    async def created(self, log_id: int, data: bytes) -> bool:
        """Put a log object unless one is there."""
        try:
            await self.store.put(contiguous_key(log_id), data, mode=CREATE)
        except ObjectExistsError:
            return False
        return True

    async def put_sst(self, base: int, keys: tuple[bytes, bytes], seqs: tuple[int, int]) -> SstRef:
        object_id = self.runtime.ids.ulid(self.clock.now_ms())
        location = sst_key(base, object_id)
        await self.store.put(location, b"sst")
        self.risk()
        return SstRef(location, object_id, 3, 1, 0, *keys, *seqs, writer_epoch=1)


async def living(world: World, life: Callable[[World], object], lives: int) -> None:
    """``life`` again and again, whatever ended the last one."""
    for _ in range(lives):
        try:
            await life(world)  # type: ignore[misc]
        except (Died, FencedError, UnavailableError):
            continue


async def writer(world: World) -> None:
    """Claims, fences, then flushes: log objects, an SST, an edit that moves the log's start past them."""
    driver = world.driver()
    state = await driver.commit(ClaimWriter(world.runtime.ids.token(), 1))
    end, seq = state.log_start, state.last_seq
    while not await world.created(end, FENCE):
        end += 1
    for _ in range(world.random.randint(1, 4)):
        for _ in range(world.random.randint(1, 3)):
            if not await world.created(end + 1, SEGMENT):
                raise FencedError("met a newer writer's object")
            end += 1
            world.risk()
        seq += 10
        state = await flush(world, driver, state, state.writer_epoch, end, (seq - 9, seq))


async def flush(
    world: World, driver: ManifestDriver, state: ManifestState, epoch: int, end: int, seqs: tuple[int, int]
) -> ManifestState:
    for _ in range(10):
        sst = await world.put_sst(state.version, (b"a", b"z"), seqs)
        edit = AddL0(epoch, state.log_start, end, sst, seqs[1], 0, epoch, base_version=state.version)
        try:
            return await driver.commit(edit)
        except ConflictError:
            head = await driver.load()
            assert head is not None
            if head.writer_epoch != epoch:
                raise FencedError("taken over") from None
            state = head
    raise AssertionError("refused over and over")


async def compactor(world: World) -> None:
    """Claims, goes on with what an earlier one left, then compacts all of L0 and the newest runs."""
    driver = world.driver()
    state = await driver.commit(ClaimCompactor(world.runtime.ids.token()))
    epoch = state.compactor_epoch
    for left in state.compactions:
        await finish(world, driver, left)
    for _ in range(world.random.randint(1, 3)):
        head = await driver.load()
        assert head is not None
        runs = tuple(run.id for run in head.runs[: world.random.randint(0, 2)])
        if not head.l0 and len(runs) < 2:
            continue
        l0 = tuple(sst.object_id for sst in head.l0)
        one = Compaction(
            world.runtime.ids.uuid(),
            epoch,
            head.version,
            0,
            0,
            False,
            l0,
            runs,
            head.last_run_id + 1,
            0,
            bounds=(b"m",),
        )
        try:
            await finish(world, driver, next(iter_registered(await driver.commit(RegisterCompaction(one)), one.id)))
        except ConflictError:
            continue


async def dead_compactor(world: World) -> None:
    """Registers a compaction of all there is, finishes a part of it, and dies; nobody else compacts from then on."""
    driver = world.driver()
    state = await driver.commit(ClaimCompactor(world.runtime.ids.token()))
    if state.compactions or not (state.l0 or state.runs):
        return  # what an earlier one left will do
    runs, l0 = tuple(run.id for run in state.runs), tuple(sst.object_id for sst in state.l0)
    one = Compaction(
        world.runtime.ids.uuid(),
        state.compactor_epoch,
        state.version,
        0,
        0,
        True,
        l0,
        runs,
        state.last_run_id + 1,
        0,
        bounds=(b"m",),
    )
    await driver.commit(RegisterCompaction(one))
    output = RangeOutput(0, (await world.put_sst(one.base_version, KEYS[0], (1, 1)),))
    await driver.commit(FinishRange(one.epoch, one.id, output))


def iter_registered(state: ManifestState, compaction_id: UUID):  # type: ignore[no-untyped-def]
    return (compaction for compaction in state.compactions if compaction.id == compaction_id)


async def finish(world: World, driver: ManifestDriver, one: Compaction) -> None:
    done = {part.index for part in one.finished}
    outputs = []
    for index, keys in enumerate(KEYS):
        if index in done:
            continue
        output = RangeOutput(index, (await world.put_sst(one.base_version, keys, (1, 1)),))
        outputs.append(output)
        if world.random.random() < 0.5:
            await driver.commit(FinishRange(one.epoch, one.id, output))
            world.risk()
    committed = await driver.commit(CommitCompaction(one.epoch, one.id, tuple(outputs)))
    assert Inputs.of(one).find(committed) is None, "told of a commit that never was"


async def checkpointer(world: World) -> None:
    """Makes, lengthens, copies and removes checkpoints, some of which do not exist any more; many expire by
    themselves."""
    driver = world.driver()
    known: dict[UUID, None] = {}
    for _ in range(world.random.randint(3, 8)):
        now = world.clock.now_ms()
        expire = world.random.choice([None, now + 300, now + 3_000])
        head = await driver.load()
        assert head is not None
        known |= dict.fromkeys(checkpoint.id for checkpoint in head.checkpoints)
        ids = world.runtime.ids
        log_end = world.random.choice([None, head.log_last_seen])
        edits = [CreateCheckpoint(ids.uuid(), "user", now, expire, log_end=log_end)]
        if known:
            source = world.random.choice(list(known))
            edits += [
                CreateCheckpoint(ids.uuid(), "user", now, expire, source=source),
                RefreshCheckpoint(source, now, expire),  # type: ignore[list-item]
                DeleteCheckpoints(frozenset({source})),  # type: ignore[list-item]
            ]
        try:
            await driver.commit(world.random.choice(edits))
        except InvalidError:
            continue  # the source was deleted meanwhile
        world.risk()


async def collector(world: World) -> None:
    """Rounds with various ages; an impatient one takes compactions from compactors that are at work."""
    min_age = world.random.choice([0, 0, MIN_AGE_MS])
    stalled = world.random.choice([0, STALLED_MS, STALLED_MS])
    one = Sweeper(
        world.store,
        world.driver(),
        None,
        world.runtime,
        Limits(min_age, SKEW_MS, max_deletes=world.random.choice([2, 1_000]), stalled_ms=stalled),
    )
    for _ in range(world.random.randint(2, 6)):
        await one.sweep(dry_run=world.random.random() < 0.1)
        world.risk()
