"""How soon after its acknowledgement a row is with a watcher, and what a thousand watchers ask of the store."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import slate_async
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require

DELIVERED, REQUESTS = "acknowledged to delivered, 50 %", "requests beside those without watchers"
TAIL = "acknowledged to delivered, 99 %"
TENANTS = 100
SETTINGS = slate_async.Settings(manifest_poll_interval_ms=60_000)
"""Polls of the manifest would count as requests."""


async def one_round(turn: Turn) -> None:
    watchers, writes = turn.plan.choose(20, 1_000, 1_000), turn.plan.choose(20, 300, 1_000)
    alone = await _requests(0, writes, [])
    lags: list[float] = []
    watched = await _requests(watchers, writes, lags)
    lags.sort()
    turn.record(DELIVERED, OURS, 1000 * lags[len(lags) // 2], "ms")
    turn.record(TAIL, OURS, 1000 * lags[int(len(lags) * 0.99)], "ms")
    turn.record(REQUESTS, OURS, max(0.0, watched - alone), "requests")


async def _requests(watchers: int, writes: int, lags: list[float]) -> float:
    """Reads of the store beside so many writes, one after another, and so many watchers of tenants."""
    with tempfile.TemporaryDirectory() as folder:
        async with slate_async.open(Path(folder).as_uri(), settings=SETTINGS) as db:
            acknowledged: dict[int, float] = {}
            delivered: list[tuple[int, float]] = []
            expected = [writes // TENANTS + (number % TENANTS < writes % TENANTS) for number in range(watchers)]

            async def watch(number: int) -> None:
                async with db.watch(prefix=b"%03d/" % (number % TENANTS)) as watch:
                    ready.release()
                    for _ in range(expected[number]):
                        delivered.append(((await anext(watch)).seq, time.perf_counter()))

            ready = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(watch(number)) for number in range(watchers)]
            for _ in tasks:
                await ready.acquire()
            before = _asked(db)
            for number in range(writes):
                handle = await db.put(b"%03d/%06d" % (number % TENANTS, number), bytes(100))
                acknowledged[handle.seq] = time.perf_counter()
            await asyncio.gather(*tasks)
            require(len(delivered) == sum(expected), OURS, "a watch")
            lags += [at - acknowledged[seq] for seq, at in delivered]
            return _asked(db) - before


def _asked(db: slate_async.Db) -> float:
    """What was read of the store so far: a change feed reads, writes do not."""
    metrics = db.metrics()
    return metrics["store.requests.get"] + metrics["store.requests.list"]


FAMILY = Family(
    "watch",
    "Watches of one database",
    (Goal(15, DELIVERED, 5, most=True), Goal(15, REQUESTS, 0, most=True)),
    one_round,
    notes=(
        f"A thousand watchers of {TENANTS} prefixes, and durable puts one after another on a local folder.",
        "Below zero: the watcher had the row before the task that wrote it went on.",
    ),
)
