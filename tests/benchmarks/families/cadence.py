"""What latency costs: durable writes that are sent at once, or gathered for 100 ms, on an S3 that takes 30 ms."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence

from tests.benchmarks.engines import SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.ours import Gathering
from tests.benchmarks.engines.protocol import OnS3
from tests.benchmarks.families.cost import BUCKET, DELAY_S, SETTLE_S, of_month
from tests.benchmarks.family import Family
from tests.benchmarks.machine import percentiles
from tests.benchmarks.rounds import Turn
from tests.benchmarks.rows import Pair, make_rows
from tests.benchmarks.slow_s3 import slow_s3

RATES = (5, 20, 200)
TASKS = (1, 64)
ROWS = 10_000
"""Tasks that wait begin again with the first row after these."""


async def put_timed(engine: OnS3, pair: Pair, took: list[float]) -> None:
    """One durable put; ``took`` gets its milliseconds."""
    began = time.perf_counter()
    await engine.put_durable(pair)
    took.append(1000 * (time.perf_counter() - began))


async def at_random(engine: OnS3, rate: int, seconds: float, seed: int) -> list[float]:
    """``rate`` puts a second on average, each a task of its own; the milliseconds each took."""
    rng = random.Random(seed)
    pairs = iter(make_rows(round(rate * seconds * 2) + 100, seed))
    took: list[float] = []
    began, due = time.perf_counter(), 0.0
    async with asyncio.TaskGroup() as puts:
        while (due := due + rng.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            puts.create_task(put_timed(engine, next(pairs), took))
    return took


async def in_tasks(engine: OnS3, tasks: int, seconds: float, seed: int) -> list[float]:
    """Each task puts its next row once its last one is durable; the milliseconds each put took."""
    pairs = itertools.cycle(make_rows(ROWS, seed))
    took: list[float] = []
    ends = time.perf_counter() + seconds

    async def work() -> None:
        while time.perf_counter() < ends:
            await put_timed(engine, next(pairs), took)

    await asyncio.gather(*(work() for _ in range(tasks)))
    return took


async def one_round(turn: Turn) -> None:
    seconds = turn.plan.choose(0.2, 5.0, 20.0)
    loads = [(f"{rate} a second at random", at_random, rate) for rate in RATES]
    loads += [(f"{tasks} tasks that wait" if tasks > 1 else "1 task that waits", in_tasks, tasks) for tasks in TASKS]
    with slow_s3() as s3:
        s3.make_bucket(BUCKET)
        s3.answer_after(turn.plan.choose(0.0, DELAY_S, DELAY_S))
        kinds: Sequence[type[OnS3]] = taking_turns(turn, SlateAsync, Gathering, SlateDB)
        for kind in kinds:
            for number, (load, write, how_many) in enumerate(loads):
                engine = await kind.start_on_s3(s3.url, BUCKET, f"{kind.name.replace(' ', '-')}-{number}")
                try:
                    await asyncio.sleep(turn.plan.choose(0.0, SETTLE_S, SETTLE_S))
                    before, began = s3.counts(), time.perf_counter()
                    took = await write(engine, how_many, seconds, number + turn.number)
                    lasted = time.perf_counter() - began
                    counts = s3.counts() - before
                finally:
                    await engine.stop()
                turn.record(f"{load}: PUTs a second", kind.name, counts["PUT"] / lasted, "requests/s")
                turn.record(f"{load}: writes a second", kind.name, len(took) / lasted, "rows/s")
                turn.record(f"{load}: p50 of a put", kind.name, percentiles(took or [0.0]).p50, "ms")
                turn.record(f"{load}: a month", kind.name, of_month(counts, lasted).dollars(), "dollars")


FAMILY = Family(
    "cadence",
    "Durable writes at once or gathered, S3 that takes 30 ms",
    (),
    one_round,
    notes=(
        "slate_async: default settings, a log object goes out as soon as no other is on its way. Not at once:"
        " `flush_at_once=False` and `flush_interval_ms=100`. slatedb: default settings, 100 ms.",
        "List prices as in the family `cost`.",
    ),
)
