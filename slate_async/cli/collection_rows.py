"""Files of updates as Arrow columns, some rows at a time.

Parquet is read as columns. Rows of text (CSV, JSON Lines) are turned into columns by the types of the collection; the
first one that does not fit is an error that names its line. Nothing is guessed: a text becomes a number only in a
column of numbers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.cli.sources import BadRow, Format, Record, format_of, open_source, open_standard_input
from slate_async.errors import InvalidError

ROWS = 4_096
DIFF = "_diff"
STANDARD_INPUT = "-"


async def batches_of(
    file: Path, form: Format | None, schema: pa.Schema, given: dict[str, int]
) -> AsyncIterator[pa.RecordBatch]:
    """The rows of ``file`` as columns of ``schema``.

    given: values of columns that the file does not have; it may have differences of its own, not times

    Raises `InvalidError` for a column that is missing, unknown or given twice, and for a row that does not fit."""
    if str(file) == STANDARD_INPUT:
        source = await open_standard_input(form)
    else:
        chosen = format_of(file) if form is None else form
        if chosen is Format.PARQUET:
            for batch in _parquet(file, schema, given):
                yield batch
            return
        source = open_source(file, chosen)
    with source:
        if source.columns is not None:
            _check_columns(source.columns, schema, given)
        while records := await source.pull(lambda: list(islice(source.items, ROWS))):
            yield _columns(records, schema, given)


def _parquet(file: Path, schema: pa.Schema, given: dict[str, int]) -> Any:
    try:
        with pq.ParquetFile(file) as table:
            _check_columns(table.schema_arrow.names, schema, given)
            for batch in table.iter_batches(batch_size=16 * ROWS):
                arrays = [_parquet_column(batch, field, given) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise InvalidError(f"{file}: {error}") from error


def _parquet_column(batch: pa.RecordBatch, field: pa.Field, given: dict[str, int]) -> pa.Array:
    if field.name not in batch.schema.names:
        return _repeated(given[field.name], batch.num_rows, field)
    column = batch.column(field.name)
    if column.null_count and not field.nullable:
        raise InvalidError(f"{field.name} is null in some row, which it may not be")
    return column if column.type == field.type else column.cast(field.type)


def _columns(records: Sequence[Record | BadRow], schema: pa.Schema, given: dict[str, int]) -> pa.RecordBatch:
    rows: list[Record] = []
    for record in records:
        if isinstance(record, BadRow):
            raise InvalidError(f"line {record.line}: {record.reason}")
        rows.append(record)
    for row in rows:
        if unknown := sorted(row.fields.keys() - set(schema.names)):
            raise InvalidError(f"line {row.line}: the collection has no column {', '.join(unknown)}")
        _check_given_once(row.fields, given, f"line {row.line} has its own")
    arrays = [_column(rows, field, given) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(rows: Sequence[Record], field: pa.Field, given: dict[str, int]) -> pa.Array:
    if field.name in given and all(field.name not in row.fields for row in rows):
        return _repeated(given[field.name], len(rows), field)
    values = [_value(row, field) for row in rows]
    try:
        return _array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for row, value in zip(rows, values, strict=True):
            try:
                _array([value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                what = f"line {row.line}: {field.name} is {value!r}, which is no {field.type}"
                raise InvalidError(what) from error
        raise


def _value(row: Record, field: pa.Field) -> Any:
    """The value of a row; an empty text is none where the column is not of texts."""
    if field.name not in row.fields and not field.nullable:
        raise InvalidError(f"line {row.line}: {field.name} is missing")
    value = row.fields.get(field.name)
    if value == "" and not (_is_text(field.type)):
        value = None
    if value is None and not field.nullable:
        raise InvalidError(f"line {row.line}: {field.name} is empty, which it may not be")
    return value


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """``values`` as ``kind``: texts are read as it, all else is taken as it is."""
    if all(value is None or isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(kind)
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


def _check_columns(columns: Sequence[str], schema: pa.Schema, given: dict[str, int]) -> None:
    if unknown := [name for name in columns if name not in schema.names]:
        raise InvalidError(f"the collection has no column {', '.join(unknown)}; it has {', '.join(schema.names)}")
    _check_given_once(columns, given, "the file has its own")
    if missing := [name for name in schema.names if name not in columns and name not in given]:
        hint = "; give --at TIME" if missing[0].startswith("_time") else ""
        raise InvalidError(f"the file has no column {', '.join(missing)}{hint}")


def _check_given_once(names: Collection[str], given: dict[str, int], where: str) -> None:
    """Refuse a time in the file beside one for all rows: nobody can say which of them is meant."""
    if twice := [name for name in given if name in names and name != DIFF]:
        raise InvalidError(f"{where} {', '.join(twice)}, and --at gives one; leave out one of them")
