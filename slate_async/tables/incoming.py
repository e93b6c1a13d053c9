"""What users append, as tables of the table's schema: columns by name, in any order, of types that lose nothing."""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.runtime.protocol import Runtime
from slate_async.tables.core.schema import Field, TableSchema, widens

ArrowData: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.RecordBatchReader
    | Iterable[pa.Table | pa.RecordBatch]
    | AsyncIterable[pa.Table | pa.RecordBatch]
)
"""Rows: all at once, or piece by piece. Also what has ``__arrow_c_stream__``, such as frames of polars."""
BLOCK_BYTES: Final = 64 << 20
"""Of a block, as Arrow lies in memory; one is encoded while the next one is gathered."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows in the very pieces that become blocks: nothing is gathered any more, so none waits for the next one.

    pieces: none is empty, and each at most of about `BLOCK_BYTES`
    ended: whether the piece that came last is the last one"""

    pieces: AsyncIterable[pa.Table]
    ended: Callable[[], bool]

    def __aiter__(self) -> AsyncIterator[pa.Table]:
        return aiter(self.pieces)


def check_columns(given: pa.Schema, schema: pa.Schema) -> None:
    """Whether rows of ``given`` can be rows of ``schema``. Raises `InvalidError` naming the column and both types."""
    conformed(given.empty_table(), TableSchema.of(schema))


def conformed(given: pa.Table, schema: TableSchema) -> pa.Table:
    """``given`` with the columns of ``schema``. Raises `InvalidError` naming the column and both types."""
    for name in given.column_names:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=3)
            hint = f"; is {' or '.join(map(repr, near))} meant?" if near else f"; those are {schema.names[:20]}"
            raise InvalidError(f"the table has no column {name!r}{hint}", outcome="not_applied")
        if given.column_names.count(name) > 1:
            raise InvalidError(f"column {name!r} is there twice", outcome="not_applied")
    columns = [_column(given, field) for field in schema.fields]
    return pa.Table.from_arrays(columns, schema=schema.arrow())


def _column(given: pa.Table, field: Field) -> pa.ChunkedArray:
    if field.name not in given.column_names:
        if not field.nullable:
            raise InvalidError(f"column {field.name!r} is missing, and cannot be null", outcome="not_applied")
        return pa.chunked_array([pa.nulls(given.num_rows, field.kind)], field.kind)
    column = given.column(field.name)
    if column.type != field.kind:
        if not _maps(column.type, field.kind):
            raise InvalidError(
                f"column {field.name!r} is of type {field.kind}, and what is given of type {column.type}: not every"
                " value of that is one of the column's",
                outcome="not_applied",
            )
        try:
            column = column.cast(field.kind)
        except pa.ArrowInvalid as error:
            raise InvalidError(
                f"column {field.name!r} does not take what is given: {error}", outcome="not_applied"
            ) from error
    if not field.nullable and column.null_count:
        raise InvalidError(f"column {field.name!r} cannot be null, and a row has none", outcome="not_applied")
    return column


def _maps(given: pa.DataType, kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    text = (pa.string(), pa.large_string(), pa.string_view())
    raw = (pa.binary(), pa.large_binary(), pa.binary_view())
    return given == kind or widens(given, kind) or any(given in same and kind in same for same in (text, raw))


async def pieces(data: ArrowData, schema: TableSchema, runtime: Runtime) -> AsyncGenerator[tuple[pa.Table, int]]:
    """``data`` as tables of about `BLOCK_BYTES`, and the bytes of each. Raises `InvalidError`."""
    if isinstance(data, Cut):
        async for piece in data:
            table = conformed(piece, schema)
            yield table, table.nbytes
            del piece, table  # the next one may wait for their memory
        return
    waiting: list[pa.Table] = []
    size = 0
    async for given in tables_of(data, runtime):
        table = conformed(given, schema)
        for part in _cut(table):
            if waiting and size + part.nbytes > BLOCK_BYTES:
                yield pa.concat_tables(waiting), size
                waiting, size = [], 0
            waiting.append(part)
            size += part.nbytes
    if waiting:
        yield pa.concat_tables(waiting), size


def _cut(table: pa.Table) -> Iterable[pa.Table]:
    """In parts of at most `BLOCK_BYTES`, by the average row."""
    if not table.num_rows:
        return
    step = max(1, table.num_rows * BLOCK_BYTES // max(1, table.nbytes))
    for first in range(0, table.num_rows, step):
        yield table.slice(first, step)


async def tables_of(data: Any, runtime: Runtime) -> AsyncGenerator[pa.Table]:
    """``data`` piece by piece, as it is given. Raises `InvalidError` for what is no rows."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        yield _table(data)
    elif isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        while (batch := await runtime.blocking.run(lambda: next(reader, None))) is not None:
            yield _table(batch)
    elif isinstance(data, AsyncIterable):
        async for piece in data:
            yield _table(piece)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        for piece in data:
            yield _table(piece)
    else:
        raise _no_rows(data)


def _table(piece: Any) -> pa.Table:
    if isinstance(piece, pa.Table):
        return piece
    if isinstance(piece, pa.RecordBatch):
        return pa.Table.from_batches([piece])
    raise _no_rows(piece)


def _no_rows(given: Any) -> InvalidError:
    return InvalidError(
        "rows are a pyarrow Table, RecordBatch or RecordBatchReader, or an iterable of tables and batches, not"
        f" {type(given).__name__}",
        outcome="not_applied",
    )
