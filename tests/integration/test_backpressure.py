"""Writers faster than the store: memory stays bounded, order is kept, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import tracemalloc
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.objectstore.protocol import OVERWRITE, PutMode
from slate_async.types import Buffer
from tests.engine import KINDS, Kind, StoreInHand, memory_store, open_db, settle, starts

LIMITS = (4 << 20, 16 << 20)
FLUSH_BYTES = 256 << 10
VALUE_BYTES = 2000
OVERHEAD_BYTES = 12 << 20
"""What may be held beside the unflushed rows, whatever their limit: objects being encoded and sent (at most a table
of 1 MiB and a window of log objects, each of them raw, compressed and joined), and a cache of 1 MiB."""
LARGEST_LOG_OBJECT = FLUSH_BYTES + FLUSH_BYTES // 4
"""Rows are cut at ``flush_bytes`` however long the store has been slow; offsets, numbers and index come on top."""


class SlowStore(StoreInHand):
    """Takes ``bytes_per_second``, over all puts together, and keeps none of the rows' bytes.

    What was put is forgotten, so that the memory measured is the database's and not the store's."""

    bytes_per_second = 3 << 20

    def __init__(self) -> None:
        super().__init__(memory_store(), watch="none/")
        self._line = asyncio.Lock()
        self.bytes = 0
        self.largest_log_object = 0

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        size = len(data) if not isinstance(data, list | tuple) else sum(map(len, data))
        async with self._line:
            await asyncio.sleep(size / self.bytes_per_second)
            self.bytes += size
        if key.startswith("log/"):
            self.largest_log_object = max(self.largest_log_object, size)
        rows = key.startswith(("log/", "sst/")) and size > 200
        return await super().put(key, b"forgotten" if rows else data, mode=mode, metadata=metadata)


def settings(limit: int) -> dict[str, int | str]:
    return {
        "max_unflushed_bytes": limit,
        "flush_bytes": FLUSH_BYTES,
        "l0_sst_bytes": 1 << 20,
        "skip_memtable_bytes": 1 << 20,
        "block_cache_bytes": 1 << 20,
        "compression": "none",
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "limit"), [*((kind, LIMITS[0]) for kind in KINDS), (KINDS[0], LIMITS[1])], ids=str)
async def test_memory_is_bounded_while_writers_outrun_the_store(kind: Kind, limit: int, full: bool) -> None:
    store = SlowStore()
    seconds = 60 if full else 1 + limit / store.bytes_per_second
    db = await open_db(store, kind, **settings(limit))
    gc.collect()
    tracemalloc.start()
    try:
        before = held_bytes()
        end = time.monotonic() + seconds
        written = most_unflushed = most_table_bytes = most_held = 0

        async def writer(name: int) -> None:
            nonlocal written
            rng = random.Random(name)
            while time.monotonic() < end:
                await db.put(rng.randbytes(12), rng.randbytes(VALUE_BYTES), await_durable=False)
                written += VALUE_BYTES

        writers = starts(*(writer(name) for name in range(32)))
        while time.monotonic() < end:
            status = db.status()
            most_unflushed = max(most_unflushed, status.unflushed_bytes)
            most_table_bytes = max(most_table_bytes, status.memtable_bytes)
            most_held = max(most_held, held_bytes() - before)
            await asyncio.sleep(0.005)
        await asyncio.gather(*writers)
        assert db.metrics()["backpressure.stalls"] >= 32, "the writers never outran the store"
        assert most_unflushed <= limit
        assert most_table_bytes <= limit
        assert written > limit  # more than would fit went through
        assert most_held <= limit + OVERHEAD_BYTES, f"{most_held >> 20} MiB held"
        assert store.largest_log_object <= LARGEST_LOG_OBJECT
    finally:
        tracemalloc.stop()
        store.bytes_per_second = 1 << 40
    assert db.status().waiting_writes == 0
    await db.flush(l0=True)
    status = db.status()
    assert status.unflushed_bytes == 0
    assert status.durable_seq == status.last_seq
    await db.close()


def held_bytes() -> int:
    """Memory of Python objects and of Arrow's own pool."""
    return tracemalloc.get_traced_memory()[0] + int(pa.total_allocated_bytes())


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_cancelling_half_of_the_waiting_leaves_no_leak_and_loses_no_wake_up(
    kind: Kind, full: bool, slice_seed: int
) -> None:
    for round_number in range(40 if full else 4):
        rng = random.Random(slice_seed + round_number)
        store = StoreInHand(memory_store())
        limits = {
            "max_unflushed_bytes": 20_000,
            "flush_bytes": 4000,
            "l0_sst_bytes": 20_000,
            "skip_memtable_bytes": 20_000,
        }
        async with open_db(store, kind, **limits) as db:
            store.hold = True
            sizes = [rng.choice((10, 500, 3000, 30_000)) for _ in range(120)]
            puts = starts(*(_write(db, number, size) for number, size in enumerate(sizes)))
            await settle()
            assert db.status().waiting_writes > 60
            cancelled = rng.sample(puts, 60)
            some, others = cancelled[:30], cancelled[30:]
            for put in some:
                put.cancel()
            store.release()
            for put in others:  # while room is handed out
                await settle(rng.randrange(4))
                put.cancel()
            async with asyncio.timeout(60):
                await asyncio.wait(puts)
            for put in puts:
                assert put.cancelled() or put.exception() is None
                assert put.cancelled() <= (put in cancelled)
            await db.flush(l0=True)
            admission = db._writer.admission
            assert (admission.used, admission.waiting) == (0, 0)
            seen = [key async for key, _ in db.scan()]
            must = {b"%05d" % number for number, put in enumerate(puts) if not put.cancelled()}
            assert must <= set(seen)
            waiting_and_out = len(puts) - len(seen)
            assert waiting_and_out <= sum(put.cancelled() for put in puts)
            assert waiting_and_out > 0
            # room is as it was: a write of the whole limit passes without waiting
            async with asyncio.timeout(60):
                await db.put(b"last", bytes(19_000))


async def _write(db: slate.Db, number: int, size: int) -> slate.WriteHandle:
    key = b"%05d" % number
    if number % 7:
        return await db.put(key, bytes(size), await_durable=number % 2 == 0)
    batch = slate.WriteBatch()
    batch.put(key, bytes(size // 2))
    batch.put(b"%05d" % number, bytes(size // 2))
    return await db.write(batch)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_writes_that_wait_are_let_in_in_the_order_they_came(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    async with open_db(store, kind, max_unflushed_bytes=2000) as db:
        store.hold = True
        puts = starts(*(db.put(b"%03d" % number, bytes(300)) for number in range(60)))
        await settle()
        store.release()
        async with asyncio.timeout(60):
            handles = await asyncio.gather(*puts)
        assert [handle.seq for handle in handles] == list(range(1, 61))
