"""Python values as values of a column, without a loss: what Arrow would cut off or round to infinity is refused.

Arrow takes 1.5 for an integer 1, a time of day for a date, and microseconds for whole seconds.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa

from slate_async.errors import InvalidError

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_LARGEST = {pa.float16(): float(np.finfo(np.float16).max), pa.float32(): float(np.finfo(np.float32).max)}


def array_of(values: list[Any], field: pa.Field) -> pa.Array:
    """``values`` as a column of the type of ``field``. Raises `InvalidError`, which names the row, for a value that the
    column cannot hold as it is, and for a null that it may not have."""
    try:
        array = pa.array([_half(value) for value in values] if pa.types.is_float16(field.type) else values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        for row, value in enumerate(values):
            _converted(value, field, f"row {row}: ")
        raise InvalidError(f"column {field.name}: {error}") from error
    is_text_refused = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    for row, value in enumerate(values):
        if is_text_refused and isinstance(value, str):
            raise InvalidError(f"row {row}: {_text(value, field)}: it is a str; encode it")
        if value is None and not field.nullable:
            raise InvalidError(f"row {row}: {field.name} is null, which it may not be")
        if loss := _loss(value, field.type):
            raise InvalidError(f"row {row}: {_text(value, field)}: it {loss}")
    return array


def scalar_of(value: Any, field: pa.Field) -> pa.Scalar:
    """``value`` as one of the column ``field``. Raises `InvalidError` if the column cannot hold it as it is."""
    scalar = _converted(value, field)
    if loss := _loss(value, field.type):
        raise InvalidError(f"{_text(value, field)}: it {loss}")
    return scalar


def _converted(value: Any, field: pa.Field, where: str = "") -> pa.Scalar:
    try:
        return pa.scalar(_half(value) if pa.types.is_float16(field.type) else value, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidError(f"{where}{_text(value, field)}: {error}") from error


def _half(value: Any) -> Any:
    """Some releases of Arrow take no other number for a half float."""
    with np.errstate(over="ignore"):  # what is too large is refused later
        return np.float16(value) if type(value) in (int, float) else value


def _text(value: Any, field: pa.Field) -> str:
    return f"{value!r:.80} is no value of column {field.name}, which is {field.type}"


def _loss(value: Any, kind: pa.DataType) -> str:
    """What of ``value``, which Arrow takes, a column of ``kind`` would not keep; nothing if it keeps all."""
    if value is None:
        return ""
    if pa.types.is_integer(kind):
        return "" if hasattr(value, "__index__") else "is no integer"
    if pa.types.is_temporal(kind):
        return _temporal_loss(value, kind)
    if kind in _LARGEST and math.isfinite(value) and abs(value) > _LARGEST[kind]:
        return "is too large"
    return ""


def _temporal_loss(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return "has a time of day" if isinstance(value, dt.datetime) else ""
    micro = getattr(value, "microsecond", getattr(value, "microseconds", 0))
    nano = getattr(value, "nanosecond", getattr(value, "nanoseconds", 0))
    if micro % _MICROSECONDS[kind.unit] or (nano and kind.unit != "ns"):
        return f"is finer than {kind.unit}"
    if pa.types.is_timestamp(kind) and kind.tz is None and getattr(value, "tzinfo", None) is not None:
        return "has a time zone, and the column has none"
    return ""
