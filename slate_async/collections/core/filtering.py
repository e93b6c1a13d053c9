"""Filters on data that are pushed down to a snapshot: which rows they keep, and which spans of rows cannot hold any.

A filter asks about data only. All updates of one data are kept or dropped together, so filtering and consolidating can
be done in either order (property P15). Comparisons are Arrow's, and a null passes none of them.

Invariant: a span is skipped only if no row within its ranges passes. What a range does not say keeps the span: floats
have no ranges of their NaNs, and a range without values may be of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import mask_array, where_true
from slate_async.collections.core.frontier import Mask
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.core.values import scalar_of
from slate_async.errors import InvalidError


class Op(Enum):
    """How a condition compares. The value is what users write."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    IS_NULL = "is null"
    NOT_NULL = "is not null"


_COMPARE = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}

ConditionLike: TypeAlias = tuple[str, str] | tuple[str, str, Any]
"""What users write: ``("total", ">", 5)``, ``("customer", "in", ["ann", "bob"])``, ``("note", "is null")``."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What is known of a column in a span of rows.

    low, high: Arrow scalars at or below, at or above every value but nulls and NaNs; ``None`` if not known
    nulls: how many; ``None`` if not known
    """

    rows: int
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one column. ``values``: one to compare with, any number for ``in``, none for nulls."""

    column: str
    op: Op
    values: tuple[pa.Scalar, ...]

    @classmethod
    def of(cls, given: ConditionLike, schema: UpdateSchema) -> Condition:
        """What a user gives as a condition. Raises `InvalidError` for an unknown column or comparison, and for a value
        that the column cannot hold, null among them."""
        if not isinstance(given, tuple) or not 2 <= len(given) <= 3:
            raise InvalidError(f"{given!r} is no condition: that is (column, comparison, value)")
        column, sign, *value = given
        if column not in schema.data.names:
            raise InvalidError(f"{column!r} is no data column: those are {schema.data.names}")
        if sign not in {op.value for op in Op}:
            raise InvalidError(f"{sign!r} is no comparison: those are {', '.join(op.value for op in Op)}")
        op = Op(sign)
        if bool(value) != (op not in (Op.IS_NULL, Op.NOT_NULL)):
            raise InvalidError(f"{given!r}: {sign} takes {'no' if value else 'a'} value")
        if op is Op.IN and not isinstance(value[0], list | tuple | set | frozenset):
            raise InvalidError(f"{given!r}: in takes a list of values")
        values = value[0] if op is Op.IN else value
        return cls(column, op, tuple(_scalar(item, schema.data.field(column)) for item in values))

    def mask(self, column: pa.Array) -> Mask:
        """Whether each value of ``column`` passes."""
        if self.op is Op.IS_NULL:
            return where_true(column.is_null())
        if self.op is Op.NOT_NULL:
            return where_true(column.is_valid())
        values = self.values
        if pa.types.is_float16(column.type):  # which Arrow does not compare
            column, values = column.cast(pa.float32()), tuple(value.cast(pa.float32()) for value in values)
        if self.op is Op.IN:
            passed = np.zeros(len(column), np.bool_)
            for value in values:
                passed |= where_true(pc.equal(column, value))
            return passed
        return where_true(_COMPARE[self.op](column, values[0]))

    def may_pass(self, known: ColumnRange) -> bool:
        """Whether a row of a span may pass, of whose column ``known`` is known."""
        if self.op is Op.IS_NULL:
            return known.nulls is None or known.nulls > 0
        if known.nulls is not None and known.nulls >= known.rows:
            return False
        low, high = known.low, known.high
        if self.op is Op.NOT_NULL or low is None or high is None:
            return True
        if self.op is Op.NE:
            constant = _holds(pc.equal, low, high) and _holds(pc.equal, low, self.values[0])
            return pa.types.is_floating(low.type) or not constant
        if self.op in (Op.LT, Op.LE):
            return _holds(_COMPARE[self.op], low, self.values[0])
        if self.op in (Op.GT, Op.GE):
            return _holds(_COMPARE[self.op], high, self.values[0])
        return any(_holds(pc.less_equal, low, value) and _holds(pc.less_equal, value, high) for value in self.values)


def conditions_of(given: Iterable[ConditionLike], schema: UpdateSchema) -> tuple[Condition, ...]:
    """What a user gives as a filter: conditions that all have to hold. Raises `InvalidError` for anything else."""
    if not isinstance(given, Iterable):
        raise InvalidError(f"where takes conditions (column, comparison, value), not {given!r}")
    return tuple(Condition.of(condition, schema) for condition in given)


def filtered(updates: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """Those of ``updates`` whose data pass all ``conditions``."""
    passed = np.ones(updates.num_rows, np.bool_)
    for condition in conditions:
        passed &= condition.mask(updates.column(condition.column))
    return updates if passed.all() else updates.filter(mask_array(passed))


def may_pass(conditions: Iterable[Condition], ranges: Mapping[str, ColumnRange]) -> bool:
    """Whether a span of rows may have one that passes all ``conditions``; ``ranges``: what is known, by column."""
    return all(
        condition.column not in ranges or condition.may_pass(ranges[condition.column]) for condition in conditions
    )


def _scalar(value: Any, field: pa.Field) -> pa.Scalar:
    if value is None:
        raise InvalidError(f"nothing compares with null; ask for column {field.name} with 'is null'")
    return scalar_of(value, field)


def _holds(compare: Any, one: pa.Scalar, other: pa.Scalar) -> bool:
    return bool(compare(one, other).as_py())
