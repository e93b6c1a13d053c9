"""A block: rows as Parquet, and what its link says of them.

Statistics are of top-level columns whose values have an order. What takes more than `CUT` bytes is cut: the lower bound
is a prefix, the upper one a prefix whose last letter is the next one, so both still hold.

Rule T20.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from slate_async.codec.checksum import crc32c
from slate_async.objectstore.protocol import Span
from slate_async.tables.core.chain import BLOCK
from slate_async.tables.core.schema import Field, TableSchema

CUT: Final = 32
GROUP_ROWS: Final = 128 * 1024
"""Rows of a row group: what a filter leaves out, or is decoded at once."""
FOOTER_END: Final = 8
"""Bytes behind a footer: its length, and the magic number."""
MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """``data``: the object; ``rows``: as `BLOCK` has it but for the key, one row, with statistics."""

    data: pa.Buffer
    rows: pa.Table

    def under(self, key: str) -> pa.Table:
        """The row of the block that is stored as ``key``."""
        return self.rows.set_column(0, BLOCK.field("key"), pa.array([key], pa.string()))


def encode_block(table: pa.Table, schema: TableSchema) -> EncodedBlock:
    """``table``, whose columns are those of ``schema`` in its order, without row ids."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.cast(schema.arrow()),
        sink,
        row_group_size=GROUP_ROWS,
        compression="zstd",
        use_dictionary=[field.name for field in schema.fields if repeats(field.kind)],
        write_page_checksum=True,
        version="2.6",
    )
    data = sink.getvalue()
    described = described_block(data, table.num_rows, schema)
    for field, column in zip(schema.fields, table.columns, strict=True):
        for name, values in statistics(field, column):
            described = described.append_column(f"{name}.{field.field_id}", values)
    return EncodedBlock(data, described)


def described_block(data: pa.Buffer, rows: int, schema: TableSchema, ids: tuple[int, int] | None = None) -> pa.Table:
    """What a link says of ``data`` but for its key and statistics. ``ids``: the lowest and highest, of one that carries
    its rows' ids."""
    first, last = (-1, -1) if ids is None else ids
    size = footer_size(data)
    row: dict[str, Any] = {"key": "", "first_row": first, "last_row": last, "carried": ids is not None, "rows": rows}
    row |= {"size": data.size, "footer_size": size, "schema_id": schema.schema_id}
    row |= {"footer_hash": footer_hash(data[data.size - size :]), "chunk_sums": chunk_sums(data)}
    return pa.Table.from_pylist([row], schema=BLOCK)


def footer_size(data: pa.Buffer) -> int:
    """Bytes of the footer at the end of a block, those behind it among them."""
    return int.from_bytes(data[data.size - FOOTER_END : data.size - len(MAGIC)].to_pybytes(), "little") + FOOTER_END


def chunk_span(row_group: Any, column: int) -> Span:
    """Where the bytes of a column lie, in a row group of a file's metadata."""
    chunk = row_group.column(column)
    starts = [chunk.data_page_offset]
    if chunk.dictionary_page_offset:
        starts.append(chunk.dictionary_page_offset)
    return Span(min(starts), chunk.total_compressed_size)


def chunk_sums(data: pa.Buffer) -> bytes:
    """CRC32C of each column chunk, as a link has them."""
    metadata, view, sums = pq.read_metadata(pa.BufferReader(data)), memoryview(data), []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column in range(metadata.num_columns):
            span = chunk_span(row_group, column)
            sums.append(crc32c(view[span.offset : span.offset + span.length]))
    return struct.pack(f"<{len(sums)}I", *sums)


def footer_hash(footer: Any) -> bytes:
    """XXH3-128 of a footer."""
    return xxhash.xxh3_128_digest(footer)


def statistics(field: Field, column: pa.ChunkedArray) -> list[tuple[str, pa.Array]]:
    """What a link says of a column, by the name that precedes the field's id."""
    nulls = [("nulls", pa.array([column.null_count], pa.int64()))]
    kind = field.kind
    if pa.types.is_dictionary(kind):
        kind, column = kind.value_type, column.cast(kind.value_type)
    if pa.types.is_nested(kind):
        return nulls
    bounds = pc.min_max(column)
    low, high = bounds["min"], bounds["max"]
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        high = pa.scalar(float("nan"), kind)
    if low.is_valid and is_text(kind):
        low, high = _prefix(low, kind), _after_prefix(high, kind)
    elif low.is_valid and _is_bytes(kind):
        low, high = _cut_bytes(low, high, kind)
    return [*nulls, ("low", pa.array([low], kind)), ("high", pa.array([high], kind))]


def repeats(kind: pa.DataType) -> bool:
    """Whether a dictionary of the values pays. One of numbers takes twice the time and seldom less space: in a row
    group of this size it has no end."""
    return is_text(kind) or _is_bytes(kind) or bool(pa.types.is_dictionary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _prefix(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value.as_py().encode()[:CUT].decode(errors="ignore"), kind)


def _after_prefix(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """A string that is not below ``value``, of at most `CUT` bytes; null if there is none."""
    text = value.as_py()
    if len(text.encode()) <= CUT:
        return pa.scalar(text, kind)
    kept = text.encode()[: CUT - 3].decode(errors="ignore")  # the next letter may take more bytes
    while kept:
        following = ord(kept[-1]) + 1
        if following == 0xD800:
            following = 0xE000
        if following <= 0x10FFFF:
            return pa.scalar(kept[:-1] + chr(following), kind)
        kept = kept[:-1]
    return pa.scalar(None, kind)


def _cut_bytes(low: pa.Scalar, high: pa.Scalar, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    top = high.as_py()
    if len(top) > CUT:
        kept = top[:CUT].rstrip(b"\xff")
        top = kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    return pa.scalar(low.as_py()[:CUT], kind), pa.scalar(top, kind)
