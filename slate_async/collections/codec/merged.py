"""A merged batch, or a part of one, as bytes: plain Parquet, which any tool can open. This module makes them.

Rows are sorted by data, then time, in row groups of `GROUP_ROWS`; zstd, page checksums, statistics. Specified in
``docs/format/collection-merged-batch.md``.

Parquet's own checksums leave headers and footer out. So a version or an index, which names the object, says its length
and CRC32C. An index says those of each row group and of the footer, too: sections, which follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.codec.checksum import crc32c
from slate_async.collections.codec.merged_types import stored_schema, with_schema
from slate_async.collections.codec.parts import PartRef, Section
from slate_async.collections.core.slices import slices_within
from slate_async.collections.core.updates import UpdateSchema

HASHED_UPPER = "slate.upper"
"""In a footer's key-value metadata."""
GROUP_ROWS = 1 << 16
GROUP_BYTES = 16 << 20
"""Of updates in memory; rows so long that `GROUP_ROWS` of them have more are fewer in a row group."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An object to be put, and what names it says of it."""

    data: pa.Buffer
    part: PartRef


class MergedEncoder:
    """Makes one Parquet object of sorted updates, which come in any number of batches.

    hashed_upper: what the object's name has a hash of, in place of its upper; the footer says it"""

    def __init__(self, schema: UpdateSchema, hashed_upper: str | None = None) -> None:
        self._schema = schema
        self._hashed_upper = hashed_upper
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            stored_schema(schema),
            compression="zstd",
            write_page_checksum=True,
            sorting_columns=_sorting_columns(schema),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes so far, without the rows that do not fill a row group yet."""
        return int(self._sink.tell())

    def add(self, updates: pa.RecordBatch) -> None:
        """Append ``updates``; none sorts before the last one."""
        for piece in group_slices(updates):
            if self._waiting_rows and self._waiting_bytes + piece.nbytes > GROUP_BYTES:
                self._write(self._waiting_rows)
            self._waiting.append(piece)
            self._waiting_rows += piece.num_rows
            self._waiting_bytes += piece.nbytes
            self.rows += piece.num_rows
            if self._waiting_rows >= GROUP_ROWS:
                self._write(GROUP_ROWS)

    def finish(self) -> Encoded:
        """The object. No more rows can be added."""
        if self._waiting_rows:
            self._write(self._waiting_rows)
        if self._hashed_upper is not None:
            self._writer.add_key_value_metadata({HASHED_UPPER: self._hashed_upper})
        self._writer.close()
        data = self._sink.getvalue()
        footer = pq.read_metadata(pa.BufferReader(data))
        return Encoded(
            data, PartRef(self.rows, data.size, crc32c(memoryview(data)), sections_of(memoryview(data), footer))
        )

    def _write(self, rows: int) -> None:
        """Write the first ``rows`` that wait, as one row group."""
        table = pa.Table.from_batches(self._waiting, schema=self._schema.arrow)
        stored = with_schema(table.slice(0, rows), stored_schema(self._schema))
        self._writer.write_table(stored, row_group_size=GROUP_ROWS)
        self._waiting = table.slice(rows).to_batches()
        self._waiting_rows -= rows
        self._waiting_bytes = sum(batch.nbytes for batch in self._waiting)


def group_slices(updates: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``updates`` in slices of a row group at most, by rows and bytes."""
    return slices_within(updates, GROUP_ROWS, GROUP_BYTES)


def encode_merged(updates: pa.RecordBatch | pa.Table, schema: UpdateSchema, hashed_upper: str | None = None) -> Encoded:
    """Sorted ``updates`` as one object; ``hashed_upper`` as for a `MergedEncoder`."""
    encoder = MergedEncoder(schema, hashed_upper)
    for batch in updates.to_batches() if isinstance(updates, pa.Table) else [updates]:
        encoder.add(batch)
    return encoder.finish()


def sections_of(view: memoryview, footer: pq.FileMetaData) -> tuple[Section, ...]:
    """The row groups of the object ``view`` and its footer. The first one begins with the magic number of Parquet."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    starts = [min(_start(group.column(number)) for number in range(group.num_columns)) for group in groups]
    starts.append(len(view) - 8 - int.from_bytes(view[-8:-4], "little"))
    starts[0] = 0
    rows = [*(group.num_rows for group in groups), 0]
    ends = [*starts[1:], len(view)]
    return tuple(
        Section(count, end - start, crc32c(view[start:end]))
        for count, start, end in zip(rows, starts, ends, strict=True)
    )


def _start(column: pq.ColumnChunkMetaData) -> int:
    """Where a column of a row group begins."""
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


def _sorting_columns(schema: UpdateSchema) -> list[pq.SortingColumn] | None:
    """What the footer says of the order; nothing if there are floats, which Parquet compares in another one."""
    if any(pa.types.is_floating(field.type) for field in schema.data):
        return None
    return [pq.SortingColumn(number, nulls_first=False) for number in range(len(schema.key))]
