"""Reads: a snapshot beside Parquet's own reader, and how soon a listener hears of an append."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.collections.reader.handle import ReadHandle
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import CREATE
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings.collections import CollectionSettings
from tests.benchmarks.collections.appending import BEYOND, PUT, timed_ms
from tests.benchmarks.collections.columns import ROW_GROUP, TIMES, updates
from tests.benchmarks.collections.lake import Bench, bench
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.slow_store import SlowStore

SNAPSHOT, PENDING = "snapshot to Arrow", "snapshot to Arrow, 8 batches pending"
PARQUET, ONE_THREAD = "pq.read_table", "its row groups on one thread"
LISTEN, LISTEN_NEAR = "listen, another process", "listen, same process"
EXPECTED, FLOOR = "PUT + poll/2 + 1.2 GET", "PUT + poll/2 + list + GET"
DELAY_S, POLL_MS = 0.02, 500
PENDING_BATCHES = 8
READS = 5
"""Pairs of a round."""


def by_groups(path: Path) -> pa.Table:
    """What one thread decodes: `pyarrow.parquet.read_table` takes two, whatever it is told."""
    with pq.ParquetFile(path) as file:
        return pa.concat_tables(file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups))


async def snapshots(turn: Turn) -> None:
    """Of a collection at rest, and of one that nobody has compacted, from a local folder."""
    batch = updates(np.random.default_rng(turn.number), turn.plan.choose(2_000, 200_000, 1_000_000))
    runtime = system_runtime()
    with folder() as path, folder() as beside:
        store, peer = LocalStore(path, runtime), Path(beside, "rows.parquet")
        async with bench(store) as lake:
            writer, reader = await lake.writer(), await lake.reader()
            step = -(-batch.num_rows // PENDING_BATCHES)
            for number in range(PENDING_BATCHES):
                async with writer.batch(TIMES * number, upper=TIMES * (number + 1)) as appended:
                    part = batch.slice(number * step, step)
                    times = tuple(column + np.uint64(TIMES * number) for column in lake.stores.schema.times(part))
                    await appended.add(lake.stores.schema.with_times(part, times))
            last = TIMES * PENDING_BATCHES - 1

            async def read(reader: ReadHandle) -> pa.Table:
                async with await reader.snapshot(last) as snapshot:
                    table = await snapshot.to_arrow()
                return table

            first = await read(reader)
            pq.write_table(first, peer, row_group_size=ROW_GROUP, compression="zstd")
            with turn.timed(PENDING, OURS, batch.num_rows):
                await read(reader)
            await reader.downgrade_since(last)
            controller = await lake.controller()
            await controller.settle()
            require(len((await lake.stores.versions.load()).batches) == 1, OURS, "a controller")
            reader = await lake.reader()
            for number in range(READS):
                for subject in turn.in_order((OURS, PARQUET, ONE_THREAD))[:: -1 if number % 2 else 1]:
                    with turn.timed(SNAPSHOT, subject, first.num_rows):
                        if subject == OURS:
                            found = await read(reader)
                        else:
                            found = pq.read_table(peer) if subject == PARQUET else by_groups(peer)
                    require(found.num_rows == first.num_rows, subject, "a read")
        await store.close()
    end_threads(runtime)


async def heard(turn: Turn, writing: Bench, reading: Bench) -> tuple[list[float], list[float]]:
    """Milliseconds from the beginning of an append until a listener has it, and those of as many PUTs.

    Appends begin at all phases of a poll alike."""
    store, poll_s = writing.stores.store, reading.stores.settings.poll_interval_ms / 1000
    writer, reader = await writing.writer(), await reading.reader()
    found: list[float] = []
    puts: list[float] = []
    wanted = turn.plan.choose(3, 10, 30)

    async def put() -> None:
        await store.put(f"{BEYOND}{len(puts)}", bytes(500), mode=CREATE)

    async with reader.listen(start=0) as listener:
        await writer.append([], upper=1)
        await anext(listener)
        for number in range(1, wanted + 1):
            puts.append(await timed_ms(put))
            waiting = asyncio.ensure_future(anext(listener))  # which looks, and then again after a poll
            await asyncio.sleep(poll_s * (number - 0.5) / wanted)
            began = time.perf_counter()
            await writer.append([(b"%044d" % number, number, 1)], upper=number + 1)
            delta = await waiting
            found.append(1000 * (time.perf_counter() - began))
            require(delta.updates.num_rows == 1, OURS, "a listener")
    return found, puts


async def latencies(turn: Turn) -> None:
    """From another process, of which this one stands for both, and from the same one."""
    latency_s, poll_ms = turn.plan.choose(0.0, DELAY_S, DELAY_S), turn.plan.choose(10, POLL_MS, POLL_MS)
    settings, objects = CollectionSettings(poll_interval_ms=poll_ms), MemoryObjects()
    async with bench(SlowStore(latency_s, objects), settings=settings) as writing:
        async with bench(SlowStore(latency_s, objects), settings=settings) as reading:
            found, puts = await heard(turn, writing, reading)
        turn.record(LISTEN, OURS, statistics.mean(found), "ms")
        turn.record(LISTEN, EXPECTED, 2.2 * statistics.mean(puts) + poll_ms / 2, "ms")
        turn.record(LISTEN, FLOOR, 3 * statistics.mean(puts) + poll_ms / 2, "ms")
    async with bench(SlowStore(latency_s), settings=settings) as both:
        found, puts = await heard(turn, both, both)
        turn.record(LISTEN_NEAR, OURS, statistics.median(found), "ms")
        turn.record(LISTEN_NEAR, PUT, statistics.median(puts), "ms")


async def one_round(turn: Turn) -> None:
    await snapshots(turn)
    await latencies(turn)


GOALS = (
    Goal(5, SNAPSHOT, 0.6, (SNAPSHOT, PARQUET)),
    Goal(6, LISTEN, 1, (LISTEN, EXPECTED), most=True),
    Goal(6, LISTEN_NEAR, 1.3, (LISTEN_NEAR, PUT), most=True),
)
NOTES = (
    "Snapshots of updates of 60 bytes, from a local folder. Parquet reads with all cores, a snapshot with two.",
    "Listeners: a store in memory that takes 20 ms for each request; a look each 500 ms. A GET takes as long as a PUT.",
    "A definite listener lists, because names say where a batch ends, and then reads: less than two requests is not to"
    " be had.",
)
