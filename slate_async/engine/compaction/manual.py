"""Compactions that a caller asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from slate_async.engine.compaction.planner import plan, plan_full, plan_level, plan_range
from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.engine.write.writer import Writer
from slate_async.errors import InvalidError
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class Manual:
    """A compaction that a caller asked for.

    full: everything into one run
    start, end: every SST that may hold a key of ``[start, end)``, ``None`` unbounded
    level: all of one level into the next
    none of them: whatever is due, until nothing is
    """

    full: bool = False
    start: bytes | None = None
    end: bytes | None = None
    level: int | None = None

    def __post_init__(self) -> None:
        ranged = self.start is not None or self.end is not None
        if self.full + ranged + (self.level is not None) > 1:
            raise InvalidError("compact takes one of full, a key range and a level")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise InvalidError("a range to compact ends behind its start")

    def plan(
        self, state: ManifestState, now_ms: int, config: PlannerConfig, log: Sequence[LogSst]
    ) -> list[CompactionSpec]:
        """What is to be done now; `InvalidError` for a level that does not exist."""
        if self.full:
            return plan_full(state, now_ms, config, log)
        if self.start is not None or self.end is not None:
            return plan_range(state, self.start, self.end, now_ms, config, log)
        if self.level is not None:
            return plan_level(state, self.level, now_ms, config, log)
        return plan(state, now_ms, config, log)

    @property
    def until_rest(self) -> bool:
        """Whether it goes on until nothing is due."""
        return not self.full and self.start is None and self.end is None and self.level is None


async def flush_and_compact(
    manual: Manual, writer: Writer, supervisor: Supervisor, compact: Callable[[Manual], Awaitable[int]]
) -> int:
    """Flush to L0, then ``compact``; how many compactions and moves that took. The flush needs room in L0: this
    compacts as often as that takes, because no other call makes room."""
    flushing = supervisor.spawn("flush to compact", writer.flush(l0=True), critical=False)
    taken = 0
    while not flushing.done():
        stalled = asyncio.ensure_future(writer.pressure.stalled.wait())
        try:
            await asyncio.wait([flushing, stalled], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stalled.cancel()
        if not flushing.done():
            taken += await compact(Manual())
    if not flushing.cancelled():  # it was if the database closes, which the compactor says, and why
        flushing.result()
    return taken + await compact(manual)
