"""A block that a merge makes: it is encoded row group by row group, and carries its rows' ids in the column `ROW_ID`.

Rule T13.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slate_async.tables.codec.block import EncodedBlock, described_block, repeats, statistics
from slate_async.tables.core.schema import ROW_ID, Field, TableSchema

IDS: Final = pa.field(ROW_ID, pa.int64(), nullable=False)


class MergedBlock:
    """Rows are added in the order in which they are to lie. It holds what is encoded, no rows."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._arrow = schema.arrow().append(IDS)
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            self._arrow,
            compression="zstd",
            use_dictionary=[field.name for field in schema.fields if repeats(field.kind)],
            column_encoding={ROW_ID: "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
            version="2.6",
        )
        self._bounds: dict[str, pa.Array] = {}
        self._ids: tuple[int, int] | None = None
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Encoded so far."""
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        """A row group: columns of the schema in its order, then `ROW_ID`. Not empty."""
        rows = rows.cast(self._arrow)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.rows += rows.num_rows
        low, high = pc.min_max(rows.column(ROW_ID)).as_py().values()
        self._ids = (low, high) if self._ids is None else (min(self._ids[0], low), max(self._ids[1], high))
        for field in self._schema.fields:
            for name, value in statistics(field, rows.column(field.name)):
                known = self._bounds.get(f"{name}.{field.field_id}")
                self._bounds[f"{name}.{field.field_id}"] = value if known is None else _both(name, field, known, value)

    def finish(self) -> EncodedBlock:
        """All of it. At least one row group was added."""
        self._writer.close()
        data = self._sink.getvalue()
        described = described_block(data, self.rows, self._schema, self._ids)
        for name, value in self._bounds.items():
            described = described.append_column(name, value)
        return EncodedBlock(data, described)


def _both(name: str, field: Field, one: pa.Array, other: pa.Array) -> pa.Array:
    """The statistic ``name`` of rows of which some have ``one``, some ``other``."""
    kind = one.type
    if name == "nulls":
        return pc.add(one, other)
    low = name == "low"
    if not low and pa.types.is_floating(kind):
        nan = pc.or_kleene(pc.is_nan(one), pc.is_nan(other))
        if nan[0].as_py():
            return pa.array([float("nan")], kind)
    values: Any = pa.concat_arrays([one, other])
    bounds = pc.min_max(values)
    return pa.array([bounds["min" if low else "max"]], kind)
