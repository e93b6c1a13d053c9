"""Merges some blocks of a table into one: their rows that are not deleted, with their ids, sorted if the table is.

Memory holds one row group of an input, one of the output, and the output as it is encoded. A table that is sorted needs
all rows of the group. Decoding, sorting and encoding go on in worker threads, a row group at a time.

Rules T13 and T15.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slate_async.errors import CorruptionError
from slate_async.tables.codec.block import GROUP_ROWS
from slate_async.tables.codec.block_read import Footer, columns_in, projected
from slate_async.tables.codec.merged_block import IDS, MergedBlock
from slate_async.tables.context import TableContext
from slate_async.tables.core.chain import BLOCK
from slate_async.tables.core.head import Head
from slate_async.tables.core.row_ids import RowIds, contained, set_of
from slate_async.tables.core.schema import ROW_ID, TableSchema
from slate_async.tables.store.blocks import WHOLE_BYTES

CUT: Final = 2
"""A block is ended once it has so many times the bytes that were meant."""


@dataclass(frozen=True, slots=True)
class Merged:
    """``added``: the blocks that were put, as links have them; ``retired``: the deleted rows that were dropped."""

    added: pa.Table
    retired: RowIds


async def merge(context: TableContext, head: Head, blocks: pa.Table, deleted: RowIds, target_bytes: int) -> Merged:
    """Put the rows of ``blocks``, which are live in ``head``, without ``deleted``, those that are deleted there.

    Raises `ObjectNotFoundError` if a block was deleted, `CorruptionError`, `UnavailableError`."""
    retired: list[RowIds] = []
    schema = head.schema
    columns = [next((field.name for field in schema.fields if field.field_id == at), "") for at in head.sort_by]
    pieces = _pieces(context, head, blocks, deleted, retired)
    rows = _sorted(context, pieces, [name for name in columns if name]) if any(columns) else pieces
    put: list[pa.Table] = []
    async with aclosing(_groups(rows)) as groups:
        block: MergedBlock | None = None
        async for group in groups:
            block = MergedBlock(schema) if block is None else block
            await context.runtime.offload.run(_adding(block, group))
            if block.nbytes >= CUT * target_bytes:
                put.append(await context.blocks.put_merged(block, head.version))
                block = None
        if block is not None:
            put.append(await context.blocks.put_merged(block, head.version))
    added = pa.concat_tables([BLOCK.empty_table(), *put], promote_options="permissive")
    return Merged(added, set_of(np.concatenate([np.empty(0, np.int64), *retired])))


def _adding(block: MergedBlock, group: pa.Table) -> Any:
    return lambda: block.add(group)


async def _pieces(
    context: TableContext, head: Head, blocks: pa.Table, deleted: RowIds, retired: list[RowIds]
) -> AsyncGenerator[pa.Table]:
    """Row groups of ``blocks`` in the order of their first rows, with `ROW_ID` at the end; not empty. Ids of deleted
    rows come into ``retired``."""
    for block in blocks.sort_by("first_row").to_pylist():
        written = head.schema_of(block["schema_id"])
        if written is None:
            raise CorruptionError(
                f"it has schema {block['schema_id']}, which the table does not know", object_name=block["key"]
            )
        async with aclosing(_stored(context, block, written, head.schema)) as stored:
            async for start, table in stored:
                rows, ids = await context.runtime.offload.run(
                    _picking(block, start, table, written, head.schema, deleted)
                )
                retired.append(ids)
                if rows.num_rows:
                    yield rows


async def _stored(
    context: TableContext, block: Mapping[str, Any], written: TableSchema, schema: TableSchema
) -> AsyncGenerator[tuple[int, pa.Table]]:
    """Its row groups, one after another; a small block at once."""
    names = columns_in(written, schema, schema.names)
    names = [*names, ROW_ID] if block["carried"] else names
    chosen = _Chosen(whole=block["size"] <= WHOLE_BYTES)
    while chosen.at < chosen.count:
        for found in await context.blocks.read(block, written, names, chosen):
            yield found
        chosen.at += 1


class _Chosen:
    """Row group ``at`` of a block, or with ``whole`` all of them at once; ``count``: how many times there is more."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self.at = 0
        self.count = 1

    def __call__(self, footer: Footer) -> range:
        if self._whole:
            return range(footer.groups)
        self.count = footer.groups
        return range(self.at, self.at + 1)


def _picking(
    block: Mapping[str, Any],
    start: int,
    table: pa.Table,
    written: TableSchema,
    schema: TableSchema,
    deleted: RowIds,
) -> Any:
    def pick() -> tuple[pa.Table, RowIds]:
        if block["carried"]:
            ids = np.asarray(table.column(ROW_ID).combine_chunks().to_numpy(zero_copy_only=False), np.int64)
        else:
            ids = np.arange(block["first_row"] + start, block["first_row"] + start + table.num_rows, dtype=np.int64)
        dead = contained(ids, deleted)
        rows = projected(table, table.num_rows, written, schema, schema.names)
        rows = rows.append_column(IDS, pa.array(ids, pa.int64()))
        return (rows.filter(pa.array(~dead)), ids[dead]) if dead.any() else (rows, ids[dead])

    return pick


async def _sorted(
    context: TableContext, pieces: AsyncGenerator[pa.Table], columns: list[str]
) -> AsyncGenerator[pa.Table]:
    """All rows of ``pieces`` in the order of ``columns``; among equal ones, in that of their ids."""
    async with aclosing(pieces):
        tables = [piece async for piece in pieces]
    if tables:
        keys = [(name, "ascending") for name in (*columns, ROW_ID)]
        yield await context.runtime.offload.run(lambda: pa.concat_tables(tables).sort_by(keys))


async def _groups(rows: AsyncGenerator[pa.Table]) -> AsyncGenerator[pa.Table]:
    """The rows again, in row groups as they are to be stored."""
    waiting: list[pa.Table] = []
    count = 0
    async with aclosing(rows):
        async for table in rows:
            while table.num_rows:
                part = table.slice(0, GROUP_ROWS - count)
                table = table.slice(part.num_rows)
                waiting.append(part)
                count += part.num_rows
                if count == GROUP_ROWS:
                    yield pa.concat_tables(waiting)
                    waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
