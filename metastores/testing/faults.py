"""An object store in memory and a wrapper that treats requests the way networks do.

Invariant: what a write does, it does at one moment, exactly by its condition; the wrapper only decides when that
moment is (now, later, never, twice) and what the caller hears of it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from metastores.protocol import ListedObject, StoredObject


class LostError(Exception):
    """No answer came. The request may have run or may run later."""

    outcome = "unknown"


class MemoryObjects:
    """`ConditionalObjects` in a dict. As with S3, equal bytes have equal etags: no write is told from another by it."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def get(self, key: str) -> StoredObject | None:
        """See `ConditionalObjects`."""
        data = self.objects.get(key)
        return None if data is None else StoredObject(data, _etag(data))

    async def put(self, key: str, data: bytes) -> str:
        """See `ConditionalObjects`."""
        return self.write(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        """See `ConditionalObjects`."""
        return self.create_now(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """See `ConditionalObjects`."""
        return self.replace_now(key, data, etag)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """See `ConditionalObjects`; one page."""
        for listed in self.list_now(prefix, start_after):
            yield listed

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ConditionalObjects`."""
        for key in keys:
            self.objects.pop(key, None)

    def write(self, key: str, data: bytes) -> str:
        """The effect of `put`, at this moment."""
        self.objects[key] = bytes(data)
        return _etag(data)

    def create_now(self, key: str, data: bytes) -> str | None:
        """The effect of `create`, at this moment."""
        return None if key in self.objects else self.write(key, data)

    def replace_now(self, key: str, data: bytes, etag: str) -> str | None:
        """The effect of `replace`, at this moment."""
        current = self.objects.get(key)
        return self.write(key, data) if current is not None and _etag(current) == etag else None

    def list_now(self, prefix: str, start_after: str = "") -> Sequence[ListedObject]:
        """The effect of `list`, at this moment."""
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)
        return [ListedObject(key, _etag(self.objects[key])) for key in keys]


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Faults:
    """Chances, from 0 to 1, of what happens to one conditional write."""

    lost_answer: float = 0.08
    lost_request: float = 0.06
    late: float = 0.10
    resent: float = 0.05


class FaultyObjects:
    """`ConditionalObjects` over ``objects`` with faults on conditional writes and a turn before every effect.

    ``turn`` is awaited before each operation (a scheduler's chance to run others). Late effects wait in ``late``
    until `land_one` is called."""

    def __init__(
        self,
        objects: MemoryObjects,
        rng: random.Random,
        *,
        faults: Faults | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._objects = objects
        self._rng = rng
        self._turn = turn
        self.faults: Faults | None = Faults() if faults is None else faults
        self.late: list[Callable[[], object]] = []

    def land_one(self) -> None:
        """Let one delayed request take effect."""
        if self.late:
            self.late.pop(self._rng.randrange(len(self.late)))()

    async def _wait(self) -> None:
        if self._turn is not None:
            await self._turn()

    async def get(self, key: str) -> StoredObject | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self._objects.get(key)

    async def put(self, key: str, data: bytes) -> str:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self._objects.put(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return self._write(lambda: self._objects.create_now(key, data))

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return self._write(lambda: self._objects.replace_now(key, data, etag))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """See `ConditionalObjects`."""
        await self._wait()
        for listed in self._objects.list_now(prefix, start_after):
            yield listed

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ConditionalObjects`; other tasks may run between two keys."""
        for key in keys:
            await self._wait()
            await self._objects.delete([key])

    def _write(self, effect: Callable[[], str | None]) -> str | None:
        faults = self.faults
        if faults is None:
            return effect()
        chance = self._rng.random()
        if (chance := chance - faults.lost_answer) < 0:
            effect()
            raise LostError("the answer was lost")
        if (chance := chance - faults.lost_request) < 0:
            raise LostError("the request was lost")
        if (chance := chance - faults.late) < 0:
            self.late.append(effect)
            raise LostError("no answer in time")
        if (chance := chance - faults.resent) < 0:
            effect()
        return effect()
