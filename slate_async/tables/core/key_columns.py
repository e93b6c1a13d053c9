"""Columns that identify rows, and by which blocks are sorted: fields by id, which no change of the schema
may touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.tables.core.schema import TableSchema


def key_ids(schema: TableSchema, names: Any) -> tuple[int, ...]:
    """Ids of the columns that are the key. Raises `InvalidError` unless each is required and its values compare."""
    ids = []
    for name in _names("key", names):
        field = schema.field(name)
        if field.nullable:
            raise InvalidError(f"key column {name!r} may be null; make it pa.field({name!r}, …, nullable=False)")
        if not _compares(field.kind) or pa.types.is_floating(field.kind):
            raise InvalidError(f"key column {name!r} is of type {field.kind}, which identifies no row")
        ids.append(field.field_id)
    return tuple(ids)


def sort_ids(schema: TableSchema, names: Any) -> tuple[int, ...]:
    """Ids of the columns by which merges sort. Raises `InvalidError` for those that have no order."""
    ids = []
    for name in _names("sort_by", names):
        field = schema.field(name)
        if not _compares(field.kind):
            raise InvalidError(f"sort column {name!r} is of type {field.kind}, which has no order")
        ids.append(field.field_id)
    return tuple(ids)


def names_of(schema: TableSchema, ids: Sequence[int]) -> tuple[str, ...]:
    """What ``schema`` calls these columns."""
    names = {field.field_id: field.name for field in schema.fields}
    return tuple(names[field_id] for field_id in ids)


def _names(argument: str, given: Any) -> list[str]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise InvalidError(f"{argument}= is a list of names of columns, not {given!r}")
    if len(set(given)) != len(given):
        raise InvalidError(f"{argument}= names a column twice: {list(given)}")
    return list(given)


def _compares(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_dictionary(kind))
