"""Memory of a row in the memtable, of an open SST, of an idle database and of a long load, each in a fresh process."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import slate_async
from tests.benchmarks.engines import Dict, Rocks, RocksNoWal, SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import Engine, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import fresh_process, peak_mib, resident_bytes
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.rows import KEY_BYTES, VALUE_BYTES, Pair

ROW, SST, IDLE = "bytes of a memtable row of 116", "KiB of an open SST of 1,000 rows", "KiB of an idle database"
REQUESTS = "requests of an idle database in an hour"
LOAD = "peak memory of a long load"
BATCH_ROWS, SST_ROWS = 1_000, 1_000
KIB, MIB = 1 << 10, 1 << 20


def made(count: int) -> Iterator[list[Pair]]:
    """Batches of rows that nobody keeps."""
    rng = random.Random(1)
    for _ in range(0, count, BATCH_ROWS):
        yield [(rng.randbytes(KEY_BYTES), rng.randbytes(VALUE_BYTES)) for _ in range(BATCH_ROWS)]


def settled_bytes() -> int:
    gc.collect()
    return resident_bytes()


async def write(engine: Engine, count: int) -> None:
    for batch in made(count):
        await engine.write_all([batch])


class InMemory(SlateAsync):
    """Its memtable is not flushed."""

    settings = slate_async.Settings(max_unflushed_bytes=1 << 30, l0_sst_bytes=1 << 30)


async def memtable_row(kind: type[Engine], count: int) -> float:
    """Bytes of each row, once all are in the memtable and in the log."""
    async with started(kind) as engine:
        await write(engine, BATCH_ROWS)
        before = settled_bytes()
        await write(engine, count)
        if isinstance(engine, SlateAsync):
            await engine.db.flush()
        return (settled_bytes() - before) / count


async def open_sst(count: int) -> float:
    """KiB of an SST whose index and filter are in memory, and no blocks."""
    settings = slate_async.Settings(auto_compaction=False, l0_max_ssts=10_000, block_cache_bytes=0)
    rng = random.Random(2)
    with folder() as path:
        keys = []
        async with slate_async.open(path, settings=settings) as db:
            for _ in range(count):
                batch = slate_async.WriteBatch()
                keys.append(rng.randbytes(KEY_BYTES))
                batch.put(keys[-1], b"")
                for _ in range(SST_ROWS - 1):
                    batch.put(rng.randbytes(KEY_BYTES), rng.randbytes(VALUE_BYTES))
                await db.write(batch, await_durable=False)
                await db.flush(l0=True)
        async with slate_async.open(path, settings=settings) as db:
            before = settled_bytes()
            require(await db.get_many(keys) == [b""] * count, OURS, "get_many")
            return (settled_bytes() - before) / count / KIB


async def idle_databases(count: int, seconds: float) -> tuple[float, float]:
    """KiB of each, and its requests in an hour, in one environment on a store in memory."""
    async with slate_async.Environment() as environment:
        first = await environment.open("memory://idle/first")
        before = settled_bytes()
        for number in range(count):
            await environment.open(f"memory://idle/{number}")
        each = (settled_bytes() - before) / count / KIB
        sent = requests(first)
        await asyncio.sleep(seconds)
        return each, (requests(first) - sent) / (count + 1) / seconds * 3600


def requests(db: slate_async.Db) -> float:
    """What the whole environment has sent to the store."""
    return sum(value for name, value in db.metrics().items() if name.startswith("store.requests."))


async def long_load(kind: type[Engine], count: int) -> float:
    """The highest memory of a process that does nothing but write, in MiB."""
    async with started(kind) as engine:
        await write(engine, count)
        await engine.flush()
        return peak_mib()


def run_row(kind: type[Engine], count: int) -> float:
    return asyncio.run(memtable_row(kind, count))


def run_sst(count: int) -> float:
    return asyncio.run(open_sst(count))


def run_idle(count: int, seconds: float) -> tuple[float, float]:
    return asyncio.run(idle_databases(count, seconds))


def run_load(kind: type[Engine], count: int) -> float:
    return asyncio.run(long_load(kind, count))


async def one_round(turn: Turn) -> None:
    plan = turn.plan

    def executor() -> Executor:
        return ThreadPoolExecutor(1) if plan.size == "tiny" else fresh_process()

    loop = asyncio.get_running_loop()
    for kind in taking_turns(turn, InMemory, SlateDB, RocksNoWal, Dict):
        with executor() as fresh:
            found = await loop.run_in_executor(fresh, run_row, kind, plan.choose(1_000, 100_000, 300_000))
        turn.record(ROW, kind.name, found, "bytes")
    with executor() as fresh:
        turn.record(SST, OURS, await loop.run_in_executor(fresh, run_sst, plan.choose(2, 30, 100)), "KiB")
    with executor() as fresh:
        databases, seconds = plan.choose((3, 0.1), (200, 5.0), (1_000, 10.0))
        each, sent = await loop.run_in_executor(fresh, run_idle, databases, seconds)
    turn.record(IDLE, OURS, each, "KiB")
    turn.record(REQUESTS, OURS, sent, "requests")
    for kind in taking_turns(turn, SlateAsync, Rocks):
        with executor() as fresh:
            found = await loop.run_in_executor(fresh, run_load, kind, plan.choose(1_000, 500_000, 4_000_000))
        turn.record(LOAD, kind.name, found, "MiB")


FAMILY = Family(
    "memory",
    "Memory",
    (
        Goal(8, IDLE, 300, most=True),
        Goal(8, ROW, 450, most=True),
        Goal(8, LOAD, 1.5, (LOAD, Rocks.name), most=True),
    ),
    one_round,
    notes=(
        "Resident memory of a process of its own before and after, divided by how many there are.",
        "An idle database asks for its manifest every manifest_poll_interval_ms (default 1,000): 3,600 times an hour.",
        "The long load: batches of 1,000 rows as fast as they are taken, 464 MB of rows (58 MB with --quick).",
    ),
    most_rounds=2,
)
