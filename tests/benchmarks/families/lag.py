"""How late the event loop is while rows are put and got at half of peak, and flushes and compactions go on beside it.

Small SSTs (2 MiB) make flushes and compactions follow each other all the time. Each engine works at half of the rate it
reached alone, in short bursts: what a burst takes is part of the lateness, as it would be in an application. A quiet
loop shows what the machine itself does.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

import slate_async
from tests.benchmarks.engines import Rocks, SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import Engine, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import watched_loop
from tests.benchmarks.rounds import Samples, Turn, require
from tests.benchmarks.rows import Pair, make_rows

RATE, SSTS = "rows put, and as many got", "SSTs flushed meanwhile"
QUIET = "quiet loop"
BURST_ROWS = 32
CLOCK_MS = 0.001
PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9, 100)


class SmallSsts(SlateAsync):
    """SSTs of 2 MiB, so that flushes and compactions do not end."""

    settings = slate_async.Settings(l0_sst_bytes=2 << 20, sst_bytes=2 << 20)


async def burst(engine: Engine, rows: Sequence[Pair]) -> None:
    """Put some rows and get them again."""
    await engine.put_all(rows)
    found = await engine.get_all([key for key, _ in rows])
    require(found == [value for _, value in rows], engine.name, "a read")


async def peak(engine: Engine, rows: list[Pair], seconds: float) -> float:
    """Bursts a second without a pause."""
    started, done = time.perf_counter(), 0
    for at in itertools.cycle(range(0, len(rows) - BURST_ROWS + 1, BURST_ROWS)):
        await burst(engine, rows[at : at + BURST_ROWS])
        done += 1
        if time.perf_counter() - started > seconds:
            break
    return done / (time.perf_counter() - started)


async def paced(engine: Engine, rows: list[Pair], bursts_a_second: float, seconds: float, rng: random.Random) -> int:
    """Bursts at random places, at that rate on average, late ones made up for; how many there were."""
    loop = asyncio.get_running_loop()
    due = started = loop.time()
    done = 0
    while loop.time() < started + seconds:
        at = rng.randrange(len(rows) - BURST_ROWS + 1)
        await burst(engine, rows[at : at + BURST_ROWS])
        done += 1
        due += 1 / bursts_a_second
        await asyncio.sleep(max(0.0, due - loop.time()))
    return done


def late_by(percent: float) -> str:
    """The name of a measure."""
    return f"{percent:g} % late by at most"


def record(turn: Turn, subject: str, lags: list[float]) -> None:
    ordered = sorted(lags)
    for percent in PERCENTILES:
        value = ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
        turn.record(late_by(percent), subject, max(value, CLOCK_MS), "ms")


async def one_round(turn: Turn) -> None:
    seconds = turn.plan.choose(0.1, 5.0, 15.0)
    rows = make_rows(turn.plan.choose(200, 50_000, 100_000), turn.number)
    async with watched_loop() as lags:
        await asyncio.sleep(seconds)
    record(turn, QUIET, lags)
    for kind in taking_turns(turn, SmallSsts, SlateDB, Rocks):
        async with started(kind) as engine:
            gc.collect()
            gc.freeze()  # as docs/latency.md advises an application to
            rate = await peak(engine, rows, seconds / 4) / 2
            before = engine.db.metrics()["l0.ssts"] if isinstance(engine, SmallSsts) else 0
            async with watched_loop() as lags:
                began = time.perf_counter()
                done = await paced(engine, rows, rate, seconds, random.Random(turn.number))
                took = time.perf_counter() - began
            record(turn, engine.name, lags)
            turn.record(RATE, engine.name, done * BURST_ROWS / took)
            if isinstance(engine, SmallSsts):
                turn.record(SSTS, OURS, engine.db.metrics()["l0.ssts"] - before, "SSTs")


def plot(samples: Samples) -> Any:
    """Lateness by percentile, the slow tail spread out."""
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
    "Lateness of the event loop at half of peak",
    (Goal(7, late_by(99), 2, most=True), Goal(7, late_by(100), 20, most=True)),
    one_round,
    notes=(
        f"Bursts of {BURST_ROWS} puts and as many gets, at half the rate each engine reached without a pause.",
        "What is imported and opened is frozen (gc.freeze) before each engine is measured, as docs/latency.md advises.",
        "slate_async: SSTs of 2 MiB instead of 64, so that flushes and compactions follow each other.",
        "rocksdict blocks its caller and never gives way to the loop within a burst. Wall time, whatever --clock says.",
    ),
    plot=plot,
)
