"""Updates in columns: data, ``_time`` (and ``_time2`` where times are pairs), ``_diff``; and what an append refuses.

Data are one binary column ``data``, or the columns of an Arrow schema. Times are uint64, differences int64, both
without nulls. All checks come before anything is stored, and their errors name the row and its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import binary_array, extremes, mask_of, number_array, numbers_of
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Mask
from slate_async.collections.core.times import TIME_END, TimeKind, Times
from slate_async.collections.core.values import array_of
from slate_async.errors import InvalidError

DATA = "data"
"""The column of a collection of bytes."""
DIFF = "_diff"

Diffs: TypeAlias = npt.NDArray[np.int64]
Place: TypeAlias = Callable[[int], str]
"""What errors call the row of a batch that has this number: where it comes from."""
UpdatesLike: TypeAlias = pa.RecordBatch | pa.Table | Iterable[tuple[Any, Any, int]]
"""What users append: columns, or ``(data, time, diff)``. Data of several columns are a tuple or a mapping."""

_TYPE_TESTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    lambda kind: pa.types.is_fixed_size_binary(kind) and kind.byte_width > 0,
    lambda kind: pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision,
    lambda kind: pa.types.is_decimal256(kind) and 0 <= kind.scale <= kind.precision,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)
"""Types of data columns: what Arrow sorts, compares and groups by, and Parquet can store. Nested data go as bytes."""


@dataclass(frozen=True, slots=True)
class UpdateSchema:
    """The columns of a collection's updates. Raises `InvalidError` for data columns that cannot be compared or stored.

    data: names and types of the data columns, without metadata, which could make a type of another library's of what is
    read; names with ``_`` in front are not for data
    arrow: all columns, in order: data, times, diff
    message: ``arrow`` as an Arrow stream begins with it
    """

    kind: TimeKind
    data: pa.Schema
    arrow: pa.Schema = field(init=False, repr=False, compare=False)
    message: bytes = field(init=False, repr=False, compare=False)
    _required: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not len(self.data) or len(set(self.data.names)) < len(self.data):
            raise InvalidError(f"data take one column or more, of different names, not {self.data.names}")
        for column in self.data:
            if column.name.startswith("_") or not column.name:
                raise InvalidError(f"{column.name!r} is no name of a data column: those do not begin with _")
            if not any(test(column.type) for test in _TYPE_TESTS):
                raise InvalidError(
                    f"column {column.name} is {column.type}, which cannot be compared or stored; store it as bytes"
                )
        object.__setattr__(self, "data", pa.schema([plain(column) for column in self.data]))
        times = [pa.field(name, pa.uint64(), nullable=False) for name in self.kind.columns]
        arrow = pa.schema([*self.data, *times, pa.field(DIFF, pa.int64(), nullable=False)])
        object.__setattr__(self, "arrow", arrow)
        object.__setattr__(self, "message", arrow.serialize().to_pybytes())
        object.__setattr__(self, "_required", tuple(at for at, known in enumerate(arrow) if not known.nullable))

    @classmethod
    def of_bytes(cls, kind: TimeKind) -> UpdateSchema:
        """The updates of a collection of bytes."""
        return cls(kind, pa.schema([pa.field(DATA, pa.binary(), nullable=False)]))

    @property
    def key(self) -> list[str]:
        """Names of the columns that updates are sorted by, and that two updates of one sum share."""
        return [*self.data.names, *self.kind.columns]

    def empty(self) -> pa.RecordBatch:
        """No updates."""
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in self.arrow.types], schema=self.arrow)

    def times(self, updates: pa.RecordBatch) -> Times:
        """The times of ``updates``, without a copy."""
        return tuple(numbers_of(updates.column(name)) for name in self.kind.columns)

    def with_times(self, updates: pa.RecordBatch, times: Times) -> pa.RecordBatch:
        """``updates`` at other ``times``."""
        arrays = [*updates.columns[: len(self.data)], *map(number_array, times), updates.column(DIFF)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def batch(self, updates: UpdatesLike) -> pa.RecordBatch:
        """``updates`` as one batch of these columns, in any order of columns.

        Integers of other sizes are taken for times and differences. Raises `InvalidError` for a column that is
        missing, unknown, of another type or has nulls it may not have, for values that its type does not have, such as
        text that is not UTF-8, and for times at or beyond 2**63."""
        if not isinstance(updates, pa.RecordBatch | pa.Table):
            if not isinstance(updates, Iterable):
                raise InvalidError(f"updates are rows (data, time, diff) or Arrow columns, not {_cut(repr(updates))}")
            return self._of_rows(list(updates))
        batch = self._of_columns(updates)
        self._check_values(batch)
        check_times(batch, self)
        return batch

    def _of_columns(self, updates: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        schema = self.arrow
        if isinstance(updates, pa.RecordBatch) and updates.schema.equals(schema) and self._has_its_values(updates):
            return updates
        if sorted(updates.schema.names) != sorted(schema.names):
            raise InvalidError(
                f"updates of this collection have the columns {schema.names}, not {updates.schema.names}"
            )
        arrays = [_column(updates.column(field.name), field, len(self.data) <= at) for at, field in enumerate(schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _has_its_values(self, updates: pa.RecordBatch) -> bool:
        """Whether no column has nulls that may have none."""
        return not any(updates.column(at).null_count for at in self._required)

    def _check_values(self, batch: pa.RecordBatch) -> None:
        """Arrow's columns may hold what their types do not have: merges would fail at it, or store something else."""
        for column, known in zip(batch.columns, self.data, strict=False):
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise InvalidError(f"column {known.name} has values that are no {known.type}: {error}") from error

    def _of_rows(self, rows: list[tuple[Any, Any, int]]) -> pa.RecordBatch:
        for number, row in enumerate(rows):
            if not isinstance(row, tuple | list) or len(row) != 3:
                raise InvalidError(f"row {number} is {row!r}, not (data, time, diff)")
        times = [_named(number, self.kind.time, row[1]) for number, row in enumerate(rows)]
        diffs = [_named(number, _diff, row[2]) for number, row in enumerate(rows)]
        columns = [number_array(np.array(column, np.uint64)) for column in zip(*times, strict=True)]
        if not rows:
            return self.empty()
        arrays = [*self._data([row[0] for row in rows]), *columns, number_array(np.array(diffs, np.int64))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _data(self, rows: list[Any]) -> list[pa.Array]:
        names = self.data.names
        if self.data.types == [pa.binary()] and all(type(row) is bytes for row in rows):
            return [binary_array(rows)]
        if len(names) == 1:
            rows = [row if isinstance(row, tuple | Mapping) else (row,) for row in rows]
        for number, row in enumerate(rows):
            if isinstance(row, Mapping):
                row = tuple(row[name] for name in names) if row.keys() == set(names) else ()
                rows[number] = row
            if not isinstance(row, tuple) or len(row) != len(names):
                raise InvalidError(f"the data of row {number} are not those of the columns {names}")
        return [array_of([row[at] for row in rows], field) for at, field in enumerate(self.data)]


def plain(column: pa.Field) -> pa.Field:
    """``column`` without metadata."""
    return pa.field(column.name, column.type, column.nullable)


def numbered(row: int) -> str:
    """What errors call a row of a batch."""
    return f"row {row}"


def check_times(updates: pa.RecordBatch, schema: UpdateSchema, place: Place = numbered) -> None:
    """Raise `InvalidError` unless the times of all ``updates`` are below 2**63. ``place``: what to call a row."""
    for name in schema.kind.columns:
        wrong = numbers_of(updates.column(name)) >= np.uint64(TIME_END)
        _refuse(updates, wrong, f"{name} is not below 2**63", place)


def check_within(updates: pa.RecordBatch, schema: UpdateSchema, bounds: Bounds, place: Place = numbered) -> None:
    """Raise `InvalidError` unless the times of all ``updates`` are beyond the lower of ``bounds`` and not its upper.

    place: what to call a row"""
    times = schema.times(updates)
    if len(times) == 1 and updates.num_rows and not bounds.upper.is_done:
        (first,), (end,) = bounds.lower.elements[0], bounds.upper.elements[0]
        least, largest = extremes(times[0])
        if first <= least and largest < end:
            return
    _refuse(updates, ~bounds.lower.mask(times), f"its time is before lower {bounds.lower}", place)
    _refuse(updates, bounds.upper.mask(times), f"its time is at or beyond upper {bounds.upper}", place)


def row_text(updates: pa.RecordBatch, row: int) -> str:
    """Row ``row`` as text for errors: long values are cut."""
    values = {name: updates.column(name)[row] for name in updates.schema.names}
    return ", ".join(f"{name}={_cut(repr(_value(value)))}" for name, value in values.items())


def _refuse(updates: pa.RecordBatch, wrong: Mask, why: str, place: Place) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidError(f"{place(row)} ({row_text(updates, row)}): {why}")


def _column(column: pa.Array | pa.ChunkedArray, field: pa.Field, is_number: bool) -> pa.Array:
    """``column`` as one array of the type of ``field``, or `InvalidError`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            if column.num_chunks > 1:
                raise InvalidError(f"column {field.name} has more than 2 GiB; append smaller batches")
            column = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    if column.null_count and not field.nullable:
        row = int(mask_of(column.is_null()).argmax())
        raise InvalidError(f"row {row}: {field.name} is null, which it may not be")
    if is_number and pa.types.is_integer(column.type):
        return _cast(column, field)
    if column.type != field.type:
        raise InvalidError(f"column {field.name} is {column.type}, but {field.type} in this collection")
    return column


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        numbers = numbers_of(column)
        wrong = numbers < 0 if pa.types.is_uint64(field.type) else numbers >= np.uint64(2**63)
        row = int(wrong.argmax())
        raise InvalidError(f"row {row}: {field.name} {numbers[row]} does not fit {field.type}") from error


def _named(number: int, make: Callable[[Any], Any], value: Any) -> Any:
    """What ``make`` gives of ``value``; its error with the number of the row."""
    try:
        return make(value)
    except InvalidError as error:
        raise InvalidError(f"row {number}: {error}") from error


def _diff(value: Any) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InvalidError(f"{value!r} is no difference: it takes an integer")
    if not -(2**63) <= value < 2**63:
        raise InvalidError(f"difference {value} does not fit int64")
    return int(value)


def _value(scalar: pa.Scalar) -> Any:
    try:
        return str(scalar) if pa.types.is_temporal(scalar.type) else scalar.as_py()
    except (ArithmeticError, LookupError, ValueError):  # beyond what Python's types have, or of a zone it does not know
        return getattr(scalar, "value", scalar)


def _cut(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
