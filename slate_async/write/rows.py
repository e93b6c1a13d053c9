"""Checking and copying what a caller hands in, at the call, so that nothing it does later can change it."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from slate_async.errors import InvalidError
from slate_async.types import MAX_KEY_BYTES, MAX_VALUE_BYTES

BytesLike: TypeAlias = bytes | bytearray | memoryview
Duration: TypeAlias = float | timedelta
MAX_TTL_MS = 2**62


def own_key(key: BytesLike) -> bytes:
    """``key`` as bytes of our own. Raises `InvalidError` unless it is bytes-like and 1 to 65,535 bytes long."""
    if type(key) is not bytes:
        key = _copied(key, "key")
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise InvalidError(f"a key has 1 to {MAX_KEY_BYTES} bytes, not {len(key)}", outcome="not_applied")
    return key


def own_value(value: BytesLike) -> bytes:
    """``value`` as bytes of our own. Raises `InvalidError` unless it is bytes-like and below 2 GiB."""
    if type(value) is not bytes:
        value = _copied(value, "value")
    if len(value) > MAX_VALUE_BYTES:
        raise InvalidError(f"a value has at most {MAX_VALUE_BYTES} bytes, not {len(value)}", outcome="not_applied")
    return value


def _copied(data: BytesLike, what: str) -> bytes:
    try:
        view = memoryview(data)
    except TypeError:
        kind = type(data).__name__
        raise InvalidError(f"a {what} is bytes-like, not {kind}", outcome="not_applied") from None
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
