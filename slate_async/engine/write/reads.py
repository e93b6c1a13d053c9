"""`WriterReads`: reads of what a writer has applied, or of what is acknowledged as durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import get_ident

from slate_async.engine.read.hot import READS_PER_MARK
from slate_async.engine.read.live import live_value
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.source import HistorySource
from slate_async.engine.write.state import WriterState
from slate_async.engine.write.writer import Writer
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock
from slate_async.storage.sst.reader import MissingError
from slate_async.types import MAX_SEQ, NEEDS_IO, NeedsIO, RowHit


class WriterReads(HistorySource):
    """``writer`` is replaced when the database opens again after an outage.

    adopt_head: reads the manifest's head and adopts it
    """

    def __init__(
        self, writer: Writer, clock: Clock, guard: LoopGuard, adopt_head: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(clock, writer.yield_budget, guard)
        self.writer = writer
        self._adopt_head = adopt_head

    async def get(self, key: bytes, durable: bool) -> bytes | None:
        """See `ReadSource`."""
        # HOT: copy of engine.read.source.ReadSource.get; 700 ns, 2026-11-23
        guard = self._guard
        # HOT: copy of runtime.loop_guard.LoopGuard.check; 20 ns, 2026-11-23
        running = guard.running  # a call by a local name is faster than by an attribute that is no method
        if get_ident() != guard.thread or not running():
            guard.check()
        self.begun = begun = self.begun + 1
        state = self.writer.state
        view = state.view
        found: bytes | int | RowHit | NeedsIO | None
        if durable:
            found = view.look_up(key, state.durable_seq)
        else:
            found = view.latest.get(key)
            if found is None:
                found = view.look_below(key)
        if type(found) is not bytes and found is not None:
            if isinstance(found, int):
                found = view.look_up(key, MAX_SEQ)
            if found is NEEDS_IO:
                return await self.get_stored(key, self._newest_point(durable), durable)
            found = live_value(found, self.clock.now_ms())
            if found is NEEDS_IO:
                return await self.get_stored(key, self._newest_point(durable), durable)
        if not begun % self.yield_budget.every:
            if not begun % READS_PER_MARK:
                view.mark(key)
            if self.yield_budget.exhausted():
                await self.yield_budget.yield_now()
                guard.check()
        return found

    @property
    def _state(self) -> WriterState:
        return self.writer.state

    def _newest_point(self, durable: bool) -> ReadPoint:
        state, sequencer = self.writer.state, self.writer.sequencer
        return ReadPoint(state.view, state.durable_seq if durable else sequencer.last_seq, self.clock.now_ms())

    async def _advance_past(self, missing: MissingError) -> None:
        """Adopt the head."""
        await self._adopt_head()
        self._guard.check()
        if self.writer.state.view.reads(missing.object_name):
            raise missing
