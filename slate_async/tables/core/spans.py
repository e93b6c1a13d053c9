"""Statistics of blocks, as predicates ask for them (`slate_async.tables.core.binding.Spans`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.tables.core.schema import TableSchema

Mask = npt.NDArray[np.bool_]


class BlockSpans:
    """Of ``blocks``, as links describe them, by names of ``schema``. What a block does not say is not known."""

    def __init__(self, blocks: pa.Table, schema: TableSchema) -> None:
        self._blocks = blocks
        self._schema = schema

    @property
    def count(self) -> int:
        """How many blocks."""
        return int(self._blocks.num_rows)

    def low(self, column: str) -> pa.Array | None:
        """See `Spans.low`."""
        return self._bound("low", column)

    def high(self, column: str) -> pa.Array | None:
        """See `Spans.high`."""
        return self._bound("high", column)

    def may_have_nan(self, column: str) -> bool:
        """Never: it is the highest value then."""
        return False

    def all_null(self, column: str) -> Mask | None:
        """Whether a block has no values in the column."""
        nulls = self._stored("nulls", column)
        return None if nulls is None else _known_true(pc.equal(nulls, self._blocks.column("rows").combine_chunks()))

    def no_null(self, column: str) -> Mask | None:
        """Whether a block has no nulls in it."""
        nulls = self._stored("nulls", column)
        return None if nulls is None else _known_true(pc.equal(nulls, 0))

    def _bound(self, name: str, column: str) -> pa.Array | None:
        stored, kind = self._stored(name, column), self._schema.field(column).kind
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return stored if stored is None or stored.type == kind else stored.cast(kind)

    def _stored(self, name: str, column: str) -> pa.Array | None:
        stored = f"{name}.{self._schema.field(column).field_id}"
        return self._blocks.column(stored).combine_chunks() if stored in self._blocks.column_names else None


def _known_true(answers: pa.Array) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(answers, False).to_numpy(zero_copy_only=False), np.bool_)
    return mask
