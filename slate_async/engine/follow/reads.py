"""`FollowerReads`: reads of a database that is followed, or of a checkpoint."""

from __future__ import annotations

from slate_async.engine.follow.source import ReaderSource
from slate_async.engine.read import time_travel
from slate_async.engine.read.errors import about_a_read
from slate_async.engine.read.missing_objects import check_same_moment
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.source import HistorySource
from slate_async.engine.read.time_travel import TimeLike
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.sst.reader import MissingError


class FollowerReads(HistorySource):
    """All rows that ``source`` shows are durable, so ``durable`` changes nothing.

    guard: raises if the reader can no longer answer
    """

    def __init__(self, source: ReaderSource, clock: Clock, yield_budget: YieldBudget, guard: LoopGuard) -> None:
        super().__init__(clock, yield_budget)
        self._source = source
        self._guard = guard

    def check(self) -> None:
        """See `ReadSource`."""
        self._guard.check()

    def point(self, durable: bool) -> ReadPoint:
        """See `ReadSource`."""
        self._guard.check()
        return self._newest_point()

    async def refreshed(self, point: ReadPoint, durable: bool, missing: MissingError) -> ReadPoint:
        """See `ReadSource`."""
        await self._advance_past(missing)
        return self._newest_point()

    async def same_point(self, point: ReadPoint, missing: MissingError) -> ReadPoint:
        """See `ReadSource`."""
        with about_a_read():
            await self._advance_past(missing)
        reader_state = self._source.reader_state
        check_same_moment(point.view, point.max_seq, reader_state.manifest.last_seq, missing)
        return point._replace(view=reader_state.view)

    def as_of(self, seq: int | None, time: TimeLike | None) -> ReadPoint:
        """See `HistorySource`."""
        reader_state = self._source.reader_state
        return time_travel.as_of(self.point(True), reader_state.manifest, reader_state.samples, seq=seq, time=time)

    def seq_to_time(self, seq: int) -> float:
        """See `engine.read.time_travel`."""
        reader_state = self._source.reader_state
        return time_travel.seq_to_time(self.point(True), reader_state.manifest, reader_state.samples, seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """See `engine.read.time_travel`."""
        reader_state = self._source.reader_state
        return time_travel.time_to_seq(self.point(True), reader_state.manifest, reader_state.samples, time)

    def _newest_point(self) -> ReadPoint:
        reader_state = self._source.reader_state
        return ReadPoint(reader_state.view, reader_state.last_seq, self._source.expiry_time_ms(self.clock.now_ms()))

    async def _advance_past(self, missing: MissingError) -> None:
        self._guard.check()
        await self._source.advance_past(missing)
        self._guard.check()
