"""Reading what a store has in this machine's memory, without waiting for anything.

A store of local files can often do that, a store behind a network never; so it is no part of `ObjectStore`. Where it
can be done, a block is read in microseconds that would take a worker thread a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from slate_async.objectstore.protocol import ObjectStore

AT_HAND_BYTES = 128 << 10
"""No more is read at once: it is copied on the event loop, in some ten microseconds."""

ReadNow: TypeAlias = Callable[[str, int, int, int], bytes | None]


class ReadsNow(Protocol):
    """A store that may have objects at hand."""

    def read_now(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """``length`` bytes from ``offset`` of the object at ``key``, or of the one that was there when it was last read
        by `ObjectStore.get`, if they are at hand, at most `AT_HAND_BYTES`, and the object has ``size`` bytes. Else
        ``None``: `ObjectStore.get` reads them, or tells why not. For objects that are written once. Takes microseconds,
        never waits, raises nothing."""


def read_now_of(store: ObjectStore | ReadsNow) -> ReadNow:
    """`ReadsNow.read_now` of ``store``; of a store that cannot, what always says ``None``."""
    found: ReadNow = getattr(store, "read_now", _nothing)
    return found


def _nothing(key: str, offset: int, length: int, size: int) -> None:
    """Nothing is at hand."""
