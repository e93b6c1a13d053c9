"""Parts of a block, read without the rest.

The footer says where columns lie. Their bytes are decoded by themselves, once their checksum was compared. (Those of
Parquet's pages leave out the headers of the pages.)

Rule T20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.codec.checksum import crc32c
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import Span
from slate_async.tables.codec.block import MAGIC, chunk_span, footer_hash
from slate_async.tables.core.schema import FIELD_ID, ROW_ID, TableSchema
from slate_async.types import Buffer

_DAMAGE: Final = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Footer:
    """What a block says of itself.

    key, size: of the object
    leaves: of each top-level column, by name, the numbers of its columns in the file
    sums: CRC32C of each chunk, by row group and number
    """

    key: str
    size: int
    metadata: Any
    arrow: pa.Schema
    leaves: Mapping[str, Sequence[int]]
    sums: npt.NDArray[np.uint32]

    @property
    def groups(self) -> int:
        """Row groups."""
        return int(self.metadata.num_row_groups)


def decode_footer(data: bytes, block: Mapping[str, Any], schema: TableSchema) -> Footer:
    """The footer of ``block``, a row as `slate_async.tables.core.chain.BLOCK` has it, which was written by ``schema``.

    Raises `CorruptionError` if it is not the one that its link knows."""
    key = block["key"]
    offset = block["size"] - block["footer_size"]
    if len(block["chunk_sums"]) % 4 or len(data) != block["footer_size"] or footer_hash(data) != block["footer_hash"]:
        raise CorruptionError("its footer is not the one that was written", object_name=key, offset=max(0, offset))
    try:
        metadata = pq.ParquetFile(pa.BufferReader(MAGIC + data)).metadata
        arrow = metadata.schema.to_arrow_schema()
    except _DAMAGE as error:
        raise CorruptionError(f"its footer does not decode: {error}", object_name=key, offset=offset) from error
    wanted = [(str(field.field_id), field.name) for field in schema.fields]
    found = [
        ((field.metadata or {}).get(FIELD_ID, b"").decode(), field.name) for field in arrow if field.name != ROW_ID
    ]
    if metadata.num_rows != block["rows"] or found != wanted or (ROW_ID in arrow.names) != block["carried"]:
        raise CorruptionError("it does not hold what its link says", object_name=key, offset=offset)
    leaves: dict[str, Sequence[int]] = {}
    first = 0
    for field in arrow:
        count = _leaves(field.type)
        leaves[field.name] = range(first, first + count)
        first += count
    sums = np.frombuffer(block["chunk_sums"], "<u4")
    if first != metadata.num_columns or len(sums) != first * metadata.num_row_groups:
        raise CorruptionError("its link does not know its columns", object_name=key, offset=offset)
    return Footer(key, block["size"], metadata, arrow, leaves, sums.reshape(metadata.num_row_groups, first))


def spans_of(footer: Footer, group: int, columns: Sequence[str]) -> list[Span]:
    """Where the bytes of these columns lie."""
    row_group = footer.metadata.row_group(group)
    return [chunk_span(row_group, leaf) for leaf in _leaves_in(footer, columns)]


def decode_columns(
    footer: Footer, group: int, columns: Sequence[str], spans: Sequence[Span], parts: Sequence[Buffer]
) -> pa.Table:
    """These columns of one row group, from the bytes at ``spans``. Raises `CorruptionError`."""
    file = np.zeros(footer.size, np.uint8)  # its pages take memory once they are written
    numbers = _leaves_in(footer, columns)
    for number, span, part in zip(numbers, spans, parts, strict=True):
        if len(part) != span.length or crc32c(part) != footer.sums[group, number]:
            raise CorruptionError(
                "a column is not the one that was written", object_name=footer.key, offset=span.offset
            )
        file[span.offset : span.offset + span.length] = np.frombuffer(part, np.uint8)
    try:
        source = pq.ParquetFile(pa.BufferReader(pa.py_buffer(file)), metadata=footer.metadata)
        table = source.reader.read_row_groups([group], column_indices=numbers, use_threads=False)
        table.validate()
    except _DAMAGE as error:
        first = min((span.offset for span in spans), default=0)
        raise CorruptionError(f"its columns do not decode: {error}", object_name=footer.key, offset=first) from error
    return table.select(list(columns))


def _leaves_in(footer: Footer, columns: Sequence[str]) -> list[int]:
    """Numbers in the file of what these columns are made of, in its order."""
    return sorted(leaf for name in columns for leaf in footer.leaves[name])


def projected(
    table: pa.Table, rows: int, written: TableSchema, schema: TableSchema, columns: Sequence[str]
) -> pa.Table:
    """``columns`` of ``schema``, of rows that were written by ``written``: columns are found by id and widened; those
    that are not there have the default, or are null."""
    names = {field.field_id: field.name for field in written.fields}
    made = []
    for name in columns:
        field = schema.field(name)
        stored = names.get(field.field_id)
        if stored is not None:
            column = table.column(stored)
            made.append(column if column.type == field.kind else column.cast(field.kind))
        elif field.default is not None:
            made.append(pa.chunked_array([pa.repeat(field.default, rows)], field.kind))
        else:
            made.append(pa.chunked_array([pa.nulls(rows, field.kind)], field.kind))
    return pa.Table.from_arrays(made, schema=schema.arrow(columns))


def columns_in(written: TableSchema, schema: TableSchema, columns: Sequence[str]) -> list[str]:
    """What these columns of ``schema`` are called in a block that was written by ``written``, those that it has."""
    names = {field.field_id: field.name for field in written.fields}
    found = (names.get(schema.field(name).field_id) for name in columns)
    return [name for name in found if name is not None]


def _leaves(kind: pa.DataType) -> int:
    """How many columns a type takes in Parquet."""
    types = pa.types
    if types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    if types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _leaves(kind.value_type)
    return 1
