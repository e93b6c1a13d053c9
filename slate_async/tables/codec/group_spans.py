"""Statistics of a block's row groups, which Parquet keeps in the footer, as predicates ask for them
(`slate_async.tables.core.binding.Spans`).

Of types whose statistics are stored otherwise than their values compare nothing is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.tables.codec.block_read import Footer
from slate_async.tables.core.schema import TableSchema

Mask = npt.NDArray[np.bool_]


class GroupSpans:
    """Of the row groups of ``footer``, a block that was written by ``written``, by names of ``schema``."""

    def __init__(self, footer: Footer, written: TableSchema, schema: TableSchema) -> None:
        self._footer = footer
        self._written = {field.field_id: field for field in written.fields}
        self._schema = schema

    @property
    def count(self) -> int:
        """How many row groups."""
        return self._footer.groups

    def low(self, column: str) -> pa.Array | None:
        """See `Spans.low`."""
        return self._bound(column, "min")

    def high(self, column: str) -> pa.Array | None:
        """See `Spans.high`."""
        return self._bound(column, "max")

    def may_have_nan(self, column: str) -> bool:
        """Of floating point always: Parquet leaves NaNs out."""
        return bool(pa.types.is_floating(self._schema.field(column).kind))

    def all_null(self, column: str) -> Mask | None:
        """Whether a row group has no values in the column."""
        nulls = self._nulls(column)
        if nulls is None:
            return None
        rows = [self._footer.metadata.row_group(group).num_rows for group in range(self.count)]
        return np.asarray(nulls == np.array(rows, np.int64), np.bool_)

    def no_null(self, column: str) -> Mask | None:
        """Whether a row group has no nulls in it."""
        nulls = self._nulls(column)
        return None if nulls is None else np.asarray(nulls == 0, np.bool_)

    def _nulls(self, column: str) -> npt.NDArray[np.int64] | None:
        """How many there are; -1 where it is not known."""
        found = self._statistics(column)
        if found is None:
            return None
        counts = [stats.null_count if stats is not None and stats.has_null_count else -1 for stats in found]
        return np.array(counts, np.int64)

    def _bound(self, column: str, side: str) -> pa.Array | None:
        found, field = self._statistics(column), self._schema.field(column)
        if found is None:
            return None
        stored = self._written[field.field_id].kind
        kinds = [_value_type(kind) for kind in (stored, field.kind)]
        raw = _raw_type(kinds[0])
        if raw is None:
            return None
        name = side if _is_text(kinds[0]) else f"{side}_raw"
        values = [getattr(stats, name) if stats is not None and stats.has_min_max else None for stats in found]
        made = pa.array(values, raw).cast(kinds[0])
        return made if kinds[0] == kinds[1] else made.cast(kinds[1])

    def _statistics(self, column: str) -> list[Any] | None:
        """Of each row group; ``None`` if the block has no such column, or it is nested."""
        field = self._written.get(self._schema.field(column).field_id)
        if field is None or pa.types.is_nested(field.kind):
            return None
        leaf = self._footer.leaves[field.name][0]
        return [self._footer.metadata.row_group(group).column(leaf).statistics for group in range(self.count)]


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def _raw_type(kind: pa.DataType) -> pa.DataType | None:
    """As what Parquet's statistics of ``kind`` are read; ``None``: not at all."""
    types = pa.types
    if _is_text(kind) or types.is_signed_integer(kind) or types.is_floating(kind):
        return kind
    if types.is_date32(kind):
        return pa.int32()
    return pa.int64() if types.is_timestamp(kind) else None
