"""`TableSnapshot`: one version of a table to read, which a pin may keep from vacuums.

A pin has a lease, which a task renews while the snapshot is open. If its process dies the lease ends by itself. Safety
does not rest on clocks: a snapshot whose version was given up raises `SnapshotExpiredError`.

Rule T17.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from slate_async.errors import InvalidError, NotFoundError, SlateError
from slate_async.tables.context import TableContext
from slate_async.tables.core.edits import Keep, Release
from slate_async.tables.core.head import Head, Kept
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.explain import ScanPlan, explain
from slate_async.tables.scan import TableScan
from slate_async.tables.scan_plan import Wanted
from slate_async.tables.versions import utc_time

logger = logging.getLogger(__name__)
RENEWALS: Final = 3
"""Of a lease, in the time that it lasts."""


class TableSnapshot:
    """Made by `Table.snapshot`. Enter it with ``async with``, which finds the version, and pins it if that is asked
    for."""

    def __init__(self, context: TableContext, find: Callable[[], Awaitable[Head]], pin_s: float | None) -> None:
        self._context = context
        self._find = find
        self._pin_s = pin_s
        self._pin = ""
        self._head: Head | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        at = "not entered" if self._head is None else f"version {self._head.version}"
        return f"<TableSnapshot {self._context.database}.{self._context.name}, {at}>"

    @property
    def version(self) -> int:
        """Its number."""
        return self._entered.version

    @property
    def time(self) -> datetime:
        """When it was committed."""
        return utc_time(self._entered.time_ms)

    @property
    def schema(self) -> pa.Schema:
        """Its columns, as they were then."""
        return self._entered.schema.arrow()

    def scan(
        self,
        where: PredicateLike | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        row_ids: bool = False,
    ) -> TableScan:
        """Its rows. Arguments and errors as of `Table.scan`; `SnapshotExpiredError` once the version is not kept."""
        return TableScan(self._context, Wanted.of(where, columns, limit, row_ids=row_ids), self._entered)

    async def plan(self, where: PredicateLike | None = None, columns: Sequence[str] | None = None) -> ScanPlan:
        """What a scan would read, and why it leaves out the rest. Raises as `scan`."""
        return await explain(self._context, Wanted.of(where, columns, None, row_ids=False), self._entered)

    async def __aenter__(self) -> Self:
        self._context.check()
        head = await self._find()
        if self._pin_s is not None:
            self._pin = f"pin-{self._context.runtime.ids.token()}"
            await self._context.committer.commit(Keep(self._pin, self._lease(head)))
            renewing = self._renew(head, self._pin_s / RENEWALS)
            name = f"pin version {head.version} of {self._context.name}"
            self._renewing = self._context.supervisor.spawn(name, renewing, critical=False)
        self._head = head
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._head = None
        if self._renewing is None:
            return
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        try:
            await self._context.committer.commit(Release(self._pin, pin=True))
        except SlateError as failure:
            logger.info("%s: the pin %s stays until its lease ends: %s", self._context.name, self._pin, failure)

    @property
    def _entered(self) -> Head:
        self._context.check()
        if self._head is None:
            raise InvalidError("a snapshot is open inside its async with")
        return self._head

    def _lease(self, head: Head) -> Kept:
        now_ms = self._context.runtime.clock.now_ms()
        return Kept(head.version, head.token, now_ms + max(1, int((self._pin_s or 0) * 1000)))

    async def _renew(self, head: Head, pause_s: float) -> None:
        """Lengthen the lease for ever, or until the version is not kept any more."""
        while True:
            await self._context.runtime.clock.sleep(pause_s)
            try:
                await self._context.committer.commit(Keep(self._pin, self._lease(head)))
            except NotFoundError as error:
                logger.warning("%s: the pin of version %d is lost: %s", self._context.name, head.version, error)
                return
            except SlateError as error:
                logger.info("%s: the pin of version %d is renewed later: %s", self._context.name, head.version, error)
