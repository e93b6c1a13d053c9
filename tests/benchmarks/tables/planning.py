"""Opening a table after many commits, and planning a scan of it: blocks are only described, in each format's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import slate_async as slate
from slate_async import col
from slate_async.tables.core.chain import BLOCK
from slate_async.tables.core.edits import Write
from slate_async.tables.core.names import block_key
from slate_async.tables.core.spans import BlockSpans
from slate_async.tables.scan_plan import Wanted, plan_of
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.tables.lakes import SCHEMA, Delta, Iceberg, Lake, Ours

BLOCKS = 10
ROWS = 1_000


async def open_and_plan(turn: Turn, measure: str, kind: type[Lake], path: str, commits: int) -> None:
    """Make ``commits`` commits of `BLOCKS` blocks each, then open the table and find the one block of a range."""
    lake = kind()
    await lake.create(path)
    at = commits * BLOCKS // 2
    times = turn.plan.choose(1, 3, 5)
    if isinstance(lake, Ours):
        await _fill_ours(lake, commits)
        await lake.close()
        with turn.timed(measure, kind.name, times, "times/s"):
            for _ in range(times):
                found = await _plan_ours(path, at)
    elif isinstance(lake, Delta):
        _fill_delta(path, commits)
        with turn.timed(measure, kind.name, times, "times/s"):
            for _ in range(times):
                found = _plan_delta(path, at)
    elif isinstance(lake, Iceberg):
        _fill_iceberg(lake, path, commits)
        with turn.timed(measure, kind.name, times, "times/s"):
            for _ in range(times):
                found = _plan_iceberg(lake, at)
    require(found == 1, kind.name, measure)


def _bounds(block: int) -> tuple[int, int]:
    return block * ROWS, block * ROWS + ROWS - 1


async def _fill_ours(lake: Ours, commits: int) -> None:
    context = lake.table._context
    for commit in range(commits):
        numbers = [commit * BLOCKS + at for at in range(BLOCKS)]
        rows: list[dict[str, Any]] = [
            {"key": block_key(commit, f"{number:032x}"), "first_row": -1, "last_row": -1, "carried": False}
            | {"rows": ROWS, "size": 20_000, "footer_size": 500, "footer_hash": bytes(16), "chunk_sums": bytes(16)}
            | {"schema_id": 0}
            for number in numbers
        ]
        blocks = pa.Table.from_pylist(rows, schema=BLOCK)
        for name, values in (("nulls", [0] * BLOCKS), ("low", [_bounds(at)[0] for at in numbers])):
            blocks = blocks.append_column(f"{name}.1", pa.array(values, pa.int64()))
        blocks = blocks.append_column("high.1", pa.array([_bounds(at)[1] for at in numbers], pa.int64()))
        await context.committer.commit(Write(blocks))


async def _plan_ours(path: str, block: int) -> int:
    async with slate.open_catalog(path) as catalog:
        context = (await catalog.table("bench", "rows"))._context
        head = await context.newest()
        blocks = (await context.contents(head)).blocks
        plan = plan_of(Wanted.of(col("id") == _bounds(block)[0], None, None, row_ids=False), head.schema)
        mask = plan.may_pass(BlockSpans(blocks, head.schema))
        return int(mask.sum()) if mask is not None else blocks.num_rows


def _fill_delta(path: str, commits: int) -> None:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    table = DeltaTable(path)
    for commit in range(commits):
        added = []
        for number in range(commit * BLOCKS, commit * BLOCKS + BLOCKS):
            low, high = _bounds(number)
            stats = {"numRecords": ROWS, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
            added.append(AddAction(f"part-{number:032x}.parquet", 20_000, {}, 0, True, json.dumps(stats)))
        table.create_write_transaction(added, "append", SCHEMA)
    table.create_checkpoint()  # its own appends make one every hundred commits


def _plan_delta(path: str, block: int) -> int:
    from deltalake import DeltaTable

    added = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    low = _bounds(block)[0]
    passing = pc.and_(pc.less_equal(added.column("min.id"), low), pc.greater_equal(added.column("max.id"), low))
    return int(pc.sum(passing).as_py())


def _fill_iceberg(lake: Iceberg, path: str, commits: int) -> None:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType

    table = lake.table
    for commit in range(commits):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(commit * BLOCKS, commit * BLOCKS + BLOCKS):
                low, high = (to_bytes(LongType(), value) for value in _bounds(number))
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"{Path(path).as_uri()}/data/{number:032x}.parquet",
                        file_format=FileFormat.PARQUET,
                        partition=Record(),
                        record_count=ROWS,
                        file_size_in_bytes=20_000,
                        lower_bounds={1: low},
                        upper_bounds={1: high},
                        null_value_counts={1: 0},
                    )
                )


def _plan_iceberg(lake: Iceberg, block: int) -> int:
    return len(list(lake.opened().scan(row_filter=f"id == {_bounds(block)[0]}").plan_files()))
