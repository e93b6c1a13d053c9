"""Checking and copying what a caller hands in, at the call, so that nothing it does later can change it."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from slate_async.errors import InvalidError, Outcome
from slate_async.types import FORMAT_LIMITS, RowLimits

BytesLike: TypeAlias = bytes | bytearray | memoryview
Duration: TypeAlias = float | timedelta
MAX_TTL_MS = 2**62


def own_key(key: BytesLike, limits: RowLimits = FORMAT_LIMITS, outcome: Outcome | None = "not_applied") -> bytes:
    """``key`` as bytes of our own. Raises `InvalidError`, with ``outcome``, unless it is bytes-like, not empty, and
    within ``limits``."""
    if type(key) is not bytes:
        key = _copied(key, "key", outcome)
    if not 0 < len(key) <= limits.max_key_bytes:
        raise InvalidError(f"a key has {limits.describe_key()}, not {len(key)}", outcome=outcome)
    return key


def sought_key(key: BytesLike) -> bytes:
    """As `own_key`, of a read, whose error has no outcome."""
    return own_key(key, outcome=None)


def own_value(value: BytesLike, limits: RowLimits = FORMAT_LIMITS) -> bytes:
    """``value`` as bytes of our own. Raises `InvalidError` unless it is bytes-like and within ``limits``."""
    if type(value) is not bytes:
        value = _copied(value, "value", "not_applied")
    if len(value) > limits.max_value_bytes:
        raise InvalidError(f"a value has {limits.describe_value()}, not {len(value)}", outcome="not_applied")
    return value


def _copied(data: BytesLike, what: str, outcome: Outcome | None) -> bytes:
    try:
        view = memoryview(data)
    except TypeError:
        kind = type(data).__name__
        raise InvalidError(f"a {what} is bytes-like, not {kind}", outcome=outcome) from None
    try:
        return view.tobytes()
    finally:
        view.release()


def seconds(duration: Duration, what: str) -> float:
    """A duration argument in seconds. Raises `InvalidError` unless it is a positive, finite number."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise InvalidError(f"{what} is seconds or a timedelta, not {type(duration).__name__}", outcome="not_applied")
    if not 0 < duration < MAX_TTL_MS / 1000:
        raise InvalidError(f"{what} is a positive number of seconds, not {duration}", outcome="not_applied")
    return float(duration)


def ttl_ms(ttl: Duration) -> int:
    """A time to live in whole milliseconds, at least one."""
    return max(1, round(seconds(ttl, "ttl") * 1000))
