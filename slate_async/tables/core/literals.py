"""Values that users compare columns with, and where they lie among the values of a column's type.

A literal is compared exactly, whatever the column's type can hold: ``price > 2.5`` on integers is ``price > 2``, and
``small == 1000`` on an int8 is false of every value. `place` finds the largest value of the type that is not above the
literal. No value is rounded, but an int beside a column of floats, which becomes the nearest double as in SQL.

Floats are ordered as in SQL: NaN equals NaN and is above everything else.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slate_async.errors import InvalidError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT: Final = Context(prec=200)


class Side(Enum):
    """Where a literal lies."""

    BELOW = "below all values of the type"
    AT = "at a value"
    BETWEEN = "above a value, and below the next"
    ABOVE = "above all values of the type"


@dataclass(frozen=True, slots=True)
class Place:
    """``value``: that at or just below the literal; ``None`` if the literal lies `Side.BELOW` or `Side.ABOVE` all."""

    side: Side
    value: pa.Scalar | None = None


_BELOW: Final = Place(Side.BELOW)
_ABOVE: Final = Place(Side.ABOVE)


def place(literal: Any, kind: pa.DataType, column: str) -> Place:
    """Where ``literal`` lies among values of type ``kind``. Floats of all widths are compared as doubles.

    Raises `InvalidError` if they do not compare, naming ``column``, both types and a way out."""
    literal = _plain(literal)
    types = pa.types
    if types.is_dictionary(kind):
        return place(literal, kind.value_type, column)
    if types.is_boolean(kind):
        if isinstance(literal, bool):
            return Place(Side.AT, pa.scalar(literal, kind))
    elif types.is_integer(kind):
        if _is_number(literal):
            return _integer(literal, kind)
    elif types.is_floating(kind):
        if _is_number(literal):
            return Place(Side.AT, pa.scalar(_double(literal), pa.float64()))
    elif types.is_decimal(kind):
        if isinstance(literal, Decimal | int) and not isinstance(literal, bool):
            return _decimal(Decimal(literal), kind)
        if isinstance(literal, float):
            raise _incomparable(literal, kind, column, f'write Decimal("{literal}")')
    elif types.is_string(kind) or types.is_large_string(kind):
        if isinstance(literal, str):
            return Place(Side.AT, _text(literal, kind, column))
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        if isinstance(literal, bytes):
            return Place(Side.AT, pa.scalar(literal, pa.large_binary()))
    elif types.is_timestamp(kind):
        if isinstance(literal, datetime):
            return _timestamp(literal, kind, column)
        if isinstance(literal, date):
            raise _incomparable(literal, kind, column, "write a datetime")
    elif types.is_date(kind):
        if isinstance(literal, date) and not isinstance(literal, datetime):
            return _of_units(((literal - date(1970, 1, 1)).days, 1), pa.date32())
        if isinstance(literal, datetime):
            raise _incomparable(literal, kind, column, "write its .date()")
    elif types.is_time(kind):
        if isinstance(literal, time) and literal.tzinfo is None:
            return _time(literal, kind)
    elif types.is_duration(kind):
        if isinstance(literal, timedelta):
            return _of_units(_scaled(literal // timedelta(microseconds=1), kind.unit), kind)
    else:
        raise InvalidError(f"column {column!r} is of type {kind}, which compares with nothing; ask whether it is null")
    raise _incomparable(literal, kind, column, "")


def literal_to_json(literal: Any) -> Any:
    """A literal as JSON: numbers that JSON has, strings and booleans as they are, the rest as ``{type: text}``.

    Raises `InvalidError` for what no column compares with."""
    literal = _plain(literal)
    if isinstance(literal, bool | str):
        return literal
    if isinstance(literal, int):
        return literal if abs(literal) < 1 << 53 else {"int": str(literal)}
    if isinstance(literal, float):
        return literal if math.isfinite(literal) else {"float": repr(literal)}
    for name, (kind, encode, _) in _FORMS.items():
        if type(literal) is kind:
            return {name: encode(literal)}
    raise InvalidError(f"no column compares with {literal!r}, of type {type(literal).__name__}")


def literal_from_json(value: Any) -> Any:
    """Back from `literal_to_json`. Raises `InvalidError` for anything else."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((name, text),) = value.items()
        if isinstance(text, str) and len(text) <= 1 << 20 and name in _DECODERS:
            try:
                return _DECODERS[name](text)
            except (ValueError, OverflowError, InvalidOperation, binascii.Error) as error:
                raise InvalidError(f"{text[:80]!r} is no {name}: {error}") from error
    raise InvalidError(f"{str(value)[:80]} is no value of a predicate")


def _plain(literal: Any) -> Any:
    """Arrow and numpy scalars as Python has them."""
    if isinstance(literal, pa.Scalar):
        return literal.as_py()
    if isinstance(literal, np.datetime64 | np.timedelta64):
        return literal.astype("M8[us]" if isinstance(literal, np.datetime64) else "m8[us]").item()
    if isinstance(literal, np.generic):
        return literal.item()
    if isinstance(literal, bytearray | memoryview):
        return bytes(literal)
    return literal


def _is_number(literal: Any) -> bool:
    return isinstance(literal, int | float | Decimal) and not isinstance(literal, bool)


def _double(literal: int | float | Decimal) -> float:
    try:
        return float(literal)
    except OverflowError:
        return math.inf if literal > 0 else -math.inf


def _integer(literal: int | float | Decimal, kind: pa.DataType) -> Place:
    if literal != literal:
        return _ABOVE
    bits = kind.bit_width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)
    if literal < low:
        return _BELOW
    if literal > high:
        return _ABOVE
    floor = math.floor(literal)
    return Place(Side.AT if floor == literal else Side.BETWEEN, pa.scalar(floor, kind))


def _decimal(literal: Decimal, kind: pa.DataType) -> Place:
    if literal.is_nan():
        return _ABOVE
    limit = Decimal(10) ** (kind.precision - kind.scale)
    if literal >= limit:
        return _ABOVE
    if literal <= -limit:
        return _BELOW
    floor = literal.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_FLOOR, context=_EXACT)
    if floor <= -limit:
        return _BELOW
    return Place(Side.AT if floor == literal else Side.BETWEEN, pa.scalar(floor, kind))


def _timestamp(literal: datetime, kind: pa.DataType, column: str) -> Place:
    if (literal.tzinfo is None) != (kind.tz is None):
        hint = "give the datetime a tzinfo" if kind.tz else "the column has no time zone: use a datetime without tzinfo"
        raise _incomparable(literal, kind, column, hint)
    since = literal.replace(tzinfo=UTC) - EPOCH if literal.tzinfo is None else literal - EPOCH
    return _of_units(_scaled(since // timedelta(microseconds=1), kind.unit), kind)


def _time(literal: time, kind: pa.DataType) -> Place:
    seconds = (literal.hour * 60 + literal.minute) * 60 + literal.second
    return _of_units(_scaled(seconds * 10**6 + literal.microsecond, kind.unit), kind)


def _scaled(microseconds: int, unit: str) -> tuple[int, int]:
    """In units of a type: numerator and denominator."""
    return microseconds * _UNITS_PER_SECOND[unit], 10**6


def _of_units(count: tuple[int, int], kind: pa.DataType) -> Place:
    numerator, denominator = count
    floor, rest = divmod(numerator, denominator)
    width = 32 if kind.bit_width == 32 else 64
    if floor < -(1 << width - 1):
        return _BELOW
    if floor >= 1 << width - 1:
        return _ABOVE
    integer = pa.scalar(floor, pa.int32() if width == 32 else pa.int64())
    return Place(Side.BETWEEN if rest else Side.AT, integer.cast(kind))


def _text(literal: str, kind: pa.DataType, column: str) -> pa.Scalar:
    try:
        return pa.scalar(literal, kind)
    except UnicodeEncodeError as error:
        raise InvalidError(f"column {column!r} holds UTF-8, and {literal!r} is none: {error}") from error


def _incomparable(literal: Any, kind: pa.DataType, column: str, hint: str) -> InvalidError:
    said = f"; {hint}" if hint else ""
    return InvalidError(
        f"column {column!r} is of type {kind}, which does not compare with {literal!r}, of type"
        f" {type(literal).__name__}{said}"
    )


_FORMS: Final[dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]]] = {
    "decimal": (Decimal, str, Decimal),
    "bytes": (
        bytes,
        lambda value: base64.b64encode(value).decode("ascii"),
        lambda text: base64.b64decode(text, validate=True),
    ),
    "timestamp": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "duration_us": (
        timedelta,
        lambda value: str(value // timedelta(microseconds=1)),
        lambda text: timedelta(microseconds=int(text)),
    ),
}
_DECODERS: Final[dict[str, Callable[[str], Any]]] = {
    **{name: decode for name, (_, _, decode) in _FORMS.items()},
    "int": int,
    "float": float,
}
