"""`UpdateSignal`: wakes a feed when there may be rows it has not read, beside a writer or a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.tail import Position
from slate_async.engine.write.writer import Writer


class UpdateSignal(Protocol):
    """Says when a feed should read again."""

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

    async def wait_beyond(self, position: Position, seq: int) -> None:
        """See `UpdateSignal`."""
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
    """Of a follower: what its polls have found. ``check`` raises once its handle is closed."""

    def __init__(self, follower: Follower, check: Callable[[], None]) -> None:
        self._follower = follower
        self._check = check

    async def wait_beyond(self, position: Position, seq: int) -> None:
        """See `UpdateSignal`."""
        while self._follower.reader_state.last_seq <= seq:
            await self._follower.wait_for_change()
            self._check()
