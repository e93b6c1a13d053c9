"""What a feed delivers of the SSTs of one manifest state: rows that have left the log, or that it does not read there.

Above the state's ``history_floor`` every version of every row is there, so a feed is exact. Below it, compaction has
dropped older versions and deletes. There a feed gives a *snapshot*: the rows that were alive at the floor, in the order
of their sequence numbers.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from slate_async.codec.columns import Columns
from slate_async.engine.changes.ingested import IngestedRows
from slate_async.engine.changes.order import shared_by_key
from slate_async.engine.changes.read_ahead import ReadAhead, StateName
from slate_async.engine.changes.selection import Selected, SeqSource, select
from slate_async.engine.changes.spill import Spill
from slate_async.engine.compaction.reading import read_batches
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.engine.read.covered import ViewMaker
from slate_async.engine.read.merge import close_stream
from slate_async.engine.read.sst_tables import SstTables
from slate_async.errors import CorruptionError
from slate_async.merge_operators.guarded import merging
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.reader import SstReader

logger = logging.getLogger(__name__)
READ_BYTES = 1 << 20
"""Stored bytes of one read."""


class History:
    """The rows in the SSTs of ``state``, which a checkpoint keeps.

    sort_memory_bytes, sort_spill_bytes: see `select`
    span: no other keys are read
    ahead: keeps what was found, and gives it
    """

    def __init__(
        self,
        state: ManifestState,
        ssts: SstOpener,
        runtime: Runtime,
        sort_memory_bytes: int,
        sort_spill_bytes: int = 0,
        span: KeyRange = EVERY_KEY,
        ahead: ReadAhead | None = None,
    ) -> None:
        self.state = state
        self.span = span
        self.ahead = ahead
        self._name = StateName(state.database_id, state.version)
        self._ssts = ssts
        self._runtime = runtime
        self._sort_memory_bytes = sort_memory_bytes
        self._sort_spill_bytes = sort_spill_bytes
        self._rest: Spill | None = None

    async def exact(self, after: int, until: int) -> Selected:
        """Rows above ``after``, which is not below the floor, up to ``until`` or less. Raises `MissingError`,
        `CorruptionError`, `UnavailableError`."""
        sources = [SeqSource(sst.min_seq, sst.max_seq, partial(self._read, sst)) for sst in self.state.ssts()]
        return await self._found(sources, after, until)

    def shared_after(self, seq: int) -> int | None:
        """The lowest sequence number above ``seq`` that is known to be an ingest's."""
        known = [sst.global_seq for sst in self.state.ssts() if sst.global_seq is not None]
        known += [record.seq for record in self.state.ingest_records]
        return min((later for later in known if later > seq), default=None)

    def ingested(self, seq: int) -> IngestedRows:
        """The rows of the ingest of that sequence number."""
        return self.ingest(seq, [sst for sst in self.state.ssts() if sst.min_seq <= seq <= sst.max_seq])

    def ingest(self, seq: int, ssts: Sequence[SstRef]) -> IngestedRows:
        """The rows of that sequence number, all of which are in ``ssts``."""
        return IngestedRows(seq, ssts, self.open, self.span)

    def open(self, sst: SstRef) -> SstReader:
        """A reader of an SST that the state names."""
        return self._ssts.open(sst, self.state.parents)

    async def snapshot(self, after: int) -> Selected:
        """Rows above ``after`` that were alive at the floor, up to it or less; expiry is judged now. Raises as
        `exact`."""
        floor = self.state.history_floor
        found = await self._found([SeqSource(after + 1, floor, partial(self._alive, after))], after, floor)
        if found.rows is None:
            return found
        return replace(found, rows=await self._runtime.offload.run(partial(shared_by_key, found.rows)))

    async def _found(self, sources: Sequence[SeqSource], after: int, until: int) -> Selected:
        if self._rest is not None and self._rest.after == after:
            rest = self._rest
            try:
                found = Selected(await rest.next(), rest.after)
            except (OSError, CorruptionError) as error:
                logger.warning("a change feed sorts its rows again, because a spill file cannot be read: %s", error)
            else:
                if rest.over:
                    self._rest = None
                    await rest.close()
                return found
        self._rest = None
        kept = None if self.ahead is None else self.ahead.above(self._name, after)
        if kept is not None:
            return kept
        found = await select(sources, after, until, self._sort_memory_bytes, self._sort_spill_bytes, self._runtime)
        self._rest = None if found.rest is None or found.rest.over else found.rest
        if self.ahead is not None:
            self.ahead.keep(self._name, after, found)
        return found

    async def _read(self, sst: SstRef) -> AsyncIterator[Columns]:
        """All rows of ``sst``."""
        if not self.span.overlaps(sst.first_key, sst.last_key):
            return
        batches = read_batches(self.open(sst), self.span.start, self.span.end, read_bytes=READ_BYTES)
        async with aclosing(batches):
            async for rows in batches:
                yield rows

    async def _alive(self, after: int) -> AsyncIterator[Columns]:
        """The rows above ``after``, and some others. SSTs that have none hide none; they may hold what operands are
        merged with. A merged row keeps its number while its operands expire, so that each chunk gives others."""
        found = merging(self.state.merge_operator, numbered_by_newest=True)
        state = _without_older(self.state, after) if found is None else self.state
        l0, runs = SstTables(self._ssts).levels(state)
        yield_budget = YieldBudget(self._runtime.clock)
        view = ViewMaker(yield_budget, merging=found).view((), l0, runs, self.state.range_deletes)
        now_ms, floor = self._runtime.clock.now_ms(), self.state.history_floor
        rows = view.live_rows(self.span, now_ms=now_ms, max_seq=floor, prefetch=True)
        try:
            async for batch in rows:
                yield batch
        finally:
            await close_stream(rows)


def _without_older(state: ManifestState, seq: int) -> ManifestState:
    """``state`` without the SSTs that have nothing above ``seq``."""
    l0 = tuple(sst for sst in state.l0 if sst.max_seq > seq)
    runs = (replace(run, ssts=tuple(sst for sst in run.ssts if sst.max_seq > seq)) for run in state.runs)
    return replace(state, l0=l0, runs=tuple(run for run in runs if run.ssts))
