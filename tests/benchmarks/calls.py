"""What single calls of ``slate_async`` cost, in microseconds of processor time a row, printed as JSON: one process of
`tests.benchmarks.against`. It imports nothing but the package, and calls what every commit has.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import slate_async as slate

PASSES = 5
PRIORITY = 10
BATCH_ROWS, TASKS = 1_000, 256
Rows = list[tuple[bytes, bytes]]


async def cost(rows: int, work: Callable[[], Awaitable[object]]) -> float:
    """Microseconds a row, with the garbage collector's eyes off what is there already."""
    gc.collect()
    gc.freeze()
    try:
        began = time.process_time()
        await work()
        return 1e6 * (time.process_time() - began) / rows
    finally:
        gc.unfreeze()


async def gets(rows: Rows) -> dict[str, float]:
    """Warm reads of random keys, from the memtable and from one sorted run."""
    keys = [key for key, _ in rows]
    random.Random(1).shuffle(keys)
    found: dict[str, float] = {}
    async with slate.open(f"memory://{uuid4()}") as db:
        for key, value in rows:
            await db.put(key, value, await_durable=False)
        await db.flush()

        async def one_by_one() -> None:
            get = db.get
            for key in keys:
                await get(key)

        async def many() -> None:
            for start in range(0, len(keys), 100):
                await db.get_many(keys[start : start + 100])

        async def measure(where: str) -> None:
            for name, work in ((f"get, {where}", one_by_one), (f"get_many of 100, {where}", many)):
                await work()
                found[name] = min([await cost(len(keys), work) for _ in range(PASSES)])

        await measure("memtable")
        await db.compact(full=True)
        await measure("one run")
    return found


async def puts(rows: Rows, few: Rows) -> dict[str, float]:
    """Writes that are not waited for, up to the flush that makes them durable (how much of it runs beside them is
    chance), and writes of many tasks that wait each."""
    batches = [rows[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS)]

    async def one_by_one(db: slate.Db) -> None:
        put = db.put
        for key, value in rows:
            await put(key, value, await_durable=False)
        await db.flush()

    async def in_batches(db: slate.Db) -> None:
        for pairs in batches:
            batch = slate.WriteBatch()
            put = batch.put
            for key, value in pairs:
                put(key, value)
            await db.write(batch, await_durable=False)
        await db.flush()

    async def durable(db: slate.Db) -> None:
        queue = iter(few)

        async def work() -> None:
            for key, value in queue:
                await db.put(key, value)

        await asyncio.gather(*(work() for _ in range(TASKS)))

    found: dict[str, float] = {}
    kinds = {
        "put, flush": (rows, one_by_one),
        f"write of {BATCH_ROWS:,} rows, flush": (rows, in_batches),
        f"durable put, {TASKS} tasks": (few, durable),
    }
    for name, (written, work) in kinds.items():
        costs = []
        for _ in range(PASSES):
            async with slate.open(f"memory://{uuid4()}") as db:
                costs.append(await cost(len(written), lambda work=work, db=db: work(db)))  # type: ignore[misc]
        found[name] = min(costs)
    return found


def hurry() -> None:
    """Let no other process interrupt this one, where that is allowed."""
    with suppress(AttributeError, OSError):  # it is Linux's, and not for everybody
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))


async def main(packages: str, size: int) -> None:
    if not Path(slate.__file__).is_relative_to(packages):
        raise SystemExit(f"this is {slate.__file__}, not that in {packages}")
    hurry()
    rows = [(b"key-%016d" % number, random.Random(number).randbytes(100)) for number in range(size)]
    random.Random(0).shuffle(rows)
    print(json.dumps(await gets(rows[: size // 2]) | await puts(rows, rows[: size // 4])))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
