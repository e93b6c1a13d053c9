"""`TransactionScan`: the rows of a key range as a transaction sees them, its own writes among them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Self

from slate_async.database.transaction_operands import OwnOperands
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.source import SnapshotReads
from slate_async.engine.transactions.tracked_reads import TrackedReads
from slate_async.errors import ClosedError, InvalidError
from slate_async.types import Row


class TransactionScan(AsyncIterator[tuple[bytes, bytes]]):
    """``async for key, value in scan``, once; an asynchronous context manager too.

    parts: of the range, in the order of keys: where stored rows count, because the transaction deletes no range there
    own: the transaction's writes in the range; ``None`` is a delete
    tracked: what the transaction has read, ``None`` if it does not matter
    """

    def __init__(
        self,
        source: SnapshotReads,
        parts: Sequence[KeyRange],
        own: Sequence[tuple[bytes, bytes | OwnOperands | None]],
        reverse: bool,
        limit: int | None,
        check: Callable[[], None],
        tracked: TrackedReads | None,
        ended: Callable[[TransactionScan], None],
    ) -> None:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidError(f"limit is None or a number of rows, not {limit!r}")
        source.begun += 1
        self._parts = parts
        self._left_parts = list(parts if reverse else reversed(parts))  # the next one last
        self._own = sorted(own, key=itemgetter(0), reverse=not reverse)  # the next one last
        self._reverse = reverse
        self._left = limit
        self._check = check
        self._tracked = tracked
        self._ended = ended
        self._source = source
        self._stored_limit = None if limit is None else limit + len(own)
        self._scan: Scan | None = None
        self._pairs: AsyncIterator[tuple[bytes, bytes]] | None = None
        self._rows: AsyncIterator[Row] | None = None
        self._next_part()
        self._next: tuple[bytes, bytes] | None = None
        self._last: bytes | None = None
        self._exhausted = False
        self._dropped = False
        self._cut = 0

    def _next_part(self) -> None:
        """Read on in the next part of the range, if there is one."""
        self._pairs = self._rows = None
        self._stored_ended = not self._left_parts
        if self._stored_ended:
            return
        source = self._source
        point = source.point(False)
        self._scan = Scan(
            point,
            self._left_parts.pop(),
            source.yield_budget,
            source.check,
            source.same_point,
            self._reverse,
            self._stored_limit,
        )
        if self._tracked is not None and point.view.may_expire:
            self._rows = self._scan.rows()
        else:
            self._pairs = aiter(self._scan)

    def _without_prefix(self, nbytes: int) -> Self:
        """The same scan, whose keys are given from byte ``nbytes`` on."""
        self._cut = nbytes
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[bytes, bytes]:
        self._check()
        if self._dropped:
            raise ClosedError("the scan is closed", outcome="not_applied")
        while self._left != 0 and not self._exhausted:
            while self._next is None and not self._stored_ended:
                await self._advance()
                self._check()
            pair = self._take()
            if pair is None:
                self._exhausted = True
                break
            key, value = pair
            self._last = key
            if value is not None:
                if self._left is not None:
                    self._left -= 1
                return key[self._cut :] if self._cut else key, value
        await self._end()
        raise StopAsyncIteration

    async def _advance(self) -> None:
        if self._pairs is not None:
            self._next = await anext(self._pairs, None)
        elif self._rows is not None and (row := await anext(self._rows, None)) is not None:
            self._next = (row.key, row.value)
            if row.expire_time is not None and self._tracked is not None:
                self._tracked.expires(row.key, round(row.expire_time * 1000))
        if self._next is None:
            await self._close_part()
            self._next_part()

    async def _close_part(self) -> None:
        if self._scan is not None:
            await self._scan.aclose()

    def _take(self) -> tuple[bytes, bytes | None] | None:
        """The next key in order; an own write stands for the stored row of its key."""
        stored = self._next
        if not self._own:
            self._next = None
            return stored
        own = self._own[-1]
        if stored is not None and stored[0] != own[0] and (stored[0] > own[0]) == self._reverse:
            self._next = None
            return stored
        base = None
        if stored is not None and stored[0] == own[0]:
            base, self._next = stored[1], None
        key, value = self._own.pop()
        return key, value.merged(key, base) if isinstance(value, OwnOperands) else value

    async def _end(self) -> None:
        try:
            self._ended(self)
        finally:
            await self._close_part()

    def settle(self) -> None:
        """What has been taken of it counts as read."""
        if self._tracked is None or (self._last is None and not self._exhausted):
            return
        last = None if self._exhausted else self._last
        for start, end in self._parts:
            if last is None:
                self._tracked.add_range(start, end)
            elif self._reverse:
                self._tracked.add_range(max(start or b"", last), end)
            else:
                self._tracked.add_range(start, last + b"\0" if end is None else min(end, last + b"\0"))

    def drop(self) -> None:
        """The transaction is over."""
        self._dropped = True

    async def aclose(self) -> None:
        """Nothing more is read or given. Idempotent."""
        if not self._dropped:
            self._dropped = True
            await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
