"""Workloads A, B, C, E and F of YCSB by 64 tasks, over data larger than the block cache.

A: half reads, half updates; B: reads, one in 20 an update; C: reads; E: scans of 50 rows, one in 20 an insert; F: half
reads, half reads that are followed by an update of what was read. Keys are drawn by Zipf's law (0.99) or evenly.
Source: Cooper et al., Benchmarking Cloud Serving Systems with YCSB (2010).
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.engines import OneRocks, OneSlateAsync, OneSlateDB, taking_turns, with_cache
from tests.benchmarks.engines.single import SingleOperations, SingleOperationsOnS3
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Samples, Turn, folder, require
from tests.benchmarks.rows import KEY_BYTES, Pair, cut, make_rows
from tests.benchmarks.slow_s3 import slow_s3

VALUE_BYTES = 1_000
ROW_BYTES = KEY_BYTES + VALUE_BYTES
SCAN_ROWS = 50
TASKS = 64
ZIPF = 0.99
DELAY_S = 0.02
BUCKET = "ycsb"
WORKLOADS = {
    "C": (1.0, "update"),
    "B": (0.95, "update"),
    "A": (0.5, "update"),
    "F": (0.5, "modify"),
    "E": (0.05, "insert"),
}
"""In the order they run: the share of reads (of E: of inserts), and what the others do."""
LAWS = ("zipf", "uniform")
TIMES = (3, 30)
"""The data is so many times the cache."""
LOCAL, S3 = "folder", "S3"
LEAST_CACHE_BYTES = 64 << 10
GET_CPU = "C, uniform, 30 × the cache, folder: processor time of a read by one task"


def measure_of(workload: str, law: str, times: int, place: str, what: str) -> str:
    """The name of a measure."""
    return f"{workload}, {law}, {times} × the cache, {place}: {what}"


@dataclass(frozen=True)
class Phase:
    """One workload over one law of keys."""

    workload: str
    law: str
    times: int
    place: str

    def measure(self, what: str) -> str:
        return measure_of(self.workload, self.law, self.times, self.place, what)


class Draws:
    """Which rows are asked for, and what is done to them: drawn before anything is timed, and reused in a circle."""

    def __init__(self, rows: int, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        ranks = np.cumsum(1 / np.arange(1, rows + 1) ** ZIPF)
        order = rng.permutation(rows)
        self.keys = {
            "zipf": order[np.searchsorted(ranks, rng.random(count) * ranks[-1])].tolist(),
            "uniform": rng.integers(0, rows, count).tolist(),
        }
        self.chances: list[float] = rng.random(count).tolist()


class Data:
    """The rows, and values to write: each begins with its key, so that every answer can be checked."""

    def __init__(self, rows: int, turn: int, draws: int) -> None:
        rng = random.Random(turn)
        self.keys = [rng.randbytes(KEY_BYTES) for _ in range(rows)]
        self.filling = rng.randbytes(VALUE_BYTES * 2)
        self.draws = Draws(rows, turn, draws)
        self._inserted = 0
        self._written = 0

    def value(self, key: bytes) -> bytes:
        self._written += 1
        at = self._written % VALUE_BYTES
        return key + self.filling[at : at + VALUE_BYTES - len(key)]

    def pairs(self) -> Iterator[Pair]:
        for key, value in zip(self.keys, make_values(len(self.keys)), strict=True):
            yield key, key + value[len(key) :]

    def new_key(self) -> bytes:
        self._inserted += 1
        return random.Random(f"new {self._inserted}").randbytes(KEY_BYTES)


def make_values(count: int) -> Iterator[bytes]:
    """Random values, which do not compress."""
    return (value for _, value in make_rows(count, count, VALUE_BYTES))


Operation = Callable[[bytes, float], Awaitable[None]]


def operation(engine: SingleOperations, workload: str, data: Data) -> Operation:
    """What a task does with the next key, by chance."""
    share, other = WORKLOADS[workload]
    get, put, scan, name = engine.get_one, engine.put_one, engine.scan_one, engine.name

    async def read(key: bytes) -> None:
        found = await get(key)
        require(found is not None and found.startswith(key), name, "a read")

    async def point(key: bytes, chance: float) -> None:
        if chance < share:
            await read(key)
            return
        if other == "modify":
            await read(key)
        await put(key, data.value(key))

    async def ranges(key: bytes, chance: float) -> None:
        if chance < share:
            new = data.new_key()
            await put(new, data.value(new))
            return
        rows = await scan(key, SCAN_ROWS)
        require(0 < len(rows) <= SCAN_ROWS, name, "a scan")
        first = rows[0]
        require((first[0] if isinstance(first, tuple) else first.key) == key, name, "a scan")

    return ranges if other == "insert" else point


async def work(
    step: Operation, draws: Iterator[tuple[bytes, float]], tasks: int, seconds: float
) -> tuple[float, list[float]]:
    """So many tasks for so long, each one operation after the other: seconds it took, milliseconds of each."""
    took: list[float] = []
    clock = time.perf_counter
    began = clock()
    end = began + seconds

    async def one() -> None:
        finished = began
        while finished < end:
            key, chance = next(draws)
            started = clock()
            await step(key, chance)
            finished = clock()
            took.append(finished - started)

    await asyncio.gather(*(one() for _ in range(tasks)))
    return clock() - began, [1000 * each for each in took]


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def run_phase(turn: Turn, engine: SingleOperations, data: Data, phase: Phase, seconds: float) -> None:
    """Warm up, measure, and for one of ours see how long an operation takes by itself."""
    step = operation(engine, phase.workload, data)
    draws = data.draws
    offset = (1 + [*WORKLOADS].index(phase.workload)) * phase.times * 9973 % len(draws.chances)
    keys = [data.keys[number] for number in draws.keys[phase.law]]
    endless = circle(list(zip(keys, draws.chances, strict=True)), offset)
    await work(step, endless, TASKS, seconds / 5)
    elapsed, found = await work(step, endless, TASKS, seconds)
    found.sort()
    turn.record(phase.measure("operations"), engine.name, len(found) / elapsed, "a second")
    turn.record(phase.measure("p99"), engine.name, percentile(found, 99), "ms")
    turn.samples.add_times(phase.measure("latency"), engine.name, found)
    if engine.name == OURS and phase.place == LOCAL:
        alone, singles = await work(step, endless, 1, seconds / 5)
        service = 1000 * alone / len(singles)
        turn.record(phase.measure("p99 by 64 service times"), OURS, percentile(found, 99) / (TASKS * service), "times")
    if phase.measure("") == GET_PHASE.measure(""):
        before = time.process_time()
        _, singles = await work(step, endless, 1, seconds / 2)
        turn.record(GET_CPU, engine.name, 1e6 * (time.process_time() - before) / len(singles), "µs")


GET_PHASE = Phase("C", "uniform", 30, LOCAL)


def circle(items: list[tuple[bytes, float]], at: int) -> Iterator[tuple[bytes, float]]:
    while True:
        yield from items[at:]
        at = 0


Opening = Callable[[type[Any]], Awaitable[SingleOperations]]


async def measure(
    turn: Turn, kinds: Sequence[type[Any]], data: Data, place: str, opened: Opening, seconds: float
) -> None:
    """Fill every engine, then run all workloads with a cache of each size."""
    nbytes = len(data.keys) * ROW_BYTES
    for kind in kinds:
        engine = await opened(kind)
        try:
            await engine.write_all(list(cut(list(data.pairs()), 1_000)))
            await engine.flush()
        finally:
            await engine.stop()
    for times in TIMES:
        for kind in turn.in_order(kinds):
            engine = await opened(with_cache(kind, max(LEAST_CACHE_BYTES, nbytes // times)))
            gc.collect()
            gc.freeze()
            try:
                for law in LAWS:
                    for workload in WORKLOADS:
                        await run_phase(turn, engine, data, Phase(workload, law, times, place), seconds)
            finally:
                gc.unfreeze()
                await engine.stop()


async def one_round(turn: Turn) -> None:
    choose = turn.plan.choose
    data = Data(choose(400, 60_000, 200_000), turn.number, choose(500, 100_000, 400_000))
    kinds = taking_turns(turn, OneSlateAsync, OneSlateDB, OneRocks)
    with folder() as path:

        async def local(kind: type[SingleOperations]) -> SingleOperations:
            return await kind.start(f"{path}/{kind.name}")

        await measure(turn, kinds, data, LOCAL, local, choose(0.01, 0.5, 1.2))
    with slow_s3() as s3:
        s3.make_bucket(BUCKET)

        async def remote(kind: type[SingleOperationsOnS3]) -> SingleOperations:
            s3.answer_after(choose(0.0, DELAY_S, DELAY_S))
            return await kind.start_on_s3(s3.url, BUCKET, kind.name)

        small = Data(choose(400, 10_000, 30_000), turn.number, choose(500, 20_000, 50_000))
        on_s3 = taking_turns(turn, OneSlateAsync, OneSlateDB)
        await measure(turn, on_s3, small, S3, remote, choose(0.01, 0.3, 0.6))


def plot(samples: Samples) -> Any:
    """Of each workload how many of its operations took how long, with every law, size and place."""
    from matplotlib import pyplot

    columns = [(law, times, place) for place in (LOCAL, S3) for times in TIMES for law in LAWS]
    workloads = sorted(WORKLOADS)
    inches = (2.6 * len(columns), 2 * len(workloads))
    figure, axes = pyplot.subplots(len(workloads), len(columns), figsize=inches, squeeze=False, layout="constrained")
    bins: npt.NDArray[np.float64] = np.logspace(-3, 3, 61)
    for row, workload in enumerate(workloads):
        for column, (law, times, place) in enumerate(columns):
            axis = axes[row][column]
            found = samples.times.get(measure_of(workload, law, times, place, "latency"), {})
            for subject, milliseconds in sorted(found.items(), key=lambda item: item[0] != OURS):
                taken = np.asarray(milliseconds)
                share = np.full(len(taken), 100 / max(1, len(taken)))
                style = {"color": "#c2410c", "linewidth": 1.8} if subject == OURS else {"linewidth": 1.0}
                axis.hist(taken, bins, weights=share, histtype="step", label=subject, **style)
            axis.set_xscale("log")
            axis.tick_params(labelsize=6)
            if not row:
                axis.set_title(f"{place}, {times} × the cache, {law}", fontsize=8)
            if not column:
                axis.set_ylabel(f"{workload}: % of operations", fontsize=8)
            if row == len(workloads) - 1:
                axis.set_xlabel("ms", fontsize=8)
    axes[0][0].legend(fontsize=7)
    return figure


def _goals() -> tuple[Goal, ...]:
    goals = [Goal(8, GET_CPU, 60, most=True)]
    for workload in sorted(WORKLOADS):
        scans = workload == "E"
        for law in LAWS:
            for times in TIMES:
                phase = Phase(workload, law, times, LOCAL)
                rate, p99 = phase.measure("operations"), phase.measure("p99")
                goals.append(Goal(8, rate, 4 if scans else 3, (rate, "slatedb")))
                goals.append(Goal(8, p99, 0.5 if scans else 1, (p99, "slatedb"), most=True))
                goals.append(Goal(8, phase.measure("p99 by 64 service times"), 3, most=True))
    return tuple(goals)


FAMILY = Family(
    "ycsb",
    "YCSB, 64 tasks, rows of 1,000 bytes",
    _goals(),
    one_round,
    notes=(
        "Every engine has a block cache of a 3rd, then of a 30th of the data (slatedb's default is 512 MiB);"
        " slatedb and rocksdict read the files through the system's page cache, too.",
        "Writes do not wait until they are durable. Scans of 50 rows: next_batch(50) of slatedb.",
        "rocksdict: filters of 10 bits a key. Its calls never give way, so none waits for another.",
        "A service time is what an operation takes when a single task asks, the mean.",
    ),
    plot=plot,
)
