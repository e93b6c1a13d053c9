"""`FollowerReads`: reads of a database that is followed, or of a checkpoint."""

from __future__ import annotations

from slate_async.engine.follow.reader_state import ReaderState
from slate_async.engine.follow.source import ReaderSource
from slate_async.engine.read import time_travel
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.source import HistorySource
from slate_async.engine.read.time_travel import TimeLike
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.sst.reader import MissingError


class FollowerReads(HistorySource):
    """All rows that ``source`` shows are durable, so ``durable`` changes nothing."""

    def __init__(self, source: ReaderSource, clock: Clock, yield_budget: YieldBudget, guard: LoopGuard) -> None:
        super().__init__(clock, yield_budget, guard)
        self._source = source

    def seq_to_time(self, seq: int) -> float:
        """See `engine.read.time_travel`."""
        state = self._state
        return time_travel.seq_to_time(self.point(True), state.manifest, state.samples, seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """See `engine.read.time_travel`."""
        state = self._state
        return time_travel.time_to_seq(self.point(True), state.manifest, state.samples, time)

    @property
    def _state(self) -> ReaderState:
        return self._source.reader_state

    def _newest_point(self, durable: bool) -> ReadPoint:
        state = self._source.reader_state
        return ReadPoint(state.view, state.last_seq, self._source.expiry_time_ms(self.clock.now_ms()))

    async def _advance_past(self, missing: MissingError) -> None:
        await self._source.advance_past(missing)
