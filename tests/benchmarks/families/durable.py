"""Writes that wait until they are durable, on an S3 that takes 50 ms for any request: alone, and in many tasks."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.store_url import parse_url
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import system_runtime
from tests.benchmarks.engines import SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import OnS3
from tests.benchmarks.family import Family
from tests.benchmarks.goals import Goal
from tests.benchmarks.machine import percentiles
from tests.benchmarks.rounds import Turn, require, stopwatch
from tests.benchmarks.rows import ROW_BYTES, Pair, make_rows
from tests.benchmarks.slow_s3 import SlowS3, slow_s3

BUCKET = "bench"
STORE = "the store"
DELAY_S = 0.05
RAW_PUTS = 15
ALONE = "1 task, p50"
PUTS = "PUT requests for 1,000 durable writes, 1 task"


def of_tasks(tasks: int) -> tuple[str, str, str]:
    """Names of measures: rate, slowest hundredth, requests."""
    return f"{tasks} tasks", f"{tasks} tasks, p99", f"PUT requests for 1,000 durable writes, {tasks} tasks"


async def put_seconds(store: ObjectStore, rows: int, puts: int) -> float:
    """The store's own latency: the middle of some PUTs of a body as large as ``rows`` rows, one after the other."""
    body = bytes(rows * ROW_BYTES)
    took = []
    for number in range(puts):
        started = time.perf_counter()
        await store.put(f"raw/{rows}/{number}", body)
        took.append(time.perf_counter() - started)
    return statistics.median(took)


async def put_in_tasks(engine: OnS3, rows: list[Pair], tasks: int) -> list[float]:
    """Every task puts the next row as soon as its last one is durable; milliseconds each put took."""
    queue, took = iter(rows), []

    async def work() -> None:
        for pair in queue:
            started = time.perf_counter()
            await engine.put_durable(pair)
            took.append(1000 * (time.perf_counter() - started))

    await asyncio.gather(*(work() for _ in range(tasks)))
    return took


async def measure_tasks(turn: Turn, s3: SlowS3, engine: OnS3, rows: list[Pair], tasks: int) -> None:
    name = engine.name
    rate, slowest, requests = of_tasks(tasks)
    before = s3.counts()
    with stopwatch() as watch:
        took = await put_in_tasks(engine, rows, tasks)
    seconds = watch.seconds["wall"]
    puts = (s3.counts() - before)["PUT"]
    found = await engine.get_all([key for key, _ in rows])
    require(found == [value for _, value in rows], name, "a read of durable rows")
    if tasks == 1:
        turn.record(ALONE, name, percentiles(took).p50, "ms")
        turn.record(PUTS, name, 1000 * puts / len(rows), "requests")
        return
    turn.record(rate, name, len(rows) / seconds)
    turn.record(slowest, name, percentiles(took).p99, "ms")
    turn.record(requests, name, 1000 * puts / len(rows), "requests")


async def measure_store(turn: Turn, s3: SlowS3, counts: tuple[int, ...]) -> None:
    """What the store itself takes, and what it allows: every task's row in one PUT, one PUT after the other."""
    runtime = system_runtime()
    store, _ = open_store(parse_url(f"s3://{BUCKET}/raw?endpoint_url={s3.url}"), runtime)
    try:
        await put_seconds(store, 1, 2)
        for tasks in counts:
            seconds = await put_seconds(store, tasks, turn.plan.choose(2, RAW_PUTS, RAW_PUTS))
            if tasks == 1:
                turn.record(ALONE, STORE, 1000 * seconds, "ms")
                continue
            rate, slowest, _ = of_tasks(tasks)
            turn.record(rate, STORE, tasks / seconds)
            turn.record(slowest, STORE, 1000 * seconds, "ms")
    finally:
        await store.close()


async def one_round(turn: Turn) -> None:
    counts = (1, 256, 4096)
    waves = turn.plan.choose(1, 5, 10)
    with slow_s3() as s3:
        s3.make_bucket(BUCKET)
        s3.answer_after(turn.plan.choose(0.0, DELAY_S, DELAY_S))
        await measure_store(turn, s3, counts)
        kinds: Sequence[type[OnS3]] = taking_turns(turn, SlateAsync, SlateDB)
        for kind in kinds:
            engine = await kind.start_on_s3(s3.url, BUCKET, kind.name)
            try:
                for tasks in counts:
                    rows = make_rows(turn.plan.choose(1, 20, 40) if tasks == 1 else tasks * waves, tasks + turn.number)
                    await measure_tasks(turn, s3, engine, rows, tasks)
            finally:
                await engine.stop()


FAMILY = Family(
    "durable",
    "Durable writes, S3 that takes 50 ms",
    (
        Goal(2, ALONE, 1.3, (ALONE, STORE), most=True),
        *(
            goal
            for tasks in (256, 4096)
            for rate, slowest, _ in [of_tasks(tasks)]
            for goal in (Goal(2, rate, 0.8, (rate, STORE)), Goal(2, slowest, 3, (slowest, STORE), most=True))
        ),
    ),
    one_round,
    notes=(
        "the store: PUTs of a body of that many rows, one after the other, by the same client; its rate is what one"
        " PUT at a time with a row of every task in it allows.",
        "slatedb: default settings, its log is uploaded every 100 ms. PUT requests count everything the engine sends.",
        "The S3 is moto in a process of its own; every request waits 50 ms before its turn.",
    ),
)
