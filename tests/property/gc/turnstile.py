"""One event loop in which a seeded random source says whose request to the store comes next.

Every request waits at the turnstile; some sleep there for long, some are lost before or after they took effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from slate_async.errors import UnavailableError
from slate_async.objectstore.bodies import joined
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, Overwrite, PutMode
from slate_async.types import Buffer

SETTLING_TURNS = 12
NAPS = (0,) * 18 + (40, 150)


class Turnstile:
    """Requests pass one at a time, in random order. ``open`` lets all pass at once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.open = False
        self.steps = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def passed(self) -> None:
        """Wait for one's turn."""
        if not self.open:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((self.steps + self.random.choice(NAPS), turn))
            await turn

    async def run(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Let requests pass until all tasks have ended; raises what one of them raised, at once."""
        while not all(task.done() and task.result() is None for task in tasks):
            for _ in range(SETTLING_TURNS):
                await asyncio.sleep(0)
            if self._waiting:
                self.steps += 1
                awake = [entry for entry in self._waiting if entry[0] <= self.steps]
                chosen = self.random.choice(awake) if awake else min(self._waiting, key=lambda entry: entry[0])
                self._waiting.remove(chosen)
                if not chosen[1].done():
                    chosen[1].set_result(None)


class GatedStore:
    """A handle of the store whose requests pass the turnstile. ``after`` is called when one has changed something,
    with the key and what is there now."""

    def __init__(
        self, inner: MemoryStore, turnstile: Turnstile, after: Callable[[str, Buffer | None], Awaitable[None]]
    ) -> None:
        self._inner = inner
        self._turnstile = turnstile
        self._after = after

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        await self._turnstile.passed()
        lost = "" if isinstance(mode, Overwrite) else self._turnstile.random.choice(("before", "after", *[""] * 10))
        if lost == "before":
            raise UnavailableError("lost on the way", outcome="unknown")
        etag = await self._inner.put(key, data, mode=mode, metadata=metadata)
        await self._after(key, joined(data))
        if lost == "after":
            raise UnavailableError("its answer was lost", outcome="unknown")
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        await self._turnstile.passed()
        return await self._inner.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        await self._turnstile.passed()
        return await self._inner.head(key)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._turnstile.passed()
        for info in [info async for info in self._inner.list(prefix, start_after=start_after)]:
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """One key at a time: a deletion of many is not atomic."""
        for key in keys:
            await self._turnstile.passed()
            await self._inner.delete([key])
            await self._after(key, None)

    async def close(self) -> None:
        """The store belongs to the test."""
