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
    """See the module docstring. One for each map of an open database, shared by all that write it."""

    __slots__ = ("__weakref__", "_ended", "_running", "allowed")

    def __init__(self) -> None:
        self.allowed: bool | None = None
        self._running = 0
        self._ended: asyncio.Event | None = None

    def __enter__(self) -> None:
        """A plain write begins."""
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if self._ended is not None and not self._running:
            self._ended.set()
            self._ended = None

    async def end(self) -> None:
        """None begins from now on, and those that have begun are over."""
        self.allowed = False
        while self._running:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()


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
