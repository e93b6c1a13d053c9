"""How late the event loop is while rows are put and got at half of peak, and flushes and compactions go on beside it.

Small SSTs (2 MiB) make flushes and compactions follow each other all the time. Each engine works at half of the rate it
reached alone, in short bursts: what a burst takes is part of the lag, as it would be in an application. A quiet
loop shows what the machine itself does. Then the same with gets beyond the block cache and scans beside each burst.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import slate_async
from tests.benchmarks.engines import (
    OneRocks,
    OneSlateAsync,
    OneSlateDB,
    Rocks,
    SlateAsync,
    SlateDB,
    taking_turns,
    with_cache,
)
from tests.benchmarks.engines.protocol import Engine, started
from tests.benchmarks.engines.single import SingleOperations
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import watched_loop
from tests.benchmarks.rounds import Samples, Turn, require
from tests.benchmarks.rows import KEY_BYTES, Pair, cut, make_rows

RATE, SSTS = "rows put, and as many got", "SSTs flushed meanwhile"
QUIET = "quiet loop"
BURST_ROWS = 32
BESIDE = ", beside reads of SSTs"
GETS_BESIDE, SCANS_BESIDE, SCAN_ROWS = 8, 1, 50
OLD_VALUE_BYTES = 1_000
TIMES_CACHE = 3
LEAST_CACHE_BYTES = 64 << 10
CLOCK_MS = 0.001
PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9, 100)


class SmallSsts(SlateAsync):
    """SSTs of 2 MiB, so that flushes and compactions do not end."""

    settings = slate_async.Settings(l0_sst_bytes=2 << 20, sst_bytes=2 << 20)


class OneSmallSsts(OneSlateAsync):
    """The same, for reads one by one."""

    settings = SmallSsts.settings


Work = Callable[[random.Random], Awaitable[None]]


def bursts(engine: Engine, rows: Sequence[Pair]) -> Work:
    """Some neighbours among ``rows``, put and then got."""

    async def burst(rng: random.Random) -> None:
        at = rng.randrange(len(rows) - BURST_ROWS + 1)
        pairs = rows[at : at + BURST_ROWS]
        await engine.put_all(pairs)
        found = await engine.get_all([key for key, _ in pairs])
        require(found == [value for _, value in pairs], engine.name, "a read")

    return burst


def with_reads(engine: SingleOperations, burst: Work, old: Sequence[Pair]) -> Work:
    """A burst, and beside it gets and a scan of ``old`` rows, each a task."""

    async def get(rng: random.Random) -> None:
        key, value = old[rng.randrange(len(old))]
        require(await engine.get_one(key) == value, engine.name, "a read beyond the cache")

    async def scan(rng: random.Random) -> None:
        found = await engine.scan_one(old[rng.randrange(len(old))][0], SCAN_ROWS)
        require(0 < len(found) <= SCAN_ROWS, engine.name, "a scan")

    async def everything(rng: random.Random) -> None:
        beside = (*[get] * GETS_BESIDE, *[scan] * SCANS_BESIDE)
        await asyncio.gather(burst(rng), *(each(rng) for each in beside))

    return everything


async def peak(work: Work, seconds: float, rng: random.Random) -> float:
    """Bursts a second without a pause."""
    started, done = time.perf_counter(), 0
    while not done or time.perf_counter() - started < seconds:
        await work(rng)
        done += 1
    return done / (time.perf_counter() - started)


async def paced(work: Work, bursts_a_second: float, seconds: float, rng: random.Random) -> int:
    """Bursts at that rate on average, late ones made up for; how many there were."""
    loop = asyncio.get_running_loop()
    due = started = loop.time()
    done = 0
    while loop.time() < started + seconds:
        await work(rng)
        done += 1
        due += 1 / bursts_a_second
        await asyncio.sleep(max(0.0, due - loop.time()))
    return done


def late_by(percent: float) -> str:
    """The name of a measure."""
    return f"{percent:g} % late by at most"


def record(turn: Turn, subject: str, lags: list[float], what: str = "") -> None:
    ordered = sorted(lags)
    for percent in PERCENTILES:
        value = ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
        turn.record(late_by(percent) + what, subject, max(value, CLOCK_MS), "ms")


async def measure(turn: Turn, engine: Engine, work: Work, seconds: float, what: str = "") -> None:
    """How late the loop is while ``work`` is done at half of its peak."""
    gc.collect()
    gc.freeze()  # as docs/operations/latency.md advises an application to
    rng = random.Random(turn.number)
    rate = await peak(work, seconds / 4, rng) / 2
    before = ssts_of(engine)
    async with watched_loop() as lags:
        began = time.perf_counter()
        done = await paced(work, rate, seconds, rng)
        took = time.perf_counter() - began
    gc.unfreeze()
    record(turn, engine.name, lags, what)
    turn.record(RATE + what, engine.name, done * BURST_ROWS / took)
    if before is not None:
        turn.record(SSTS + what, engine.name, (ssts_of(engine) or 0) - before, "SSTs")


def ssts_of(engine: Engine) -> float | None:
    return engine.db.metrics()["l0.ssts"] if isinstance(engine, SlateAsync) else None


async def one_round(turn: Turn) -> None:
    seconds = turn.plan.choose(0.1, 5.0, 15.0)
    rows = make_rows(turn.plan.choose(200, 50_000, 100_000), turn.number)
    async with watched_loop() as lags:
        await asyncio.sleep(seconds)
    record(turn, QUIET, lags)
    for kind in taking_turns(turn, SmallSsts, SlateDB, Rocks):
        async with started(kind) as engine:
            await measure(turn, engine, bursts(engine, rows), seconds)
    old = make_rows(turn.plan.choose(400, 20_000, 40_000), turn.number + 1_000, OLD_VALUE_BYTES)
    cache_bytes = max(LEAST_CACHE_BYTES, len(old) * (KEY_BYTES + OLD_VALUE_BYTES) // TIMES_CACHE)
    readers: tuple[type[SingleOperations], ...] = (OneSmallSsts, OneSlateDB, OneRocks)
    for reader in taking_turns(turn, *readers):
        async with started(with_cache(reader, cache_bytes)) as single:
            await single.write_all(list(cut(old, 1_000)))
            await single.flush()
            await measure(turn, single, with_reads(single, bursts(single, rows), old), seconds, BESIDE)


def plot(samples: Samples) -> Any:
    """Lag by percentile, the slow tail spread out."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for subject in samples.found[late_by(50)]:
        late = [samples.median(late_by(percent), subject) for percent in PERCENTILES]
        style = {"color": "#c2410c", "linewidth": 2.5} if subject == OURS else {"linestyle": "--"}
        axis.plot(range(len(PERCENTILES)), late, marker="o", label=subject, **style)
    axis.axhline(2, color="#94a3b8", linewidth=0.8)
    axis.axhline(20, color="#94a3b8", linewidth=0.8)
    axis.set_xticks(range(len(PERCENTILES)), [f"{percent:g}" for percent in PERCENTILES])
    axis.set_yscale("log")
    axis.set_xlabel("percent of wake-ups")
    axis.set_ylabel("late by at most (ms); lines: 2 and 20 ms")
    axis.legend()
    return figure


FAMILY = Family(
    "lag",
    "Lag of the event loop at half of peak",
    (
        Goal(7, late_by(99), 2, most=True),
        Goal(7, late_by(100), 20, most=True),
        Goal(7, late_by(99) + BESIDE, 3, most=True),
        Goal(7, late_by(100) + BESIDE, 30, most=True),
    ),
    one_round,
    notes=(
        f"Bursts of {BURST_ROWS} puts and as many gets, at half the rate each engine reached without a pause.",
        "Before each engine is measured, gc.freeze() freezes what is loaded, as docs/operations/latency.md advises.",
        "slate_async: SSTs of 2 MiB instead of 32 and 64, so that flushes and compactions follow each other.",
        f"Reads of SSTs: {GETS_BESIDE} gets and {SCANS_BESIDE} scan of {SCAN_ROWS} with each burst, each a task, over"
        f" rows of {OLD_VALUE_BYTES:,} bytes that are {TIMES_CACHE} times the block cache.",
        "rocksdict blocks its caller and never gives way to the loop within a burst. Wall time, whatever --clock says.",
    ),
    plot=plot,
)
