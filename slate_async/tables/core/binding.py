"""A predicate joined to a schema: which rows pass, and which spans of rows cannot have one that does.

Negations are pushed down to the leaves, so every leaf asks one question of one column, and a conjunction or disjunction
of leaves is all that is left. A leaf is answered three times: for rows, as an Arrow expression; for spans, from
statistics, a vector of answers for any number of spans; and in words, for `plan`.

Invariant: a span is skipped only if no row in it passes. What statistics do not say keeps the span.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.errors import InvalidError
from slate_async.tables.core.literals import Place, Side, place
from slate_async.tables.core.predicate import (
    OPPOSITE,
    And,
    Comparison,
    IsIn,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
)

Mask: TypeAlias = npt.NDArray[np.bool_]
_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


class Spans(Protocol):
    """Statistics of spans of rows: blocks, row groups or pages."""

    @property
    def count(self) -> int:
        """How many spans."""

    def low(self, column: str) -> pa.Array | None:
        """Of each span a value at or below all of its values, of the column's type; null where it is not known, and of
        spans without values. NaN is above all others."""

    def high(self, column: str) -> pa.Array | None:
        """Of each span a value at or above all of its values."""

    def may_have_nan(self, column: str) -> bool:
        """Whether `high` says nothing of NaNs."""

    def all_null(self, column: str) -> Mask | None:
        """Whether a span has no values at all; ``None`` if that is not known of any."""

    def no_null(self, column: str) -> Mask | None:
        """Whether a span has no nulls."""


class Bound(Protocol):
    """A predicate joined to a schema."""

    def expression(self) -> pc.Expression:
        """True of the rows that pass, false or null of others; over batches of that schema."""

    def may_pass(self, spans: Spans) -> Mask:
        """Of each span: may a row of it pass?"""


def bind(predicate: Predicate, schema: pa.Schema) -> Bound:
    """Join ``predicate`` to ``schema``. Raises `InvalidError` for unknown columns, with the nearest names, and for
    values that do not compare with a column's."""
    return _bind(predicate, schema, negated=False)


def _bind(node: Predicate, schema: pa.Schema, *, negated: bool) -> Bound:
    match node:
        case Not(part):
            return _bind(part, schema, negated=not negated)
        case And(parts) | Or(parts):
            bound = tuple(_bind(part, schema, negated=negated) for part in parts)
            return _All(bound) if isinstance(node, And) != negated else _Any(bound)
        case IsNull(column):
            _field(schema, column)
            return _Null(column, wanted=not negated)
        case Comparison(column, op, value):
            field = _field(schema, column)
            return _comparison(column, OPPOSITE[op] if negated else op, place(value, field.type, column), field.type)
        case IsIn(column, values):
            field = _field(schema, column)
            op = Op.NE if negated else Op.EQ
            each = tuple(_comparison(column, op, place(value, field.type, column), field.type) for value in values)
            if not each:
                return _Constant(column, truth=negated)
            return _All(each) if negated else _Any(each)
        case StartsWith(column, prefix):
            return _starts(_field(schema, column), prefix, negated=negated)
    raise InvalidError(f"{node!r} is no predicate")


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[Bound, ...]

    def expression(self) -> pc.Expression:
        return _joined([part.expression() for part in self.parts], pc.and_kleene, empty=True)

    def may_pass(self, spans: Spans) -> Mask:
        mask = np.ones(spans.count, np.bool_)
        for part in self.parts:
            mask &= part.may_pass(spans)
        return mask


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[Bound, ...]

    def expression(self) -> pc.Expression:
        return _joined([part.expression() for part in self.parts], pc.or_kleene, empty=False)

    def may_pass(self, spans: Spans) -> Mask:
        mask = np.zeros(spans.count, np.bool_)
        for part in self.parts:
            mask |= part.may_pass(spans)
        return mask


@dataclass(frozen=True, slots=True)
class _Null:
    """Is null, or is not."""

    column: str
    wanted: bool

    def expression(self) -> pc.Expression:
        field = pc.field(self.column)
        return field.is_null() if self.wanted else field.is_valid()

    def may_pass(self, spans: Spans) -> Mask:
        known = spans.no_null(self.column) if self.wanted else spans.all_null(self.column)
        return np.ones(spans.count, np.bool_) if known is None else np.logical_not(known)


@dataclass(frozen=True, slots=True)
class _Constant:
    """``truth`` of every value; null of nulls."""

    column: str
    truth: bool

    def expression(self) -> pc.Expression:
        valid = pc.field(self.column).is_valid()
        return valid if self.truth else pc.and_kleene(pc.scalar(False), valid)

    def may_pass(self, spans: Spans) -> Mask:
        return _with_values(self.column, spans) if self.truth else np.zeros(spans.count, np.bool_)


@dataclass(frozen=True, slots=True)
class _Compare:
    """``column op value``, which is of the column's type; of doubles for floats, of large binary for bytes."""

    column: str
    op: Op
    value: pa.Scalar

    def expression(self) -> pc.Expression:
        field = pc.field(self.column).cast(self.value.type)
        compared: pc.Expression = _COMPARE[self.op](field, pc.scalar(self.value))
        return compared

    def may_pass(self, spans: Spans) -> Mask:
        low, high = _cast(spans.low(self.column), self.value.type), _cast(spans.high(self.column), self.value.type)
        mask = _with_values(self.column, spans)
        if low is None or high is None:
            return mask
        if self.op in (Op.LT, Op.LE):
            return mask & _true_or_unknown(_COMPARE[self.op](low, self.value))
        if self.op in (Op.GT, Op.GE):
            return mask & _true_or_unknown(_COMPARE[self.op](high, self.value))
        at_low, at_high = pc.equal(low, self.value), pc.equal(high, self.value)
        if self.op is Op.NE:  # bounds that are equal are the values themselves, or nothing is known
            return mask & _true_or_unknown(pc.invert(pc.and_kleene(at_low, at_high)))
        below, above = pc.less_equal(low, self.value), pc.greater_equal(high, self.value)
        return mask & _true_or_unknown(pc.and_kleene(below, above))


@dataclass(frozen=True, slots=True)
class _CompareFloat:
    """As `_Compare`, of doubles: NaN equals NaN, and is above all others."""

    column: str
    op: Op
    value: float

    def expression(self) -> pc.Expression:
        field = pc.field(self.column).cast(pa.float64())
        is_nan = pc.is_nan(field)
        if self.value != self.value:
            if self.op in (Op.EQ, Op.GE):
                return is_nan
            if self.op in (Op.NE, Op.LT):
                return pc.invert(is_nan)
            valid: pc.Expression = field.is_valid()
            return valid if self.op is Op.LE else pc.and_kleene(pc.scalar(False), valid)
        compared: pc.Expression = _COMPARE[self.op](field, pc.scalar(self.value))
        return pc.or_kleene(compared, is_nan) if self.op in (Op.GT, Op.GE) else compared

    def may_pass(self, spans: Spans) -> Mask:
        mask = _with_values(self.column, spans)
        low, high = _doubles(spans.low(self.column)), _doubles(spans.high(self.column))
        if low is None or high is None:
            return mask
        (lows, low_known), (highs, high_known) = low, high
        nan_high = np.isnan(highs) | spans.may_have_nan(self.column)
        if self.op in (Op.LT, Op.LE):
            return mask & (~low_known | _below(lows, self.value, or_at=self.op is Op.LE))
        above = nan_high | _below(np.full(1, self.value), highs, or_at=self.op is not Op.GT)
        if self.op in (Op.GT, Op.GE):
            possible: Mask = ~high_known | (above & (self.op is Op.GE or self.value == self.value))
            return mask & possible
        if self.op is Op.EQ:
            return mask & (~low_known | ~high_known | (_below(lows, self.value, or_at=True) & above))
        constant = low_known & high_known & _same(lows, self.value) & _same(highs, self.value)
        varies: Mask = ~constant | (nan_high & ~np.isnan(lows))
        return mask & varies


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Starts with ``prefix``, or does not."""

    column: str
    prefix: str | bytes
    negated: bool

    def expression(self) -> pc.Expression:
        starts: pc.Expression
        if isinstance(self.prefix, str):
            starts = pc.starts_with(pc.field(self.column).cast(pa.large_string()), self.prefix)
        else:
            raw = pc.field(self.column).cast(pa.large_binary())
            starts = pc.equal(
                pc.binary_slice(raw, 0, len(self.prefix)), pc.scalar(pa.scalar(self.prefix, pa.large_binary()))
            )
        return pc.invert(starts) if self.negated else starts

    def may_pass(self, spans: Spans) -> Mask:
        mask = _with_values(self.column, spans)
        kind = pa.large_string() if isinstance(self.prefix, str) else pa.large_binary()
        low, high = _cast(spans.low(self.column), kind), _cast(spans.high(self.column), kind)
        if low is None or high is None:
            return mask
        raw = self.prefix.encode() if isinstance(self.prefix, str) else self.prefix
        low, high = low.cast(pa.large_binary()), high.cast(pa.large_binary())
        if self.negated:
            inside = pc.and_kleene(
                pc.equal(pc.binary_slice(low, 0, len(raw)), raw), pc.equal(pc.binary_slice(high, 0, len(raw)), raw)
            )
            return mask & _true_or_unknown(pc.invert(inside))
        reaches = pc.greater_equal(high, pa.scalar(raw, pa.large_binary()))
        begins = pc.less_equal(pc.binary_slice(low, 0, len(raw)), pa.scalar(raw, pa.large_binary()))
        return mask & _true_or_unknown(pc.and_kleene(reaches, begins))


def _comparison(column: str, op: Op, at: Place, kind: pa.DataType) -> Bound:
    """Beside a value that the type lacks, what is left is a comparison with the next lower one, or a constant."""
    if at.value is None:
        higher = op in (Op.GT, Op.GE)
        return _Constant(column, truth=op is Op.NE or (op is not Op.EQ and higher == (at.side is Side.BELOW)))
    if at.side is Side.BETWEEN:
        if op in (Op.EQ, Op.NE):
            return _Constant(column, truth=op is Op.NE)
        op = Op.LE if op in (Op.LT, Op.LE) else Op.GT
    if pa.types.is_floating(kind):
        return _CompareFloat(column, op, at.value.as_py())
    return _Compare(column, op, at.value)


def _starts(field: pa.Field, prefix: str | bytes, *, negated: bool) -> Bound:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if not (text and isinstance(prefix, str)) and not (binary and isinstance(prefix, bytes)):
        raise InvalidError(f"column {field.name!r} is of type {field.type}: no value of it starts with {prefix!r}")
    return _Prefix(field.name, prefix, negated)


def _field(schema: pa.Schema, column: str) -> pa.Field:
    found = schema.get_all_field_indices(column)
    if len(found) == 1:
        return schema.field(found[0])
    near = difflib.get_close_matches(column, schema.names, n=3)
    hint = f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else f"; those are {schema.names[:20]}"
    raise InvalidError(f"there is no column {column!r}{hint}")


def _joined(parts: list[pc.Expression], join: Callable[[Any, Any], pc.Expression], *, empty: bool) -> pc.Expression:
    """As a balanced tree: a long list is not a deep expression."""
    if not parts:
        return pc.scalar(empty)
    while len(parts) > 1:
        pairs = [join(parts[at], parts[at + 1]) for at in range(0, len(parts) - 1, 2)]
        parts = pairs + (parts[-1:] if len(parts) % 2 else [])
    return parts[0]


def _with_values(column: str, spans: Spans) -> Mask:
    empty = spans.all_null(column)
    return np.ones(spans.count, np.bool_) if empty is None else ~empty


def _cast(bounds: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    return bounds if bounds is None or bounds.type == kind else bounds.cast(kind)


def _true_or_unknown(answers: pa.Array) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(answers, True).to_numpy(zero_copy_only=False), np.bool_)
    return mask


def _doubles(bounds: pa.Array | None) -> tuple[npt.NDArray[np.float64], Mask] | None:
    """The values and which of them are known."""
    if bounds is None:
        return None
    known = bounds.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(bounds.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False), known


def _below(one: Any, other: Any, *, or_at: bool) -> Mask:
    """``one < other``, or ``<=``, where NaN is above all others."""
    below: Mask = (one < other) | (~np.isnan(one) & np.isnan(other))
    if or_at:
        below = below | _same(one, other)
    return below


def _same(one: Any, other: Any) -> Mask:
    same: Mask = (one == other) | (np.isnan(one) & np.isnan(other))
    return same
