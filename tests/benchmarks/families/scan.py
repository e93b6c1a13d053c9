"""Scans of warm data: everything by rows and by batches, 20 rows from a random key, over one run and over four; and
everything by rows of a memtable."""

from __future__ import annotations

import random
from bisect import bisect_left

from tests.benchmarks.engines import Lmdb, Rocks, SlateAsync, SlateDB, Uncompacted, taking_turns
from tests.benchmarks.engines.protocol import BatchScans, Compacts, Engine, RowScans, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair, cut, make_rows

ENGINES = (SlateAsync, SlateDB, Rocks, Lmdb)
RUNS = 4
SHORT_ROWS = 20
ROWS, BATCHES, SHORT, SHORT_RUNS = "rows", "batches", "20 rows from a random key", "20 rows, four runs"
ROWS_RUNS, BATCHES_RUNS = "rows, four runs", "batches, four runs"
ROWS_MEMORY = "rows, memtable"


async def measure(turn: Turn, engine: Engine, ordered: list[Pair], measures: tuple[str, str, str]) -> None:
    """Scan everything by rows and batches, and a little at many places; everything is checked."""
    rows, batches, short = measures
    if isinstance(engine, RowScans):
        await engine.scan_rows()
        with turn.timed(rows, engine.name, len(ordered)):
            found = await engine.scan_rows()
        require(found == ordered, engine.name, "a scan")
        del found
        slow = isinstance(engine, SlateDB)
        picked = random.Random(turn.number).choices(ordered, k=turn.plan.choose(10, 200 if slow else 2_000, 2_000))
        starts = [key for key, _ in picked]
        await engine.scan_short(starts[:100], SHORT_ROWS)
        with turn.timed(short, engine.name, len(starts), "scans/s"):
            some = await engine.scan_short(starts, SHORT_ROWS)
        for start, got in zip(starts, some, strict=True):
            at = bisect_left(ordered, (start, b""))
            require(got == ordered[at : at + SHORT_ROWS], engine.name, "a short scan")
    if isinstance(engine, BatchScans):
        with turn.timed(batches, engine.name, len(ordered)):
            count = await engine.scan_batches()
        require(count == len(ordered), engine.name, "a scan in batches")


async def measure_memory(turn: Turn, engine: SlateAsync, ordered: list[Pair]) -> None:
    """Scan everything by rows before it is flushed."""
    await engine.scan_rows()
    with turn.timed(ROWS_MEMORY, engine.name, len(ordered)):
        found = await engine.scan_rows()
    require(found == ordered, engine.name, "a scan of a memtable")


async def build_runs(engine: Uncompacted, rows: list[Pair]) -> None:
    """``rows``, each quarter in a run that spans the whole range of keys."""
    for part in cut(rows, -(-len(rows) // RUNS)):
        await engine.write_all(list(cut(part, 1_000)))
        await engine.flush()
        await engine.db.compact(level=0)
    require(engine.db.status().sorted_runs == RUNS, OURS, "the shape of the test")


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(400, 50_000, 200_000), turn.number)
    ordered = sorted(rows)
    for kind in taking_turns(turn, *ENGINES):
        async with started(kind) as engine:
            await engine.write_all(list(cut(rows, 1_000)))
            if isinstance(engine, SlateAsync):
                await measure_memory(turn, engine, ordered)
            await (engine.compact() if isinstance(engine, Compacts) else engine.flush())
            await measure(turn, engine, ordered, (ROWS, BATCHES, SHORT))
        if kind is SlateAsync:
            async with started(Uncompacted) as four:
                await build_runs(four, rows)
                await measure(turn, four, ordered, (ROWS_RUNS, BATCHES_RUNS, SHORT_RUNS))


FAMILY = Family(
    "scan",
    "Scans, warm",
    (
        Goal(5, ROWS, 1, (ROWS, "rocksdict")),
        Goal(5, BATCHES, 10_000_000),
        Goal(5, SHORT, 0.7, (SHORT, "rocksdict")),
        Goal(5, ROWS_RUNS, 0.5, (ROWS, OURS)),
        Goal(5, ROWS_MEMORY, 0.7, (ROWS, OURS)),
        Goal(5, BATCHES_RUNS, 0.5, (BATCHES, OURS)),
    ),
    one_round,
    notes=(
        "Batches: pyarrow.RecordBatch of slate_async, next_batch(1024) of slatedb, whose short scans use it too.",
        "The rows of a scan are kept in a list, and compared afterwards.",
    ),
)
