"""`TransactionScan`: the rows of a key range as a transaction sees them, its own writes among them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from slate_async.database.transaction_operands import OwnOperands
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.source import SnapshotReads
from slate_async.engine.transactions.tracked_reads import TrackedReads
from slate_async.errors import ClosedError, InvalidError


class TransactionScan(AsyncIterator[tuple[bytes, bytes]]):
    """``async for key, value in scan``, once; an asynchronous context manager too.

    own: the transaction's writes in the range, in scan order; ``None`` is a delete
    tracked: what the transaction has read, ``None`` if it does not matter
    """

    def __init__(
        self,
        source: SnapshotReads,
        span: KeyRange,
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
        self._span = span
        self._own = list(reversed(own))  # the next one last
        self._reverse = reverse
        self._left = limit
        self._check = check
        self._tracked = tracked
        self._ended = ended
        stored_limit = None if limit is None else limit + len(own)
        point = source.point(False)
        self._scan = Scan(point, span, source.yield_budget, source.check, source.same_point, reverse, stored_limit)
        self._pairs = None if tracked is not None and point.view.may_expire else aiter(self._scan)
        self._rows = self._scan.rows()  # of which a scan of pairs begins none
        self._next: tuple[bytes, bytes] | None = None
        self._stored_ended = False
        self._last: bytes | None = None
        self._exhausted = False
        self._dropped = False
        self._cut = 0

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
            if self._next is None and not self._stored_ended:
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
        elif (row := await anext(self._rows, None)) is not None:
            self._next = (row.key, row.value)
            if row.expire_time is not None and self._tracked is not None:
                self._tracked.expires(row.key, round(row.expire_time * 1000))
        self._stored_ended = self._next is None

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
            await self._scan.aclose()

    def settle(self) -> None:
        """What has been taken of it counts as read."""
        if self._tracked is None or (self._last is None and not self._exhausted):
            return
        start, end = self._span
        if self._last is not None and not self._exhausted:
            start, end = (self._last, end) if self._reverse else (start, self._last + b"\0")
        self._tracked.add_range(start, end)

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
