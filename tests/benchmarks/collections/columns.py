"""Columns: consolidation beside Arrow's own sort and group, and a merge in bounded memory beside one without bound.

Everything runs on one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slate_async.collections.core.consolidate import consolidate, consolidate_unordered
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.merging import merge
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require

SORTED, UNORDERED, IN_ORDER, MERGE = (
    "consolidate",
    "consolidate, any order",
    "consolidate, sorted input",
    "merge two runs",
)
MEMORY = "memory of the merge"
SORT, GROUP, WHOLE = "take(sort_indices)", "group_by", "read, concat, sort, write"
GROUP_AND_DROP = "group_by, zeros dropped"
ATTEMPTS = 5
"""Pairs of a round, in any order: each takes a fraction of a second, and pays for the memory that the one before it
has given back."""
SCHEMA = UpdateSchema.of_bytes(TimeKind.U64)
KEYS = [(name, "ascending") for name in SCHEMA.key]
ROW_GROUP = 64 * 1024
TIMES = 100
SINCE = Frontier([(TIMES // 2,)])


def updates(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    """Data of 44 bytes, of which some are drawn twice, at `TIMES` times; a third of the differences are -1."""
    numbers = rng.integers(0, rows, rows)
    data = [b"user:%012d:some-more-of-it-%011d" % (number, number * 7919 % 10**11) for number in numbers.tolist()]
    times, diffs = rng.integers(0, TIMES, rows).astype(np.uint64), rng.choice(np.array([-1, 1, 1]), rows)
    return pa.RecordBatch.from_arrays([pa.array(data), pa.array(times), pa.array(diffs)], schema=SCHEMA.arrow)


def by_sorting(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pc.sort_indices(batch, sort_keys=KEYS))


def by_grouping(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch]).group_by(SCHEMA.key, use_threads=False).aggregate([("_diff", "sum")])


def by_grouping_without_zeros(batch: pa.RecordBatch) -> pa.Table:
    grouped = by_grouping(batch)
    return grouped.filter(pc.not_equal(grouped["_diff_sum"], 0))


def consolidation(turn: Turn) -> None:
    batch = updates(np.random.default_rng(turn.number), turn.plan.choose(2_000, 200_000, 1_000_000))
    in_order = by_sorting(batch)
    expected = consolidate(batch, SCHEMA)
    require(consolidate(in_order, SCHEMA).equals(expected), OURS, "consolidation of sorted input")
    require(consolidate(SCHEMA.batch(consolidate_unordered(batch, SCHEMA)), SCHEMA).equals(expected), OURS, "any order")
    grouped = by_grouping(batch)
    require(pc.sum(pc.not_equal(grouped["_diff_sum"], 0)).as_py() == len(expected), GROUP, "consolidation")
    measured: list[tuple[str, str, Callable[[], object]]] = [
        (SORTED, OURS, lambda: consolidate(batch, SCHEMA)),
        (SORTED, SORT, lambda: by_sorting(batch)),
        (UNORDERED, OURS, lambda: consolidate_unordered(batch, SCHEMA)),
        (UNORDERED, GROUP, lambda: by_grouping(batch)),
        (UNORDERED, GROUP_AND_DROP, lambda: by_grouping_without_zeros(batch)),
        (IN_ORDER, OURS, lambda: consolidate(in_order, SCHEMA)),
        (IN_ORDER, GROUP, lambda: by_grouping(in_order)),
    ]
    for attempt in range(ATTEMPTS):
        for number in np.random.default_rng([turn.number, attempt]).permutation(len(measured)):
            measure, subject, work = measured[number]
            with turn.timed(measure, subject, len(batch)):
                work()


def slices(path: Path) -> Iterator[pa.RecordBatch]:
    """The row groups of a file, one after another."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROW_GROUP, use_threads=False):
            yield batch.cast(SCHEMA.arrow)


def in_slices(sources: list[Path], target: Path) -> tuple[int, int]:
    """Merge ``sources``; the rows, and the most that Arrow held on the way, in bytes."""
    rows, most, before = 0, 0, pa.total_allocated_bytes()
    with pq.ParquetWriter(target, SCHEMA.arrow, compression="zstd") as writer:
        for batch in merge([slices(source) for source in sources], SCHEMA, SINCE):
            most = max(most, pa.total_allocated_bytes() - before)
            writer.write_batch(batch, ROW_GROUP)
            rows += len(batch)
    return rows, most


def at_once(sources: list[Path], target: Path) -> None:
    table = pa.concat_tables([pq.read_table(source, use_threads=False) for source in sources])
    table = table.take(pc.sort_indices(table, sort_keys=KEYS))
    pq.write_table(table, target, row_group_size=ROW_GROUP, compression="zstd")


def merging(turn: Turn, path: Path) -> None:
    rows = turn.plan.choose(2_000, 300_000, 5_000_000)
    sources, target = [path / "0.parquet", path / "1.parquet"], path / "merged.parquet"
    for number, source in enumerate(sources):
        batch = consolidate(updates(np.random.default_rng([turn.number, number]), rows), SCHEMA)
        pq.write_table(pa.Table.from_batches([batch]), source, row_group_size=ROW_GROUP, compression="zstd")
    total = sum(pq.read_metadata(source).num_rows for source in sources)
    for subject in turn.in_order((OURS, WHOLE)):
        with turn.timed(MERGE, subject, total):
            if subject == OURS:
                merged, most = in_slices(sources, target)
            else:
                at_once(sources, target)
    require(0 < merged < total, OURS, "a merge")
    turn.record(MEMORY, OURS, most / 2**20, "MiB")


async def one_round(turn: Turn) -> None:
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        await asyncio.to_thread(consolidation, turn)
        with folder() as path:
            await asyncio.to_thread(merging, turn, Path(path))
    finally:
        pa.set_cpu_count(threads)


GOALS = (
    Goal(1, SORTED, 0.8, (SORTED, SORT)),
    Goal(1, UNORDERED, 0.9, (UNORDERED, GROUP)),
    Goal(1, IN_ORDER, 4, (IN_ORDER, GROUP)),
    Goal(2, MERGE, 0.5, (MERGE, WHOLE)),
    Goal(2, MEMORY, 256, most=True),
)
NOTES = (
    "Updates of 60 bytes. The peers are pyarrow's own functions; they leave out the sums of differences, or zeros.",
    "The merge reads and writes Parquet (zstd) in row groups of 64 K rows; memory is what Arrow allocated for it.",
)
