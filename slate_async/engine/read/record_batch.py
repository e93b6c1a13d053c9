"""`RecordBatch`: what a type checker knows of the Arrow batches that scans give.

pyarrow carries no types, so a ``pyarrow.RecordBatch`` in a signature says nothing. Every batch *is* one; its other
methods are there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class RecordBatch(Protocol):
    """Immutable columns of equal length, as in ``pyarrow.RecordBatch``.

    It speaks Arrow's PyCapsule interface, so pandas, polars, DuckDB and pyarrow take it as it is."""

    @property
    def num_rows(self) -> int:
        """Rows."""

    @property
    def nbytes(self) -> int:
        """Bytes the rows occupy in memory."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema``."""

    def column(self, i: int | str, /) -> Any:
        """One column, by number or name: a ``pyarrow.Array``."""

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Some of the rows, without a copy."""

    def select(self, columns: Sequence[int | str], /) -> Self:
        """Some of the columns."""

    def to_pydict(self) -> dict[str, list[Any]]:
        """The columns as Python lists, by name."""

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as Python dicts."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Arrow's PyCapsule interface: schema and array."""
