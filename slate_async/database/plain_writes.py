"""`PlainWrites`: whether rows of a typed map may be written without a look at its indexes.

| allowed | means | next |
|---|---|---|
| `None` | nobody has looked | `True` if the map has no index, else `False` |
| `True` | the map has no index: a write of a row is a plain write | `False`: somebody is about to give it one |
| `False` | every write is a transaction that reads which indexes there are | nothing |

Ordering rule: an index is registered after `end`, so no row that was written without it comes after its registration.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class PlainWrites:
    """See the module docstring. One for each map of an open database, shared by all that write it.

    running: plain writes that have begun; ended: set when the last of them is over, if somebody waits for that. A write
    is the block of a ``with``; `Map` writes that out where it counts"""

    __slots__ = ("__weakref__", "allowed", "ended", "running")

    def __init__(self) -> None:
        self.allowed: bool | None = None
        self.running = 0
        self.ended: asyncio.Event | None = None

    def __enter__(self) -> None:
        """A plain write begins."""
        self.running += 1

    def __exit__(self, *_: object) -> None:
        self.running -= 1
        if self.ended is not None:
            self.finished()

    def finished(self) -> None:
        """A plain write is over, and somebody waits for the last one."""
        if self.ended is not None and not self.running:
            self.ended.set()
            self.ended = None

    async def end(self) -> None:
        """None begins from now on, and those that have begun are over."""
        self.allowed = False
        while self.running:
            if self.ended is None:
                self.ended = asyncio.Event()
            await self.ended.wait()


class PlainWritesByMap:
    """Those of all maps of an open database, by the prefixes of the maps."""

    def __init__(self) -> None:
        self._used: WeakValueDictionary[bytes, PlainWrites] = WeakValueDictionary()
        self._over: dict[bytes, PlainWrites] = {}

    def of(self, prefix: bytes) -> PlainWrites:
        """Of the map whose keys begin with ``prefix``."""
        return self._used.setdefault(prefix, PlainWrites())

    async def end(self, prefix: bytes) -> None:
        """The map gets an index: see `PlainWrites.end`. Remembered even if nobody uses the map meanwhile."""
        self._over[prefix] = ended = self.of(prefix)
        await ended.end()
