"""Reading what a store has in this machine's memory, without waiting for anything.

A store of local files can often do that, a store behind a network never; so it is no part of `ObjectStore`. Where it
can be done, a block is read in microseconds that would take a worker thread a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from slate_async.objectstore.protocol import ObjectStore

SYNC_READ_BYTES = 128 << 10
"""No more is read at once: it is copied on the event loop, in some ten microseconds."""

ReadSync: TypeAlias = Callable[[str, int, int, int], bytes | None]


class SyncReads(Protocol):
    """A store that can often read without waiting."""

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """``length`` bytes from ``offset`` of the object at ``key``, or of the one that was there when it was last read
        by `ObjectStore.get`, if this machine has them in memory, at most `SYNC_READ_BYTES`, and the object has ``size``
        bytes. Else ``None``: `ObjectStore.get` reads them, or tells why not. For objects that are written once. Takes
        microseconds, never waits, raises nothing."""


def read_sync_of(store: ObjectStore | SyncReads) -> ReadSync:
    """`SyncReads.read_sync` of ``store``; of a store that cannot, what always says ``None``."""
    found: ReadSync = getattr(store, "read_sync", _nothing)
    return found


def _nothing(key: str, offset: int, length: int, size: int) -> None:
    """Nothing can be read without waiting."""
