"""How a definite writer notices that its collection was deleted: a look at the head beside a put, now and then.

A definite append is acknowledged by its put, into the folder of a life that may be over, where it is lost. So an append
looks at the head as well, if the last look was a poll ago. It is no later by that: the put takes as long.

A look without an answer says nothing, and the next append looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from slate_async.collections.writer.puts import WriterContext
from slate_async.errors import ClosedError, CorruptionError, UnavailableError
from slate_async.runtime.gather import gather

T = TypeVar("T")


class DeletionWatch:
    """Of one writer, which has just looked at the head."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._looked = context.runtime.clock.monotonic()

    def check(self) -> None:
        """Raise `ClosedError` if this process has seen that the collection was deleted."""
        head = self._context.versions.head
        if head is not None and head.deleted:
            raise ClosedError(f"the collection {self._context.name} was deleted", outcome="not_applied")

    async def beside(self, put: Coroutine[Any, Any, T]) -> T:
        """What ``put`` gives. Raises `ClosedError`, whatever it gives, if the collection was deleted before."""
        if not self._is_due:
            return await put
        given: list[Any] = await gather([put, self._look_beside()])
        result: T = given[0]
        return result

    async def look(self) -> None:
        """For an append that puts nothing. Raises `ClosedError`."""
        if self._is_due:
            await self._look_beside()
        self.check()

    @property
    def _is_due(self) -> bool:
        return self._context.runtime.clock.monotonic() - self._looked >= self._context.poll_interval_ms / 1000

    async def _look_beside(self) -> None:
        self._looked = self._context.runtime.clock.monotonic()
        try:
            async with asyncio.timeout(self._context.poll_interval_ms / 1000):
                await self._context.versions.poll()
        except (UnavailableError, CorruptionError, TimeoutError):
            return
        self.check()
