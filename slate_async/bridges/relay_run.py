"""`RelayRun`: one pass over a change feed, from where a collection ends.

Ordering rules:
* a change is acknowledged on the feed after the append that holds it was
* a snapshot and the rows of one ingest are one append each, for a part of either is no state of the database
* times of an ``upsert`` collection are given up after the append that ends a step beyond them
* rows that another relay has appended are turned into updates, too: they are a part of the contents
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import numpy as np
import pyarrow as pa

from slate_async.bridges.contents_hold import ContentsHold
from slate_async.bridges.envelopes import TIME, Enveloping, KeySpan, refuse_range_deletes
from slate_async.codec.arrays import mask_array, numbers_of
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.writer.writer import Writer
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.errors import ClosedError, UnavailableError
from slate_async.runtime.protocol import Offload

BATCH_ROWS = 65_536
"""Of a feed's batch, each of which is an append."""
PAUSE_S = 1.0
INLINE_ROWS = 1_024
MOST_TRIES = 100
"""Of what another relay gets in the way of, each time by moving on."""
START = Frontier.minimum(TimeKind.U64)


@dataclass(slots=True)
class RelayProgress:
    """Where a relay is, and what it has done since it was made.

    upper: where the collection ``name`` ended when that was last known
    state_bytes: memory for the contents of an ``upsert`` collection, now
    """

    name: str
    upper: Frontier = field(default=START)
    runs: int = 0
    rows: int = 0
    updates: int = 0
    appends: int = 0
    mismatches: int = 0
    state_bytes: int = 0

    @property
    def next(self) -> int:
        """The time that the collection ends at."""
        return self.upper.elements[0][0]

    @property
    def begun(self) -> bool:
        """Whether anything was appended."""
        return self.upper != START

    def at(self, upper: Frontier) -> None:
        """The collection ends at ``upper``. Raises `ClosedError` if nothing comes any more."""
        self.upper = upper
        if upper.is_done:
            raise ClosedError(f"{self.name} is closed: its upper is done")

    def appended(self, end: int) -> None:
        """This relay has moved the collection on."""
        self.upper = Frontier(((end,),))
        self.appends += 1

    def mismatch(self, error: UpperMismatchError) -> None:
        """Another relay has, or may have: follow on from there. Raises as `at`."""
        self.mismatches += 1
        self.at(error.upper)


class OvertakenError(Exception):
    """Another relay has appended what this run was about to: begin another run, where the collection ends now."""


class RelayRun:
    """See the module docstring. ``feed`` begins where ``progress`` says that the collection of ``writer`` ends."""

    def __init__(
        self,
        writer: Writer,
        feed: ChangeFeed,
        envelope: Enveloping,
        span: KeySpan,
        progress: RelayProgress,
        offload: Offload,
        hold: ContentsHold | None,
    ) -> None:
        self._writer = writer
        self._feed = feed
        self._envelope = envelope
        self._span = span
        self._progress = progress
        self._offload = offload
        self._hold = hold
        self._batches: AsyncIterator[pa.RecordBatch] = feed.batches(BATCH_ROWS)

    async def until(self, goal: Frontier | None) -> None:
        """Go on until the collection ends at or beyond ``goal``, or for ever. Raises `OvertakenError`."""
        feed, progress, first = self._feed, self._progress, self._progress.next
        async for rows in self._batches:
            _, rows = _split(rows, first)
            while len(rows):
                seqs = numbers_of(rows.column("seq"))
                if seqs[0] > feed.snapshot_seq and seqs[-1] <= feed.seq:
                    await self._append(rows, feed.seq + 1)
                    break
                rows = await self._append_many(rows)
            await feed.acknowledge(min(feed.seq, progress.next - 1))
            is_there = goal is not None and goal <= progress.upper
            if self._hold is not None:
                await self._hold.follow(progress.upper, now=is_there)
            if is_there:
                return

    async def _append_many(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Append a snapshot, or an ingest, whose rows begin with ``rows``, as one batch in bounded memory. Gives the
        rows behind it that came with its last ones."""
        feed, progress = self._feed, self._progress
        end = feed.snapshot_seq + 1
        if progress.next >= end:
            whole, rows = _split(rows, feed.seq + 1)
            await self._append(whole, feed.seq + 1)
            end = int(numbers_of(rows.column("seq"))[0]) + 1
        if progress.next >= end:
            return await self._take(rows, end, _drop)
        try:
            async with self._writer.batch(progress.upper, upper=end) as batch:
                rows = await self._take(rows, end, batch.add)
        except UpperMismatchError as error:
            progress.mismatch(error)
            raise OvertakenError from error
        progress.appended(end)
        return rows

    async def _take(
        self, rows: pa.RecordBatch, end: int, add: Callable[[pa.RecordBatch], Awaitable[None]]
    ) -> pa.RecordBatch:
        """Give ``add`` the updates before ``end``. Gives the rows behind them."""
        while True:
            found, rows = _split(rows, end)
            await add(await self._updates(found))
            if len(rows) or self._feed.seq >= end - 1:
                return rows
            rows = await self._more(end, rows)

    async def _more(self, end: int, none: pa.RecordBatch) -> pa.RecordBatch:
        """The next rows of the feed; ``none`` if all before ``end`` turn out to have come."""
        while self._feed.seq < end - 1:
            with anyio.move_on_after(PAUSE_S):  # a step that is cancelled loses nothing
                return await anext(self._batches)
        return none

    async def _append(self, rows: pa.RecordBatch, end: int) -> None:
        """Append ``rows``, which are all until ``end``, as far as no other relay has."""
        progress, upper = self._progress, Frontier(((end,),))
        updates = await self._updates(rows)
        for _ in range(MOST_TRIES):
            if upper <= progress.upper:
                return
            updates = updates.filter(mask_array(numbers_of(updates.column(TIME)) >= np.uint64(progress.next)))
            try:
                await self._writer.append(updates, lower=progress.upper, upper=upper)
            except UpperMismatchError as error:
                progress.mismatch(error)
            else:
                progress.appended(end)
                return
        raise UnavailableError(f"other relays were faster {MOST_TRIES} times in a row; run it again")

    async def _updates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        def convert() -> pa.RecordBatch:
            refuse_range_deletes(rows)
            return self._envelope.updates(self._span.of(rows), self._feed.snapshot_seq)

        updates = convert() if len(rows) <= INLINE_ROWS else await self._offload.run(convert)
        self._progress.rows += len(rows)
        self._progress.updates += updates.num_rows
        self._progress.state_bytes = self._envelope.nbytes
        return updates


def _split(rows: pa.RecordBatch, end: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows before number ``end``, and the others."""
    at = int(np.searchsorted(numbers_of(rows.column("seq")), np.uint64(end)))
    return rows.slice(0, at), rows.slice(at)


async def _drop(updates: pa.RecordBatch) -> None:
    """Another relay has appended them."""
