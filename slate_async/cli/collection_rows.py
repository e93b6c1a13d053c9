"""Files of updates as Arrow columns, some rows at a time.

Parquet is read as columns. Rows of text (CSV, JSON Lines) are turned into columns by the types of the collection; the
first one that does not fit is an error that names its line, and in Parquet its row, counted from 1. Nothing is guessed:
a text becomes a number only in a column of numbers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.cli.sources import BadRow, Format, Record, Source, format_of, open_source, open_standard_input
from slate_async.codec.arrays import mask_of
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.errors import SumError
from slate_async.collections.core.updates import Place, UpdateSchema, check_times, check_within
from slate_async.collections.writer.batches import surely_fit
from slate_async.errors import InvalidError

ROWS = 4_096
DIFF = "_diff"
STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class FileRows:
    """Some rows of a file in columns. ``place``: where a row of them stands, such as "orders.csv, line 7"."""

    updates: pa.RecordBatch
    place: Place

    def check(self, schema: UpdateSchema, bounds: Bounds) -> None:
        """Raise `InvalidError` for the first row at a time that no time can be, or that is outside of ``bounds``;
        `SumError` for one with which a sum of the differences here does not fit int64."""
        check_times(self.updates, schema, self.place)
        check_within(self.updates, schema, bounds, self.place)
        if surely_fit([self.updates]):
            return
        fitting, wrong, error = 0, self.updates.num_rows, self._sum_error(schema, self.updates.num_rows)
        while error is not None and wrong - fitting > 1:
            middle = (fitting + wrong) // 2
            found = self._sum_error(schema, middle)
            fitting, wrong, error = (middle, wrong, error) if found is None else (fitting, middle, found)
        if error is not None:
            raise SumError(f"{self.place(wrong - 1)}: with it {error}") from error

    def _sum_error(self, schema: UpdateSchema, rows: int) -> SumError | None:
        """What is wrong with the sums of the first ``rows``."""
        try:
            consolidate(self.updates.slice(0, rows), schema)
        except SumError as error:
            return error
        return None


@dataclass(frozen=True, slots=True)
class UpdatesFile:
    """A file that was found, and its format; ``None``: standard input has no extension."""

    path: Path
    form: Format | None

    @classmethod
    def named(cls, path: Path, form: Format | None) -> UpdatesFile:
        """Raises `InvalidError` if there is none, or if nothing says in which format it is."""
        if str(path) == STANDARD_INPUT:
            return cls(path, form)
        by_name = format_of(path) if form is None or not path.exists() else form
        if not path.is_file():  # a pipe would hold the event loop
            raise InvalidError(f"{path} is not a regular file")
        return cls(path, by_name)

    def __str__(self) -> str:
        return "standard input" if str(self.path) == STANDARD_INPUT else str(self.path)

    async def open(self) -> Source:
        """Its rows of text."""
        if str(self.path) == STANDARD_INPUT or self.form is None:
            return await open_standard_input(self.form)
        return open_source(self.path, self.form)


async def rows_of(file: UpdatesFile, schema: pa.Schema, given: dict[str, int]) -> AsyncIterator[FileRows]:
    """The rows of ``file`` as columns of ``schema``.

    given: values of columns that the file does not have; it may have differences of its own, not times

    Raises `InvalidError` for a column that is missing, unknown or given twice, and for a row that does not fit."""
    if file.form is Format.PARQUET and str(file.path) != STANDARD_INPUT:
        for rows in _parquet(file, schema, given):
            yield rows
        return
    with await file.open() as source:
        if source.columns is not None:
            _check_columns(str(file), source.columns, schema, given)
        while records := await source.pull(lambda: list(islice(source.items, ROWS))):
            yield _columns(str(file), records, schema, given)


def _parquet(file: UpdatesFile, schema: pa.Schema, given: dict[str, int]) -> Iterator[FileRows]:
    first = 1
    try:
        with pq.ParquetFile(file.path) as table:
            _check_columns(str(file), table.schema_arrow.names, schema, given)
            for batch in table.iter_batches(batch_size=16 * ROWS):
                place = _numbered_from(str(file), first)
                arrays = [_parquet_column(batch, field, given, place) for field in schema]
                yield FileRows(pa.RecordBatch.from_arrays(arrays, schema=schema), place)
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        where = f"{file}, from row {first} on" if first > 1 else str(file)
        raise InvalidError(f"{where}: {error}") from error


def _numbered_from(name: str, first: int) -> Place:
    return lambda row: f"{name}, row {first + row}"


def _parquet_column(batch: pa.RecordBatch, field: pa.Field, given: dict[str, int], place: Place) -> pa.Array:
    if field.name not in batch.schema.names:
        return _repeated(given[field.name], batch.num_rows, field)
    column = batch.column(field.name)
    if column.null_count and not field.nullable:
        row = int(mask_of(column.is_null()).argmax())
        raise InvalidError(f"{place(row)}: {field.name} is null, which it may not be")
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        row = _first_that_fails(column, field.type)
        why = f"{field.name} is {column[row]}, which is no {field.type}"
        raise InvalidError(f"{place(row)}: {why}") from error


def _first_that_fails(column: pa.Array, kind: pa.DataType) -> int:
    """The first row of ``column`` that cannot be cast, found by halves."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(kind)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _columns(name: str, records: Sequence[Record | BadRow], schema: pa.Schema, given: dict[str, int]) -> FileRows:
    rows: list[Record] = []
    for record in records:
        if isinstance(record, BadRow):
            raise InvalidError(f"{name}, line {record.line}: {record.reason}")
        rows.append(record)

    def place(row: int) -> str:
        return f"{name}, line {rows[row].line}"

    for number, row in enumerate(rows):
        if unknown := sorted(row.fields.keys() - set(schema.names)):
            raise InvalidError(f"{place(number)}: the collection has no column {', '.join(unknown)}")
        _check_given_once(row.fields, given, f"{place(number)} has its own")
    arrays = [_column(rows, field, given, place) for field in schema]
    return FileRows(pa.RecordBatch.from_arrays(arrays, schema=schema), place)


def _column(rows: Sequence[Record], field: pa.Field, given: dict[str, int], place: Place) -> pa.Array:
    if field.name in given and all(field.name not in row.fields for row in rows):
        return _repeated(given[field.name], len(rows), field)
    values = [_value(row, field, place, number) for number, row in enumerate(rows)]
    try:
        return _array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, value in enumerate(values):
            try:
                _array([value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                what = f"{place(number)}: {field.name} is {value!r}, which is no {field.type}"
                raise InvalidError(what) from error
        raise


def _value(row: Record, field: pa.Field, place: Place, number: int) -> Any:
    """The value of a row; an empty text is none where the column is not of texts."""
    if field.name not in row.fields and not field.nullable:
        raise InvalidError(f"{place(number)}: {field.name} is missing")
    value = row.fields.get(field.name)
    if value == "" and not (_is_text(field.type)):
        value = None
    if value is None and not field.nullable:
        raise InvalidError(f"{place(number)}: {field.name} is empty, which it may not be")
    return value


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """``values`` as ``kind``: texts are read as it, all else is taken as it is."""
    texts = sum(value is None or isinstance(value, str) for value in values)
    if texts == len(values):
        return pa.array(values, pa.string()).cast(kind)
    if any(isinstance(value, str) for value in values):
        return pa.concat_arrays([_array([value], kind) for value in values])
    if any(isinstance(value, bool) for value in values) and not pa.types.is_boolean(kind):
        raise TypeError("a truth value is no number")
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        raise TypeError("a fraction is no integer")
    return pa.array(values, kind)


def _repeated(value: int, rows: int, field: pa.Field) -> pa.Array:
    return pa.repeat(pa.scalar(value, field.type), rows)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _check_columns(file: str, columns: Sequence[str], schema: pa.Schema, given: dict[str, int]) -> None:
    if unknown := [name for name in columns if name not in schema.names]:
        has = ", ".join(schema.names)
        raise InvalidError(f"{file}: the collection has no column {', '.join(unknown)}; it has {has}")
    if len(set(columns)) < len(columns):
        raise InvalidError(f"{file} has a column twice: {', '.join(columns)}")
    _check_given_once(columns, given, f"{file} has its own")
    if missing := [name for name in schema.names if name not in columns and name not in given]:
        hint = "; give --at TIME" if missing[0].startswith("_time") else ""
        raise InvalidError(f"{file} has no column {', '.join(missing)}{hint}")


def _check_given_once(names: Collection[str], given: dict[str, int], where: str) -> None:
    """Refuse a time in the file beside one for all rows: nobody can say which of them is meant."""
    if twice := [name for name in given if name in names and name != DIFF]:
        raise InvalidError(f"{where} {', '.join(twice)}, and --at gives one; leave out one of them")
