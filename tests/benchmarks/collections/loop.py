"""How late the event loop is while one process appends, merges and listens, beside a quiet loop."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import numpy as np

from slate_async.collections.core.frontier import DONE
from slate_async.objectstore.local import LocalStore
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings.collections import CollectionSettings
from tests.benchmarks.collections.columns import TIMES, updates
from tests.benchmarks.collections.lake import bench
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import percentiles, watched_loop, watched_process
from tests.benchmarks.rounds import Turn, folder, require, stopwatch

LATE, MOST_LATE, MERGED = "loop lag, p99", "loop lag, at most", "rows merged meanwhile"
QUIET, HASHING = "quiet loop", "loop beside a thread that hashes"
ELSEWHERE = "quiet loop of another process meanwhile"
HASHED = bytes(16 << 20)
PAUSE_S = 0.05


async def busy(turn: Turn) -> tuple[list[float], list[float], int]:
    """The lags, those of a process meanwhile that does nothing else, and how many rows were merged."""
    rows, appends = turn.plan.choose((500, 5), (20_000, 40), (50_000, 120))
    rng, runtime = np.random.default_rng(turn.number), system_runtime()
    batches = [updates(rng, rows) for _ in range(4)]
    with folder() as path:
        store = LocalStore(path, runtime)
        settings = CollectionSettings(poll_interval_ms=50)
        async with bench(store, settings=settings) as lake:
            writer, reader = await lake.writer(), await lake.reader()
            controller = await lake.controller(background=True)
            heard = 0

            async def listen() -> None:
                nonlocal heard
                async for delta in reader.listen(start=0):
                    heard += delta.updates.num_rows
                    await reader.downgrade_since(delta.upper)

            listening = asyncio.create_task(listen())
            async with watched_process() as elsewhere, watched_loop() as lags:
                for number in range(appends):
                    batch = batches[number % len(batches)]
                    times = tuple(column + np.uint64(TIMES * number) for column in lake.stores.schema.times(batch))
                    at = lake.stores.schema.with_times(batch, times)
                    await writer.append(at, upper=TIMES * (number + 1))
                    await asyncio.sleep(PAUSE_S)
            await writer.append([], upper=DONE)
            await listening  # which ends with the collection
            require(heard > 0, OURS, "a listener")
            merged = controller.counts[1].rows_in
        await store.close()
    end_threads(runtime)
    return lags, elsewhere, merged


async def beside(work: Callable[[], object], seconds: float) -> list[float]:
    """The lags while a thread does ``work`` again and again."""
    ends = time.perf_counter() + seconds

    def repeat() -> None:
        while time.perf_counter() < ends:
            work()

    async with watched_loop() as lags:
        await asyncio.to_thread(repeat)
    return lags


async def one_round(turn: Turn) -> None:
    seconds = turn.plan.choose(0.1, 2.0, 5.0)
    with stopwatch():  # which keeps the benchmark's own objects from the garbage collector
        lags, elsewhere, merged = await busy(turn)
    turn.record(LATE, OURS, percentiles(lags).p99, "ms")
    turn.record(LATE, ELSEWHERE, percentiles(elsewhere).p99, "ms")
    turn.record(MOST_LATE, OURS, max(lags), "ms")
    turn.record(MOST_LATE, ELSEWHERE, max(elsewhere), "ms")
    for subject, work in ((QUIET, lambda: time.sleep(0.01)), (HASHING, lambda: hashlib.sha256(HASHED).digest())):
        turn.record(LATE, subject, percentiles(await beside(work, seconds)).p99, "ms")
    turn.record(MERGED, OURS, merged, "rows")


GOALS = (Goal(8, LATE, 2, most=True),)
NOTES = (
    "The loop: appends of 50,000 rows 20 times a second, a controller and a listener in one process.",
    "A thread that hashes does not hold the interpreter, and another process has one of its own: what these cost is the"
    " machine's. Where they are as late as ours, ours was not measured.",
)
