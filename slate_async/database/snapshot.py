"""Reads over a view: shared by `Db` (whose view changes as it writes) and `Snapshot` (whose view never does)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from slate_async.arguments import sought_key
from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read.bounds import BytesLike, key_range
from slate_async.engine.read.failures import about_a_read
from slate_async.engine.read.hot import READS_PER_MARK
from slate_async.engine.read.live import live_value
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.retry import RETRIES, retries_exhausted
from slate_async.engine.read.row_statistics import RowStatistics, row_statistics
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.splits import SPLIT_BYTES, Split, split_view
from slate_async.engine.read.view import Pin
from slate_async.errors import ClosedError, InvalidError
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.sst.reader import MissingError
from slate_async.types import MAX_KEY_BYTES, NEEDS_IO, Row, RowHit

T = TypeVar("T")


class ViewReads:
    """get, get_many, get_row and scan over whatever `_point` gives. Satisfies `slate_async.Readable`."""

    def __init__(self, clock: Clock, yield_budget: YieldBudget) -> None:
        self._clock = clock
        self._yield_budget = yield_budget
        self._reads = 0

    @abstractmethod
    def _point(self, durable: bool) -> ReadPoint:
        """What a read that starts now sees. Raises if the owner can no longer answer."""

    @abstractmethod
    def _check(self) -> None:
        """Raise if the owner can no longer answer; asked again after every wait."""

    async def _refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        """What a read of now sees that found an object of ``point`` missing. See `slate_async.engine.read.retry`."""
        raise missing

    async def _same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        """As `_refreshed`, and exactly what ``point`` shows: for scans and snapshots. Or raises `ConflictError`."""
        raise missing

    def get(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, or ``None``. With ``durable`` only what is acknowledged as durable is seen.

        Answers without suspending when memory or the block cache holds the key. Like all reads it looks at the
        database when it is awaited; keys are checked and copied at the call."""
        if type(key) is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:  # as `sought_key` does, without a call
            key = sought_key(key)
        return self._get(key, durable)

    def get_row(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, Row | None]:
        """As `get`, with sequence number, creation time and expiry time (seconds since the epoch)."""
        return self._get_row(sought_key(key), durable)

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys`` in their order, all of one moment; each block is read once."""
        own = [key if type(key) is bytes and 0 < len(key) <= MAX_KEY_BYTES else sought_key(key) for key in keys]
        return self._get_many(own, durable)

    async def _get(self, key: bytes, durable: bool) -> bytes | None:
        self._reads += 1
        point = self._point(durable)
        found = point.view.look_up(key, point.max_seq)
        if found is NEEDS_IO:
            return await self._get_stored(key, point, durable)
        value = live_value(found, point.now_ms)
        if not self._reads % READS_PER_MARK:
            point.view.mark(key)
        if self._yield_budget.spent():
            await self._yield_budget.yield_now()
            self._check()
        return value

    async def _get_stored(self, key: bytes, point: ReadPoint, durable: bool) -> bytes | None:
        """`_get` of a key of which memory does not tell, or not before others have had their turn."""
        if self._yield_budget.exhausted():
            pin = point.view.pin()
            await self._yield_budget.yield_now()
            self._check()
            found = point.view.look_up(key, point.max_seq)
            del pin
            if found is not NEEDS_IO:
                return live_value(found, point.now_ms)
        hit = await self._stored(point, durable, lambda seen: seen.view.get(key, seen.now_ms, seen.max_seq))
        return None if hit is None else hit.value

    async def _get_row(self, key: bytes, durable: bool) -> Row | None:
        self._reads += 1
        hit = await self._hit(key, durable)
        if hit is None:
            return None
        expire = None if hit.expire_ms == NO_EXPIRY else hit.expire_ms / 1000
        return Row(key, hit.value, hit.seq, hit.create_ms / 1000, expire)

    async def _get_many(self, keys: list[bytes], durable: bool) -> list[bytes | None]:
        self._reads += 1
        point = self._point(durable)
        return await self._stored(point, durable, lambda seen: seen.view.get_many(keys, seen.now_ms, seen.max_seq))

    async def _hit(self, key: bytes, durable: bool) -> RowHit | None:
        point = self._point(durable)
        hit = point.view.get_now(key, point.now_ms, point.max_seq)
        if hit is NEEDS_IO:
            return await self._stored(point, durable, lambda seen: seen.view.get(key, seen.now_ms, seen.max_seq))
        if self._yield_budget.spent():
            await self._yield_budget.yield_now()
            self._check()
        return hit

    async def _stored(self, point: ReadPoint, durable: bool, read: Callable[[ReadPoint], Awaitable[T]]) -> T:
        """``read(point)``, which asks the store, or of a later point if an object of this one is missing."""
        last: MissingError | None = None
        for _ in range(RETRIES):
            try:
                found = await read(point)
            except MissingError as missing:
                last = missing
                with about_a_read():
                    point = await self._refreshed(point, durable, missing)
                continue
            self._check()
            return found
        raise retries_exhausted(last)

    async def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> list[Split]:
        """Key ranges that cover those of `scan` once, in order, with about ``target_bytes`` of SSTs each: for readers
        in parallel, each with a scan of one range.

        Judged by what manifest and indexes say, at most `MOST_SPLITS` of them; rows in memory count for nothing.
        Raises `InvalidError` unless ``target_bytes`` is positive."""
        if type(target_bytes) is not int or target_bytes < 1:
            raise InvalidError(f"target_bytes is a positive number of bytes, not {target_bytes!r}")
        span = key_range(start, end, prefix)
        return await self._stored(
            self._point(durable), durable, lambda now: split_view(now.view, span, target_bytes, self._yield_budget)
        )

    async def row_statistics(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        durable: bool = False,
    ) -> RowStatistics:
        """How many rows there are in the range of keys, live and otherwise, and of which sizes. Reads all of them, and
        every version that is stored. Arguments and errors as of `scan`."""
        self._reads += 1
        span = key_range(start, end, prefix)
        return await self._stored(
            self._point(durable), durable, lambda now: row_statistics(now, span, self._yield_budget)
        )

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> Scan:
        """Rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as they are at this call.

        ``async for key, value in db.scan(...)``; `Scan.rows` and `Scan.batches` give more. Pins what it reads until
        it is exhausted, closed or dropped."""
        self._reads += 1
        return Scan(
            self._point(durable),
            key_range(start, end, prefix),
            self._yield_budget,
            self._check,
            self._same_point,
            reverse,
            limit,
        )


class Snapshot(ViewReads):
    """A stable view at one sequence number; expiry is judged at the time it was taken.


    ``async with db.snapshot() as snap`` (plain ``with`` does too), or `close` it; a dropped one frees its pin.
    ``durable`` on its reads is accepted for `Readable`'s sake and changes nothing: the snapshot's own choice holds."""

    def __init__(
        self,
        point: ReadPoint,
        clock: Clock,
        yield_budget: YieldBudget,
        check: Callable[[], None],
        same_point: Callable[[ReadPoint, MissingError], Awaitable[ReadPoint]],
    ) -> None:
        super().__init__(clock, yield_budget)
        self._fixed = point
        self._owner_check = check
        self._owner_same_point = same_point
        self._pin: Pin | None = point.view.pin()
        self._open = True

    @property
    def seq(self) -> int:
        """The highest sequence number it sees."""
        return self._fixed.max_seq

    def _point(self, durable: bool) -> ReadPoint:
        self._check()
        return self._fixed

    def _check(self) -> None:
        if not self._open:
            raise ClosedError("the snapshot is closed")
        self._owner_check()

    async def _refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        return await self._same_point(point, missing)

    async def _same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        if point.view is self._fixed.view:  # else another read of this snapshot has come to know
            refreshed = await self._owner_same_point(point, missing)
            self._check()
            self._fixed, self._pin = refreshed, refreshed.view.pin()
        return self._fixed

    def close(self) -> None:
        """Give up the pin; later reads are `ClosedError`. Idempotent."""
        self._open = False
        self._pin = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Snapshot seq={self.seq}{'' if self._open else ' closed'}>"
