"""What a scan gives, and what it has to read for it, by the schema of the version that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.tables.core.binding import Bound, Mask, Spans, bind
from slate_async.tables.core.keys import KeySet
from slate_async.tables.core.predicate import Predicate, PredicateLike, columns_of, predicate_of
from slate_async.tables.core.schema import ROW_ID, TableSchema


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a scan gives, checked as far as it can be without the table's schema.

    columns: in this order; ``None``: all
    row_ids: whether the column `ROW_ID` follows them
    """

    where: Predicate | None
    columns: tuple[str, ...] | None
    limit: int | None
    row_ids: bool

    @classmethod
    def of(
        cls, where: PredicateLike | None, columns: Sequence[str] | None, limit: int | None, *, row_ids: bool
    ) -> Wanted:
        """Raises `InvalidError`."""
        if columns is not None and (isinstance(columns, str) or not all(isinstance(name, str) for name in columns)):
            raise InvalidError(f"columns= is a list of names, not {columns!r}")
        if columns is not None and len(set(columns)) != len(columns):
            raise InvalidError(f"a column is asked for twice: {list(columns)}")
        if columns is not None and not columns and not row_ids:
            raise InvalidError("a scan gives at least one column")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise InvalidError(f"limit= is a number of rows, not {limit!r}")
        chosen = None if columns is None else tuple(columns)
        return cls(None if where is None else predicate_of(where), chosen, limit, row_ids)


@dataclass(frozen=True, slots=True)
class Plan:
    """A scan of one version.

    columns: that are given; ``needed``: that are read, those of the predicate among them
    given: the schema of its batches
    keys: only rows with one of these keys
    """

    schema: TableSchema
    columns: tuple[str, ...]
    needed: tuple[str, ...]
    bound: Bound | None
    row_ids: bool
    given: pa.Schema
    keys: KeySet | None = None

    def may_pass(self, spans: Spans) -> Mask | None:
        """Of each span: may it have a row that is given? ``None``: all may."""
        if self.keys is not None:
            return self.keys.may_pass(spans)
        return None if self.bound is None else self.bound.may_pass(spans)


def plan_of(wanted: Wanted, schema: TableSchema) -> Plan:
    """Raises `InvalidError` for columns that the table does not have, and values that do not compare."""
    columns = tuple(schema.names) if wanted.columns is None else wanted.columns
    given = schema.arrow(columns)
    if wanted.row_ids:
        given = given.append(pa.field(ROW_ID, pa.int64(), nullable=False))
    if wanted.where is None:
        return Plan(schema, columns, columns, None, wanted.row_ids, given)
    bound = bind(wanted.where, schema.arrow())
    asked = columns_of(wanted.where)
    needed = (*columns, *(name for name in schema.names if name in asked and name not in columns))
    return Plan(schema, columns, needed, bound, wanted.row_ids, given)
