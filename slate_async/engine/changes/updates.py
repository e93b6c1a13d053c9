"""`Updates`: tells a feed what is durable and wakes it when there may be more, beside a writer or a follower."""

from __future__ import annotations

import asyncio
from typing import Protocol

from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.polling import FollowerPolling
from slate_async.engine.follow.tail import Position
from slate_async.engine.write.writer import Writer
from slate_async.runtime.loop_guard import LoopGuard


class Updates(Protocol):
    """Says up to where a feed may read, and when it should read again."""

    async def durable_seq(self) -> int:
        """The highest sequence number that is durable now."""

    async def wait_beyond(self, position: Position, seq: int) -> None:
        """Wait until there may be rows above ``seq``, the log from ``position`` on. May return too early."""


class WriterUpdates:
    """Of a writer: what it has published, and the ingests it has applied."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._adopted = asyncio.Event()

    def follow(self, writer: Writer) -> None:
        """The database was opened again: ``writer`` goes on."""
        self._writer = writer
        self.notify()

    def notify(self) -> None:
        """The writer has adopted a manifest state, or the database closes."""
        self._adopted.set()
        self._adopted = asyncio.Event()

    async def durable_seq(self) -> int:
        """See `Updates`."""
        return self._writer.state.durable_seq

    async def wait_beyond(self, position: Position, seq: int) -> None:
        """See `Updates`."""
        while self._writer.suspended:
            await self._adopted.wait()
        published = asyncio.ensure_future(self._writer.flusher.until_published(position.next_id))
        try:
            while self._writer.state.manifest.last_seq <= seq and not published.done():
                adopted = asyncio.ensure_future(self._adopted.wait())
                try:
                    await asyncio.wait([published, adopted], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    adopted.cancel()
        finally:
            published.cancel()


class FollowerUpdates:
    """Of a follower: what its polls have found. ``guard``: of its handle."""

    def __init__(self, follower: Follower, polling: FollowerPolling, guard: LoopGuard) -> None:
        self._follower = follower
        self._polling = polling
        self._guard = guard

    async def durable_seq(self) -> int:
        """See `Updates`. All that a follower shows is durable, so it catches up."""
        self._guard.check()
        await self._polling.refresh()
        return self._follower.reader_state.last_seq

    async def wait_beyond(self, position: Position, seq: int) -> None:
        """See `Updates`."""
        while self._follower.reader_state.last_seq <= seq:
            await self._follower.wait_for_change()
            self._guard.check()
