"""`slate_async.sync` beside ``await``: what it costs to cross to the thread of the event loop and back."""

from __future__ import annotations

import asyncio
import threading

import slate_async as slate
from slate_async.sync import Db
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair, cut, make_rows

SYNC = "slate.sync"
THREADS = 16
GET, PUT, BATCH, SCAN = "get, memtable", "put, not waited for", "batches of 1,000, not waited for", "scan by rows, SST"
THREADED = f"get, memtable, {THREADS} threads"


def batches(rows: list[Pair]) -> list[slate.WriteBatch]:
    """``rows``, a thousand at a time."""
    made = []
    for part in cut(rows, 1_000):
        batch = slate.WriteBatch()
        for key, value in part:
            batch.put(key, value)
        made.append(batch)
    return made


async def measure_async(turn: Turn, rows: list[Pair], few: list[Pair]) -> None:
    async with slate.open(f"memory://async-{turn.number}") as db:
        with turn.timed(PUT, OURS, len(few)):
            for key, value in few:
                await db.put(key, value, await_durable=False)
        ready = batches(rows)
        with turn.timed(BATCH, OURS, len(rows)):
            for batch in ready:
                await db.write(batch, await_durable=False)
        with turn.timed(GET, OURS, len(few)):
            found = [await db.get(key) for key, _ in few]
        require(found == [value for _, value in few], OURS, GET)
        await db.flush(l0=True)
        with turn.timed(SCAN, OURS, len(rows)):
            count = 0
            async for _ in db.scan():
                count += 1
        require(count == len(rows), OURS, SCAN)


def measure_sync(turn: Turn, rows: list[Pair], few: list[Pair]) -> None:
    with slate.sync.open(f"memory://sync-{turn.number}") as db:
        with turn.timed(PUT, SYNC, len(few)):
            for key, value in few:
                db.put(key, value, await_durable=False)
        ready = batches(rows)
        with turn.timed(BATCH, SYNC, len(rows)):
            for batch in ready:
                db.write(batch, await_durable=False)
        with turn.timed(GET, SYNC, len(few)):
            found = [db.get(key) for key, _ in few]
        require(found == [value for _, value in few], SYNC, GET)
        measure_threads(turn, db, few)
        db.flush(l0=True)
        with turn.timed(SCAN, SYNC, len(rows)):
            count = sum(1 for _ in db.scan())
        require(count == len(rows), SYNC, SCAN)


def measure_threads(turn: Turn, db: Db, few: list[Pair]) -> None:
    def work(part: list[Pair]) -> None:
        for key, _ in part:
            db.get(key)

    threads = [threading.Thread(target=work, args=(few[start::THREADS],)) for start in range(THREADS)]
    with turn.timed(THREADED, SYNC, len(few)):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(200, 50_000, 200_000), turn.number)
    few = rows[: turn.plan.choose(50, 2_000, 10_000)]
    await measure_async(turn, rows, few)
    await asyncio.to_thread(measure_sync, turn, rows, few)


FAMILY = Family(
    "sync",
    "Without await",
    (),
    one_round,
    notes=("The loop's thread and the caller's take turns: every call is two of them, whatever it does.",),
)
