"""Rows of one version of a table, block by block.

Blocks that cannot have a row that passes are left out by the statistics in their links, and row groups of the others by
those in their footers. Only the columns are read that the caller or the predicate asks for. Several blocks are read at
once, and given in order.

Rules T11 and T20.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slate_async.errors import CorruptionError
from slate_async.runtime.concurrent import ahead
from slate_async.tables.codec.block_read import Footer, columns_in, projected
from slate_async.tables.codec.group_spans import GroupSpans
from slate_async.tables.context import TableContext
from slate_async.tables.core.head import Head
from slate_async.tables.core.row_ids import RowIds, contained
from slate_async.tables.core.schema import ROW_ID, TableSchema
from slate_async.tables.core.spans import BlockSpans
from slate_async.tables.scan_plan import Plan

PARALLEL: Final = 4
"""Blocks that are read at once."""
AHEAD_BYTES: Final = 128 << 20
"""Blocks are read no further ahead than this, as they are stored."""
DESCRIBED: Final = (
    "key",
    "first_row",
    "carried",
    "rows",
    "size",
    "footer_size",
    "footer_hash",
    "chunk_sums",
    "schema_id",
)
"""What reading a block takes of its description."""


@dataclass(frozen=True, slots=True)
class Selected:
    """Rows to read: those of ``blocks``, which are some that ``head`` has, without ``deleted``.

    only: and of these no others; ``None``: all"""

    head: Head
    blocks: pa.Table
    deleted: RowIds
    only: RowIds | None = None


async def select(context: TableContext, head: Head) -> Selected:
    """All rows of ``head``."""
    contents = await context.contents(head)
    return Selected(head, contents.blocks, await context.deleted(head, contents))


async def read(
    context: TableContext, plan: Plan, selected: Selected, limit: int | None = None
) -> AsyncGenerator[pa.RecordBatch]:
    """The rows of ``selected`` that pass, in order, ``limit`` at most. Raises as `TableContext.kept`."""
    left = limit
    mask = plan.may_pass(BlockSpans(selected.blocks, plan.schema))
    blocks = selected.blocks if mask is None else selected.blocks.filter(pa.array(mask))

    async def read_one(block: Mapping[str, Any]) -> list[pa.RecordBatch]:
        return await context.kept(selected.head, _read_block(context, plan, selected, block))

    async with aclosing(ahead(read_one, _each(blocks), limit=PARALLEL, budget=AHEAD_BYTES)) as results:
        async for batches in results:
            context.check()
            for batch in batches:
                if left is not None and left <= batch.num_rows:
                    if left:
                        yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch


def written_by(head: Head, block: Mapping[str, Any]) -> TableSchema:
    """The schema of a block of ``head``."""
    written = head.schema_of(block["schema_id"])
    if written is None:
        raise CorruptionError(
            f"it has schema {block['schema_id']}, which the table does not know", object_name=block["key"]
        )
    return written


def groups_to_read(plan: Plan, footer: Footer, written: TableSchema) -> Sequence[int]:
    """Row groups of a block in which a row may pass."""
    mask = plan.may_pass(GroupSpans(footer, written, plan.schema))
    return range(footer.groups) if mask is None else [int(at) for at in np.flatnonzero(mask)]


async def _each(blocks: pa.Table) -> AsyncGenerator[tuple[Mapping[str, Any], int]]:
    """Each block, and the bytes that it weighs."""
    described = blocks.select(list(DESCRIBED))
    for batch in described.to_batches(max_chunksize=1_024):
        for row in batch.to_pylist():
            yield row, row["size"]


async def _read_block(
    context: TableContext, plan: Plan, selected: Selected, block: Mapping[str, Any]
) -> list[pa.RecordBatch]:
    written = written_by(selected.head, block)
    stored = columns_in(written, plan.schema, plan.needed)
    names = [*stored, ROW_ID] if block["carried"] else stored
    rows_in: Sequence[int] = ()

    def groups(footer: Footer) -> Sequence[int]:
        nonlocal rows_in
        wanted = groups_to_read(plan, footer, written)
        rows_in = [int(footer.metadata.row_group(group).num_rows) for group in wanted]
        return wanted

    tables = await context.blocks.read(block, written, names, groups)

    def pick() -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for (start, table), rows in zip(tables, rows_in, strict=True):
            found.extend(_picked(plan, written, block, start, rows, table, selected))
        return found

    return await context.runtime.reading.run(pick)


def _picked(
    plan: Plan,
    written: TableSchema,
    block: Mapping[str, Any],
    start: int,
    rows: int,
    stored: pa.Table,
    selected: Selected,
) -> list[pa.RecordBatch]:
    """Rows of a row group that are not deleted and pass."""
    if block["carried"]:
        ids = stored.column(ROW_ID).combine_chunks().to_numpy(zero_copy_only=False)
    else:
        ids = np.arange(block["first_row"] + start, block["first_row"] + start + rows, dtype=np.int64)
    table = projected(stored, rows, written, plan.schema, plan.needed)
    if plan.row_ids:
        columns = [*table.columns, pa.chunked_array([pa.array(ids, pa.int64())])]
        table = pa.Table.from_arrays(columns, schema=table.schema.append(plan.given.field(ROW_ID)))
    dead = contained(ids, selected.deleted)
    if selected.only is not None:
        dead |= ~contained(ids, selected.only)
    if dead.any():
        table = table.filter(pa.array(~dead))
    if plan.bound is not None:
        table = table.filter(plan.bound.expression())
    if plan.keys is not None:
        table = table.filter(pa.array(plan.keys.matches(table)))
    batches: list[pa.RecordBatch] = table.select(plan.given.names).cast(plan.given).to_batches()
    return [batch for batch in batches if batch.num_rows]
