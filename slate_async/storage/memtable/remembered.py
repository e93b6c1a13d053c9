"""`Remembered`: what was found out about keys that are read again and again, in bounded memory.

A memtable with range deletes remembers the values that none of them hides, so a read of now takes one look at
``known``. An appended row makes it forget the row's key, a range delete all keys. So what is in ``known`` is the newest
value of its key, and seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

MOST_KEYS = 32_768
"""So many keys are remembered: about 5 MB beside the keys themselves."""
MOST_KEY_BYTES = 4 << 20
"""So many bytes the keys have together, which are the callers' own."""

_What = TypeVar("_What")


class Remembered(Generic[_What]):
    """``known``: of each key what is remembered; always the same dict."""

    __slots__ = ("key_bytes", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, _What] = {}
        self.key_bytes = 0

    def add(self, key: bytes, what: _What) -> None:
        """Remember ``what`` of ``key``. Where there is no room for it, all others are forgotten: what is read often is
        soon there again."""
        if key in self.known:
            self.known[key] = what
            return
        if len(self.known) >= MOST_KEYS or self.key_bytes + len(key) > MOST_KEY_BYTES:
            self.clear()
        self.known[key] = what
        self.key_bytes += len(key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Nothing is known of ``keys`` any more."""
        for key in keys:
            if self.known.pop(key, None) is not None:
                self.key_bytes -= len(key)

    def clear(self) -> None:
        """Nothing is known of any key any more."""
        self.known.clear()
        self.key_bytes = 0

    def forgetting(self, append_next: Callable[..., int]) -> Callable[..., int]:
        """`Memtable.append_next` that forgets the row's key."""

        def append(key: bytes, value: bytes, kind: int, expire_ms: int, create_ms: int) -> int:
            seq = append_next(key, value, kind, expire_ms, create_ms)
            if seq:
                self.forget((key,))
            return seq

        return append


def forget(seen: Remembered[bytes] | None, keys: Iterable[bytes], ranges: bool) -> Remembered[bytes] | None:
    """What a memtable remembers once rows of ``keys`` are added, range deletes among them if ``ranges``."""
    if ranges:
        seen = seen or Remembered()
        seen.clear()
    elif seen is not None:
        seen.forget(keys)
    return seen
