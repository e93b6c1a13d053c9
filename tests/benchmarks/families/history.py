"""Opening after any history of default settings: on a store of 30 ms a request, 64 in flight, 10 MB/s a request.

Histories are made on the same store in no time, by writers that are killed, or closed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import slate_async as slate
from slate_async.objectstore.memory import MemoryObjects
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require, stopwatch
from tests.benchmarks.rows import cut, make_rows
from tests.benchmarks.slow_store import SlowStore

LATENCY_S, IN_FLIGHT, BYTES_PER_S = 0.030, 64, 10e6
L0_SSTS = 2
STALLED: dict[str, Any] = {"auto_compaction": False, "l0_max_ssts": L0_SSTS}
"""Of a writer whose L0 is full: the log has all that the settings let it have."""
MOST_MS = 3_000
IDLE = 150


def modelled(objects: MemoryObjects) -> SlowStore:
    return SlowStore(LATENCY_S, objects, bytes_per_s=BYTES_PER_S, in_flight=IN_FLIGHT)


def open_db(store: SlowStore, **settings: Any) -> slate.Opening[slate.Db]:
    return slate.open(store, name="memory://history", settings=slate.Settings(**settings))


async def kill(db: slate.Db) -> None:
    """What SIGKILL leaves."""
    db._head.stop()
    await db._supervisor.close()


async def fill_l0(db: slate.Db) -> None:
    for number in range(L0_SSTS):
        await db.put(b"full%d" % number, b"")
        await db.flush(l0=True)


async def small_writes(objects: MemoryObjects, turn: Turn) -> int:
    """Awaited puts of 100 bytes until they would have to wait for compaction; killed."""
    db = await open_db(SlowStore(0, objects), **STALLED)
    await fill_l0(db)
    rows = turn.plan.choose(200, 4_096, 4_096)
    for number in range(rows):
        await db.put(b"%016d" % number, b"v" * 84)
    await kill(db)
    return rows + L0_SSTS


async def full_memtables(objects: MemoryObjects, turn: Turn) -> int:
    """As many log objects, of as many bytes as memory may hold; killed."""
    batches, rows = turn.plan.choose((50, 20), (1_000, 50), (2_000, 50))
    pairs = make_rows(batches * rows, turn.number, 1_000)
    db = await open_db(SlowStore(0, objects), **STALLED)
    await fill_l0(db)
    for some in cut(pairs, rows):
        batch = slate.WriteBatch()
        for key, value in some:
            batch.put(key, value)
        await db.write(batch)
    await kill(db)
    return len(pairs) + L0_SSTS


async def large_values(objects: MemoryObjects, turn: Turn) -> int:
    """Values as large as may be written, until memory is full; killed."""
    values, nbytes = turn.plan.choose((2, 2 << 20), (2, 63 << 20), (2, 63 << 20))
    db = await open_db(SlowStore(0, objects), **STALLED)
    await fill_l0(db)
    chance = random.Random(turn.number)
    for number in range(values):
        await db.put(b"%d" % number, chance.randbytes(nbytes))
    await kill(db)
    return values + L0_SSTS


async def many_writes(objects: MemoryObjects, turn: Turn) -> int:
    """Awaited puts of 100 bytes, closed."""
    rows = turn.plan.choose(300, 20_000, 20_000)
    async with open_db(SlowStore(0, objects)) as db:
        for number in range(rows):
            await db.put(b"%016d" % number, b"v" * 84)
    return rows


async def idle_openings(objects: MemoryObjects, turn: Turn, **settings: Any) -> int:
    """Openings that write nothing, killed, after one row."""
    async with open_db(SlowStore(0, objects), **settings) as db:
        await db.put(b"key", b"value")
        await db.compact(full=True)
    for _ in range(turn.plan.choose(5, IDLE, IDLE)):
        await kill(await open_db(SlowStore(0, objects), **settings))
    return 1


async def idle_without_wal(objects: MemoryObjects, turn: Turn) -> int:
    return await idle_openings(objects, turn, wal_enabled=False)


HISTORIES: dict[str, Callable[[MemoryObjects, Turn], Coroutine[Any, Any, int]]] = {
    "4,096 small writes, killed": small_writes,
    "2,000 writes of 50 kB, killed": full_memtables,
    "2 values of 63 MiB, killed": large_values,
    "20,000 small writes, closed": many_writes,
    "150 idle openings": idle_openings,
    "150 idle openings, no WAL": idle_without_wal,
}


async def measure(turn: Turn, name: str) -> None:
    objects = MemoryObjects()
    rows = await HISTORIES[name](objects, turn)
    store = modelled(objects)
    with stopwatch() as watch:
        db = await open_db(store, auto_compaction=False)
    turn.record(f"open after {name}", OURS, 1000 * watch.seconds["wall"], "ms")
    turn.record(f"requests, {name}", OURS, store.counts.total(), "requests")
    found = 0
    async with db.snapshot() as snapshot:
        async for batch in snapshot.scan().batches():
            found += len(batch)
            await asyncio.sleep(0)
    require(found == rows, OURS, f"a scan after {name}")
    await kill(db)


async def one_round(turn: Turn) -> None:
    for name in turn.in_order(list(HISTORIES)):
        await measure(turn, name)


FAMILY = Family(
    "opening",
    "Opening after any history, on a store of 30 ms",
    tuple(Goal(7, f"open after {name}", MOST_MS, most=True) for name in HISTORIES),
    one_round,
    notes=(
        "A modelled store: 30 ms a request, 64 in flight, 10 MB/s a request, 1,000 names a page.",
        "Default settings; of the three killed writers L0 was full, so that the log held all it may.",
        "No peer: their stores cannot be modelled so, and 20,000 awaited puts take half an hour there.",
    ),
)
