"""One world from one seed: it lives, then it is left alone, and looked at."""

from __future__ import annotations

import asyncio
from uuid import UUID

from slate_async.engine.gc.sweeper import Limits, Sweeper
from slate_async.runtime.protocol import Runtime
from slate_async.storage.manifest.state import ManifestState
from tests.engine import InlineOffload, ManualClock, memory_store
from tests.property.gc.actors import (
    MIN_AGE_MS,
    SKEW_MS,
    STALLED_MS,
    World,
    checkpointer,
    collector,
    compactor,
    dead_compactor,
    living,
    writer,
)
from tests.property.gc.oracle import Oracle, driver_of
from tests.property.gc.turnstile import GatedStore, Turnstile
from tests.simulation.runtime import SimIds

NEW = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)
LIVES = ((writer, 3), (writer, 1), (compactor, 3), (compactor, 1), (checkpointer, 2), (collector, 4), (collector, 3))
LAST_ROUNDS = 10


class VirtualClock(ManualClock):
    """Time passes only when the test advances it, or a task sleeps."""

    def monotonic(self) -> float:
        return self.wall_ms / 1_000

    async def sleep(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1_000)
        await asyncio.sleep(0)


def play(seed: int) -> int:
    """Raises `AssertionError` at the first step that is wrong; returns how many requests the actors made."""
    return asyncio.run(_play(seed))


async def _play(seed: int) -> int:
    turnstile, clock, raw = Turnstile(seed), VirtualClock(), memory_store()
    runtime = Runtime(clock, turnstile.random, SimIds(turnstile.random), InlineOffload(), InlineOffload())
    oracle = Oracle(raw, runtime)
    world = World(GatedStore(raw, turnstile, oracle.changed), oracle, runtime, clock, turnstile.random)
    await driver_of(raw, runtime).create(NEW)
    await turnstile.run([asyncio.ensure_future(living(world, life, count)) for life, count in LIVES])
    turnstile.open, world.deaths = True, False
    if turnstile.random.random() < 0.5:
        await compactor(world)  # finishes or drops what dead ones left
    else:
        await dead_compactor(world)
    head = await world.driver().load()
    assert head is not None
    await world.put_sst(head.version, (b"a", b"z"), (1, 1))  # a flush dies, and nothing happens any more
    last = Sweeper(world.store, world.driver(), None, runtime, Limits(MIN_AGE_MS, SKEW_MS, 1_000, STALLED_MS))
    for _ in range(LAST_ROUNDS):
        clock.wall_ms += MIN_AGE_MS
        await last.sweep()
    head = await world.driver().load()
    assert head is not None
    assert not head.compactions, "registered for ever"
    await oracle.check_exact()
    return turnstile.steps
