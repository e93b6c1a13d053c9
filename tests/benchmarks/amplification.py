"""Write, space and read amplification of the planners, and how long L0 made the writer wait.

``scripts/bench --family amplification --megabytes 128`` writes each load as fast as it is taken, compacted beside the
writer, then compacts what is due and reads at random. All sizes are a 64th of the defaults, so that so little data
makes as many SSTs, runs and levels as eight gigabytes would. Values are random and not compressed.

updates: random keys, each overwritten eight times · time series: rising keys, nothing overwritten
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

import slate_async as slate
from tests.benchmarks.machine import about, write_results

KEY_BYTES = 16
VALUE_BYTES = 400
ROW_BYTES = KEY_BYTES + VALUE_BYTES
BATCH_ROWS = 100
OVERWRITES = 8
READS = 2_000
LOOK_EVERY = 50
"""Batches between two looks at the status."""
MIB = 1 << 20
SETTINGS = {
    "l0_sst_bytes": MIB,
    "sst_bytes": MIB,
    "level_base_bytes": 4 * MIB,
    "max_unflushed_bytes": 4 * MIB,
    "flush_bytes": MIB // 4,
    "compression": "none",
    "block_cache_bytes": 0,
}
STYLES = ("size_tiered", "leveled")


def updates(rows: int, rng: random.Random) -> Iterator[int]:
    """Numbers of keys, in the order they are written."""
    return (rng.randrange(rows // OVERWRITES) for _ in range(rows))


def time_series(rows: int, rng: random.Random) -> Iterator[int]:
    return iter(range(rows))


LOADS: dict[str, Callable[[int, random.Random], Iterator[int]]] = {"updates": updates, "time series": time_series}


@dataclass
class Figures:
    """One load under one planner. Amplification is bytes (or sources) for each byte (or read) of the user's.

    sources: L0 SSTs and runs, on average while writing, and at rest; peak_space: of the SSTs that the manifest names
    get_requests, get_bytes: for one point read of a row that is there, without a block cache
    """

    load: str
    style: str
    seconds: float = 0
    stalled_seconds: float = 0
    write: float = 0
    log: float = 0
    space: float = 0
    peak_space: float = 0
    sources: float = 0
    sources_at_rest: int = 0
    get_requests: float = 0
    get_bytes: float = 0


def key_of(number: int) -> bytes:
    return b"%016d" % number


async def write_load(db: slate.Db, load: str, rows: int, rng: random.Random) -> tuple[set[int], list[slate.Status]]:
    """Write it all; the keys that are there then, and the status now and then."""
    written: set[int] = set()
    looks: list[slate.Status] = []
    numbers = LOADS[load](rows, rng)
    for turn in range(rows // BATCH_ROWS):
        batch = slate.WriteBatch()
        for _ in range(BATCH_ROWS):
            number = next(numbers)
            written.add(number)
            batch.put(key_of(number), rng.randbytes(VALUE_BYTES))
        await db.write(batch, await_durable=False)
        if turn % LOOK_EVERY == 0:
            looks.append(db.status())
    await db.flush(l0=True)
    return written, looks


def sources(status: slate.Status) -> int:
    """What a read of a key that is nowhere asks."""
    return status.l0_ssts + status.sorted_runs


async def read_some(db: slate.Db, figures: Figures, keys: list[int], rng: random.Random) -> None:
    """Point reads; the first ones only load what stays in memory: indexes and filters."""
    for number in rng.sample(keys, min(len(keys), READS)):
        await db.get(key_of(number))
    before = db.metrics()
    sample = rng.sample(keys, min(len(keys), READS))
    for number in sample:
        if await db.get(key_of(number)) is None:
            raise SystemExit(f"{figures}: key {number} is lost")
    after = db.metrics()
    requests = [name for name in after if name.startswith("store.requests.get")]
    figures.get_requests = sum(after[name] - before.get(name, 0) for name in requests) / len(sample)
    figures.get_bytes = (after["store.read_bytes"] - before["store.read_bytes"]) / len(sample)


async def measure(load: str, style: str, megabytes: int, folder: str) -> Figures:
    figures, rng = Figures(load, style), random.Random(1)
    rows = megabytes * MIB // ROW_BYTES
    settings = slate.Settings(**SETTINGS, compaction_style=style)
    async with slate.open(folder, settings=settings) as db:
        started = time.perf_counter()
        written, looks = await write_load(db, load, rows, rng)
        figures.seconds = time.perf_counter() - started
        await db.compact()
        metrics, status = db.metrics(), db.status()
        user, live = rows * ROW_BYTES, len(written) * ROW_BYTES
        figures.stalled_seconds = float(metrics["l0.stalled_seconds"])
        figures.write = (metrics["l0.written_bytes"] + metrics["compaction.written_bytes"]) / user
        figures.log = metrics["log.written_bytes"] / user
        figures.space = status.sst_bytes / live
        figures.peak_space = max(look.sst_bytes for look in (*looks, status)) / live
        figures.sources = sum(map(sources, looks)) / len(looks)
        figures.sources_at_rest = sources(status)
        await read_some(db, figures, sorted(written), rng)
    return figures


def show(found: list[Figures], megabytes: int) -> None:
    machine = about()
    title = f"{megabytes} MB written; Python {machine['python']}, {machine['cores']} cores, load {machine['load']:.1f}"
    table = Table(title=title)
    for heading in ("load", "planner", "write", "log", "space", "at most", "sources", "at rest", "requests", "bytes"):
        table.add_column(heading, justify="left" if heading in ("load", "planner") else "right")
    table.add_column("stalled / s", justify="right")
    for figures in found:
        numbers = (
            figures.write,
            figures.log,
            figures.space,
            figures.peak_space,
            figures.sources,
            figures.sources_at_rest,
            figures.get_requests,
        )
        cells = [f"{number:.2f}" for number in numbers]
        stalled = f"{figures.stalled_seconds:.1f} / {figures.seconds:.1f}"
        table.add_row(figures.load, figures.style, *cells, f"{figures.get_bytes:,.0f}", stalled)
    Console(width=120).print(table)


async def run(megabytes: int) -> list[Figures]:
    found = []
    for load in LOADS:
        for style in STYLES:
            with tempfile.TemporaryDirectory() as folder:
                found.append(await measure(load, style, megabytes, folder))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=128, help="written of each load (default 128)")
    chosen = parser.parse_args()
    found = asyncio.run(run(chosen.megabytes))
    write_results("amplification", [asdict(figures) for figures in found])
    show(found, chosen.megabytes)


if __name__ == "__main__":
    main()
