"""`ReadSource`: what reads read from - a writer, a follower or checkpoint, a snapshot - and how a read of it is done.

A read takes a `ReadPoint`, looks into memory and the block cache, and asks the store for what is not there. Every wait
is followed by `ReadSource.check`. A missing object is answered by another point (see `engine.read.missing_objects`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from slate_async.engine.read import time_travel
from slate_async.engine.read.errors import about_a_read
from slate_async.engine.read.hot import READS_PER_MARK
from slate_async.engine.read.live import live_value
from slate_async.engine.read.missing_objects import RETRIES, check_same_point, retries_exhausted
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.read.view import Pin, ReadView
from slate_async.errors import ClosedError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.manifest.state import ManifestState, SeqTime
from slate_async.storage.sst.reader import MissingError
from slate_async.types import NEEDS_IO, RowHit

T = TypeVar("T")


class ReadSource(ABC):
    """``begun`` counts the reads. `get`, `hit` and `get_many` count themselves; the caller that begins any other read
    counts it."""

    def __init__(self, clock: Clock, yield_budget: YieldBudget) -> None:
        self.clock = clock
        self.yield_budget = yield_budget
        self.begun = 0

    @abstractmethod
    def check(self) -> None:
        """Raise if the owner can no longer answer."""

    @abstractmethod
    def point(self, durable: bool) -> ReadPoint:
        """What a read that starts now sees, with ``durable`` of acknowledged rows only. Raises as `check`."""

    @abstractmethod
    async def refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        """The point of a read of now that found an object of ``point`` missing; or raises."""

    @abstractmethod
    async def same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        """As `refreshed`, and it shows exactly what ``point`` does: for scans and snapshots. Or raises
        `ConflictError`."""

    async def get(self, key: bytes, durable: bool) -> bytes | None:
        """The live value of ``key``. Does not suspend when memory or the block cache holds it, but for its turn."""
        self.begun += 1
        point = self.point(durable)
        found = point.view.look_up(key, point.max_seq)
        if found is NEEDS_IO:
            return await self.get_stored(key, point, durable)
        value = live_value(found, point.now_ms)
        if value is NEEDS_IO:
            return await self.get_stored(key, point, durable)
        if not self.begun % READS_PER_MARK:
            point.view.mark(key)
        if self.yield_budget.spent():
            await self.yield_budget.yield_now()
            self.check()
        return value

    async def get_stored(self, key: bytes, point: ReadPoint, durable: bool) -> bytes | None:
        """`get` of a key of which memory does not tell, or not before others have had their turn."""
        if self.yield_budget.exhausted():
            pin = point.view.pin()
            await self.yield_budget.yield_now()
            self.check()
            found = point.view.look_up(key, point.max_seq)
            del pin
            if found is not NEEDS_IO and (value := live_value(found, point.now_ms)) is not NEEDS_IO:
                return value
        hit = await self.retried(point, durable, lambda seen: seen.view.get(key, seen.now_ms, seen.max_seq))
        return None if hit is None else hit.value

    async def hit(self, key: bytes, durable: bool) -> RowHit | None:
        """The live row of ``key``. Suspends as `get` does."""
        self.begun += 1
        point = self.point(durable)
        hit = point.view.get_now(key, point.now_ms, point.max_seq)
        if hit is NEEDS_IO:
            return await self.retried(point, durable, lambda seen: seen.view.get(key, seen.now_ms, seen.max_seq))
        if self.yield_budget.spent():
            await self.yield_budget.yield_now()
            self.check()
        return hit

    async def get_many(self, keys: list[bytes], durable: bool) -> list[bytes | None]:
        """The live values of ``keys``, all of one point."""
        self.begun += 1
        point = self.point(durable)
        return await self.retried(point, durable, lambda seen: seen.view.get_many(keys, seen.now_ms, seen.max_seq))

    async def retried(self, point: ReadPoint, durable: bool, read: Callable[[ReadPoint], Awaitable[T]]) -> T:
        """``read(point)``, which asks the store, or of a later point if an object of this one is missing."""
        last: MissingError | None = None
        for _ in range(RETRIES):
            try:
                found = await read(point)
            except MissingError as missing:
                last = missing
                with about_a_read():
                    point = await self.refreshed(point, durable, missing)
                continue
            self.check()
            return found
        raise retries_exhausted(last)


class SourceState(Protocol):
    """What a `HistorySource` knows of the database now. ``samples``: when rows of the log were written."""

    @property
    def manifest(self) -> ManifestState: ...

    @property
    def view(self) -> ReadView: ...

    @property
    def samples(self) -> list[SeqTime]: ...


class HistorySource(ReadSource):
    """A source that goes on to newer states of the database, and knows earlier ones.

    guard: raises if the owner can no longer answer
    """

    def __init__(self, clock: Clock, yield_budget: YieldBudget, guard: LoopGuard) -> None:
        super().__init__(clock, yield_budget)
        self._guard = guard

    @property
    @abstractmethod
    def _state(self) -> SourceState:
        """The newest."""

    @abstractmethod
    def _newest_point(self, durable: bool) -> ReadPoint:
        """As `point`, unguarded."""

    @abstractmethod
    async def _advance_past(self, missing: MissingError) -> None:
        """Go on to a state without the object. Raises ``missing`` if it still belongs to the database."""

    def check(self) -> None:
        """See `ReadSource`."""
        self._guard.check()

    def point(self, durable: bool) -> ReadPoint:
        """See `ReadSource`."""
        self._guard.check()
        return self._newest_point(durable)

    async def refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        """See `ReadSource`."""
        await self._advance(missing)
        return self._newest_point(durable)

    async def same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        """See `ReadSource`."""
        with about_a_read():
            await self._advance(missing)
        state = self._state
        check_same_point(point.view, point.max_seq, state.manifest.last_seq, missing)
        return point._replace(view=state.view)

    def as_of(self, seq: int | None, time: TimeLike | None) -> ReadPoint:
        """What a read of then saw; see `engine.read.time_travel`."""
        return time_travel.as_of(self.point(False), self._state.manifest, self._state.samples, seq=seq, time=time)

    async def _advance(self, missing: MissingError) -> None:
        self._guard.check()
        await self._advance_past(missing)
        self._guard.check()


class SnapshotReads(ReadSource):
    """One point of another source, pinned until `close`. Whether a read asks for durable rows changes nothing."""

    def __init__(self, source: ReadSource, point: ReadPoint) -> None:
        super().__init__(source.clock, source.yield_budget)
        self._source = source
        self._fixed = point
        self._pin: Pin | None = point.view.pin()
        self.closed = False

    @property
    def seq(self) -> int:
        """The highest sequence number it sees."""
        return self._fixed.max_seq

    def check(self) -> None:
        """See `ReadSource`. Raises `ClosedError` once closed."""
        if self.closed:
            raise ClosedError("the snapshot is closed")
        self._source.check()

    def point(self, durable: bool) -> ReadPoint:
        """See `ReadSource`."""
        self.check()
        return self._fixed

    async def refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        """See `ReadSource`. The point stays the same."""
        return await self.same_point(point, missing)

    async def same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        """See `ReadSource`."""
        if point.view is self._fixed.view:  # else another read of this snapshot has come to know
            refreshed = await self._source.same_point(point, missing)
            self.check()
            self._fixed, self._pin = refreshed, refreshed.view.pin()
        return self._fixed

    def close(self) -> None:
        """Give up the pin; later reads are `ClosedError`. Idempotent."""
        self.closed = True
        self._pin = None
