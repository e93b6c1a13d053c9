"""What a compaction costs others: how far it holds up a writer's event loop, and how much memory it takes.

``scripts/bench --family compaction --megabytes 1024 --memory 100 2048`` compacts that much fully, with the default
settings, from L0 SSTs of random keys whose values halve when compressed:

- beside a writer with a light load, in its process and in one of its own: lag of the writer's loop, time of a
  durable put;
- alone, in a process that does nothing else: its highest memory before and after, beside the formula's.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import slate_async as slate
from slate_async.engine.compaction.local_executor import (
    LEAST_READ_AHEAD_BYTES,
    MOST_READ_AHEAD_BYTES,
    READ_AHEAD_BYTES,
    ROUND_BYTES,
)
from tests.benchmarks.machine import (
    Percentiles,
    about,
    fresh_process,
    peak_mib,
    percentiles,
    watched_loop,
    write_results,
)

KEY_BYTES = 16
VALUE_BYTES = 1_000
BATCH_ROWS = 500
WRITERS = 4
PAUSE_S = 0.02
"""Between two puts of one writing task."""
QUIET_S = 5.0
METADATA_SHARE = 0.02
"""Of an SST: its index and filter."""
MIB = 1 << 20
PLACES = ("nowhere", "in the writer's process", "in another process")


@dataclass(frozen=True)
class Disturbance:
    """A writer while a compaction runs. ``put``: milliseconds a durable put took."""

    compaction: str
    seconds: float
    loop: Percentiles
    put: Percentiles


@dataclass(frozen=True)
class Memory:
    """A compaction in a process of its own, in MiB: the highest use before it and after it, and what it may take."""

    megabytes: int
    sources: int
    seconds: float
    before: float
    after: float
    formula: float


def settings_for(**more: object) -> slate.Settings:
    return slate.Settings(**{"auto_compaction": False, "l0_max_ssts": 10_000, **more})


async def build(folder: str, megabytes: int) -> None:
    """A database of so much in L0."""
    rng = random.Random(1)
    rows = megabytes * MIB // (KEY_BYTES + VALUE_BYTES)
    async with slate.open(folder, settings=settings_for()) as db:
        for _ in range(rows // BATCH_ROWS):
            batch = slate.WriteBatch()
            for _ in range(BATCH_ROWS):
                batch.put(rng.randbytes(KEY_BYTES), rng.randbytes(VALUE_BYTES // 2).hex().encode())
            await db.write(batch, await_durable=False)
        await db.flush(l0=True)


def build_here(folder: str, megabytes: int) -> None:
    asyncio.run(build(folder, megabytes))


async def compact_all(folder: str) -> tuple[int, float, float, float]:
    """Sources, seconds, and the highest memory before and after."""
    async with slate.open_compactor(folder, settings=settings_for(), auto_compaction=False) as compactor:
        sources = compactor.status().l0_ssts
        before, started = peak_mib(), time.perf_counter()
        await compactor.compact(full=True)
        return sources, time.perf_counter() - started, before, peak_mib()


def compact_here(folder: str) -> tuple[int, float, float, float]:
    return asyncio.run(compact_all(folder))


@asynccontextmanager
async def light_load(db: slate.Db) -> AsyncIterator[list[float]]:
    """A few tasks that put now and then; the milliseconds each put took."""
    found: list[float] = []

    async def work(number: int) -> None:
        rng = random.Random(number)
        while True:
            started = time.perf_counter()
            await db.put(rng.randbytes(KEY_BYTES), rng.randbytes(VALUE_BYTES))
            found.append(1000 * (time.perf_counter() - started))
            await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(work(number)) for number in range(WRITERS)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def disturb(folder: str, where: str) -> Disturbance:
    """Write, and compact everything meanwhile."""
    async with slate.open(folder, settings=settings_for()) as db:
        with fresh_process() as elsewhere:
            async with light_load(db) as puts, watched_loop() as lags:
                started = time.perf_counter()
                if where == PLACES[0]:
                    await asyncio.sleep(QUIET_S)
                elif where == PLACES[1]:
                    await db.compact(full=True)
                else:
                    await asyncio.get_running_loop().run_in_executor(elsewhere, compact_here, folder)
                seconds = time.perf_counter() - started
    return Disturbance(where, seconds, percentiles(lags), percentiles(puts))


def formula_mib(sources: int) -> float:
    """See docs/design/compaction.md."""
    settings = slate.Settings()
    ahead = min(MOST_READ_AHEAD_BYTES, max(LEAST_READ_AHEAD_BYTES, READ_AHEAD_BYTES // sources))
    reading = sources * (3 * ahead + METADATA_SHARE * settings.sst_bytes)
    return settings.compaction_parallelism * (reading + 3 * ROUND_BYTES + 2 * settings.sst_bytes) / MIB


async def measure_lags(megabytes: int) -> list[Disturbance]:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "built")
        with fresh_process() as process:
            process.submit(build_here, str(built), megabytes).result()
        found = []
        for number, where in enumerate(PLACES):
            copied = Path(folder, str(number))
            shutil.copytree(built, copied)
            found.append(await disturb(str(copied), where))
            shutil.rmtree(copied)
        return found


def measure_memory(megabytes: int) -> Memory:
    with tempfile.TemporaryDirectory() as folder:
        with fresh_process() as process:
            process.submit(build_here, folder, megabytes).result()
        with fresh_process() as process:
            sources, seconds, before, after = process.submit(compact_here, folder).result()
        return Memory(megabytes, sources, seconds, before, after, formula_mib(sources))


def show(lags: list[Disturbance], memory: list[Memory], megabytes: int) -> None:
    console, machine = Console(width=120), about()
    load = f"Python {machine['python']}, {machine['cores']} cores, load {machine['load']:.1f}"
    table = Table(title=f"a writer while {megabytes} MB are compacted; {load}")
    for heading in ("compaction", "seconds", "its loop is late by", "a durable put takes"):
        table.add_column(heading)
    for lag in lags:
        table.add_row(lag.compaction, f"{lag.seconds:.1f}", str(lag.loop), str(lag.put))
    console.print(table)
    table = Table(title=f"memory of a compaction, MiB; {load}")
    for heading in ("MB compacted", "sources", "seconds", "before", "after", "growth", "formula"):
        table.add_column(heading, justify="right")
    for each in memory:
        numbers = (each.seconds, each.before, each.after, each.after - each.before, each.formula)
        table.add_row(str(each.megabytes), str(each.sources), *[f"{number:.0f}" for number in numbers])
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1_024, help="compacted beside a writer (default 1024)")
    parser.add_argument("--memory", type=int, nargs="*", default=[100, 2_048], help="compacted alone, each")
    chosen = parser.parse_args()
    lags = asyncio.run(measure_lags(chosen.megabytes)) if chosen.megabytes else []
    memory = [measure_memory(megabytes) for megabytes in chosen.memory]
    write_results(
        "compaction", {"lags": [asdict(lag) for lag in lags], "memory": [asdict(footprint) for footprint in memory]}
    )
    show(lags, memory, chosen.megabytes)


if __name__ == "__main__":
    main()
