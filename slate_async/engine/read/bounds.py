"""What a scan covers: from the caller's ``start``, ``end`` and ``prefix`` to one half-open key range."""

from __future__ import annotations

from typing import NamedTuple

from slate_async.arguments import BytesLike
from slate_async.errors import InvalidError


class KeyRange(NamedTuple):
    """Keys from ``start`` (inclusive) to ``end`` (exclusive) in byte order; ``None`` is unbounded."""

    start: bytes | None
    end: bytes | None

    @property
    def empty(self) -> bool:
        """Whether no key can be inside."""
        return self.end is not None and (self.start or b"") >= self.end

    def overlaps(self, first: bytes, last: bytes) -> bool:
        """Whether keys from ``first`` to ``last``, both included, may be inside."""
        return (self.start is None or last >= self.start) and (self.end is None or first < self.end)


EVERY_KEY = KeyRange(None, None)


def key_range(start: BytesLike | None, end: BytesLike | None, prefix: BytesLike | None) -> KeyRange:
    """The range of keys that all three arguments describe.

    ``start >= end`` is an empty range. Raises `InvalidError` for what is not bytes-like, and for a ``prefix``
    together with a bound outside the keys that begin with it.
    """
    first = start if type(start) is bytes else _own(start, "start")
    last = None if end is None else _own(end, "end")
    if prefix is None:
        return KeyRange(first, last)
    common = _own(prefix, "prefix") or b""
    within = KeyRange(common, successor_of_prefix(common))
    for bound, name in ((first, "start"), (last, "end")):
        if bound is not None and (bound < common or (within.end is not None and bound > within.end)):
            raise InvalidError(f"{name}={bound!r} is outside the keys with prefix {common!r}; give one of the two")
    return KeyRange(within.start if first is None else first, within.end if last is None else last)


def successor_of_prefix(prefix: bytes) -> bytes | None:
    """The smallest key above every key that begins with ``prefix``; ``None`` when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _own(bound: BytesLike | None, name: str) -> bytes | None:
    if bound is None or type(bound) is bytes:
        return bound
    try:
        with memoryview(bound) as view:
            return view.tobytes()
    except TypeError:
        raise InvalidError(f"{name} is bytes-like or None, not {type(bound).__name__}") from None
