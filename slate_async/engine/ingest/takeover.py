"""`OwnWriter`: the writer that a driver becomes for as long as an ingest needs one. It compacts only to make room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from slate_async.engine.context import DatabaseContext
from slate_async.errors import SlateError
from slate_async.runtime.supervisor import Supervisor

T = TypeVar("T")
logger = logging.getLogger(__name__)


class WriterStatus(Protocol):
    """What a driver that has become the writer looks at."""

    @property
    def state(self) -> str:
        """``"open"`` while it can go on."""

    @property
    def epoch(self) -> int:
        """Its writer epoch."""

    @property
    def last_seq(self) -> int:
        """The highest sequence number that is given."""

    @property
    def l0_stall(self) -> str | None:
        """Why it waits for compaction, if it does."""


class JobWriter(Protocol):
    """A database that is open as its writer."""

    def status(self) -> WriterStatus:
        """See `WriterStatus`."""

    def compact(self) -> Awaitable[int]:
        """Compact what is due."""


class OpenWriter(Protocol):
    """Opens the job's database as its writer; ``if_free``: only if no other process has it open; ``instead_of``: only
    if the newest writer is the one of this token."""

    def __call__(self, *, if_free: bool, instead_of: str | None = None) -> AbstractAsyncContextManager[JobWriter]: ...


class OwnWriter:
    """``writer`` opens the database of ``context``; ``poll_s``: how often it looks whether it has to make room."""

    def __init__(self, context: DatabaseContext, supervisor: Supervisor, writer: OpenWriter, poll_s: float) -> None:
        self._name = context.name
        self._clock = context.runtime.clock
        self._supervisor = supervisor
        self._writer = writer
        self._poll_s = poll_s

    async def for_as_long_as(
        self, work: Callable[[JobWriter], Awaitable[T]], *, if_free: bool = False, instead_of: str | None = None
    ) -> T:
        """Become the writer, do ``work``, and give the role up; see `OpenWriter`. Raises `FencedError` if another
        writer was first, or took over."""
        async with self._writer(if_free=if_free, instead_of=instead_of) as db:
            room = self._supervisor.spawn("make room for an ingest", self._make_room(db), critical=False)
            try:
                return await work(db)
            finally:
                room.cancel()
                await asyncio.wait([room])

    async def _make_room(self, db: JobWriter) -> None:
        """Compact where L0 is full, for perhaps no compactor runs; else leave that to the compactor."""
        while db.status().state == "open":
            if db.status().l0_stall is not None:
                try:
                    await db.compact()
                except SlateError as error:
                    logger.warning("%s: no room for an ingest yet: %s", self._name, error)
            await self._clock.sleep(self._poll_s)
