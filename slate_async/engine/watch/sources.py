"""What becomes durable, as a dispatcher takes it in: from a writer's memory, or from one change feed beside a reader.

A writer's rows are noted in the step that acknowledges them (rule 33), by table and row numbers, for they may leave
the memtables in the same step. They are dispatched once the log holds them for good, before which ``ack="flushed"``
acknowledges them. An ingest is noted in the step that adopts it, under a pin of the view that shows it.

Rule 33: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from slate_async.engine.changes.change import changes_of
from slate_async.engine.changes.feed import ChangeFeed, Rows
from slate_async.engine.changes.ingested import IngestedRows
from slate_async.engine.read.view import Pin
from slate_async.engine.watch.pieces import Piece, Place, place_after
from slate_async.engine.write.memtables import Segment
from slate_async.engine.write.writer import Writer
from slate_async.errors import CorruptionError, NotFoundError, UnavailableError
from slate_async.runtime.protocol import Clock
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.memtable.memtable import Memtable

INGEST_STEP_ROWS = 1_024
RETRY_S = 1.0
BACKLOG_BYTES = 64 << 20
"""So much may wait to be dispatched, kept in memory for that; what is more is left to the shared feed."""


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows ``start`` to ``stop`` of a memtable, up to number ``last_seq``, durable once the log holds ``log_id``."""

    table: Memtable
    start: int
    stop: int
    last_seq: int
    log_id: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class IngestRows:
    """An ingest that was applied under number ``last_seq``, of which ``ssts`` hold all rows; ``pin`` keeps them.
    ``None`` for both: they are not known any more."""

    last_seq: int
    state: ManifestState
    ssts: tuple[SstRef, ...] | None
    pin: Pin | None
    nbytes: int = 0


Noted = MemoryRows | IngestRows


class LostRowsError(Exception):
    """What comes next is not in memory, up to number ``seq``: a change feed has to read it."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


class Source(Protocol):
    """One database's durable rows, in order, from the step of `start` on."""

    @property
    def durable_seq(self) -> int:
        """The number up to which rows are durable, or shown by a reader, now."""

    def start(self, from_seq: int, rows: int) -> int:
        """Take in rows from now on; above which number. Not below ``from_seq``, and up to so many rows of the past."""

    def stop(self) -> None:
        """Take in nothing more, and forget what is noted."""

    def pieces(self) -> AsyncGenerator[Piece, None]:
        """Everything since `start`, for ever. Raises `LostRowsError`, after which it may be asked again."""


class WriterSource:
    """Of a writer. ``ingested`` opens the rows of an ingest; ``wake`` is called when something was noted."""

    def __init__(
        self,
        writer: Writer,
        ingested: Callable[[ManifestState, int, tuple[SstRef, ...]], IngestedRows],
        clock: Clock,
    ) -> None:
        self.writer = writer
        self._ingested = ingested
        self._clock = clock
        self._noted: deque[Noted] = deque()
        self._nbytes = 0
        self._wake = asyncio.Event()
        self._place = Place(0)
        self._through = self._ingest_seq = 0
        self._active = False

    @property
    def durable_seq(self) -> int:
        """See `Source`."""
        return self.writer.state.durable_seq

    def start(self, from_seq: int, rows: int) -> int:
        """See `Source`: as far back as the memtables go, without a gap."""
        state = self.writer.state
        durable, manifest = state.durable_seq, state.manifest
        self.stop()
        self._active = True
        self._through, self._ingest_seq = durable, manifest.ingest_seq
        low = max(from_seq, durable - rows, manifest.ingest_seq)
        for floor in (low, max(low, manifest.last_seq), durable):
            found = [
                (entry.table, entry.table.row_after(floor), entry.table.row_after(durable))
                for entry in state.memtables.entries()
            ]
            rows_there = sum(stop - start for _, start, stop in found)
            if rows_there == manifest.rows_up_to(durable) - manifest.rows_up_to(floor):
                break
        for table, start, stop in found:
            if start < stop:
                self._note(MemoryRows(table, start, stop, durable, state.acknowledged_end, 0))
        self._place = Place(floor)
        return floor

    def stop(self) -> None:
        """See `Source`."""
        self._active = False
        self._noted.clear()
        self._nbytes = 0

    # ---- signals of the writer

    def acknowledged(self, segment: Segment) -> None:
        """The rows of ``segment`` are durable."""
        if not self._active or segment.last_seq <= self._through:
            return
        self._through = segment.last_seq
        table = segment.entry.table
        self._note(MemoryRows(table, segment.start, segment.stop, segment.last_seq, segment.log_id, segment.nbytes))

    def adopted(self) -> None:
        """A manifest state was adopted: ingests may be in it that were not in the last one."""
        state = self.writer.state
        if not self._active or state.manifest.ingest_seq <= self._ingest_seq:
            return
        before, self._ingest_seq = self._ingest_seq, state.manifest.ingest_seq
        for seq, ssts in _ingests_after(before, state.manifest):
            self._through = max(self._through, seq)
            self._note(IngestRows(seq, state.manifest, ssts, None if ssts is None else state.view.pin()))

    def _note(self, noted: Noted) -> None:
        self._noted.append(noted)
        self._nbytes += noted.nbytes
        self._wake.set()

    # ---- pieces

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """See `Source`."""
        while True:
            while not self._noted:
                self._wake.clear()
                await self._wake.wait()
            noted = self._noted.popleft()
            self._nbytes -= noted.nbytes
            if self._nbytes > BACKLOG_BYTES:
                self._skip_to(max(noted.last_seq, max(left.last_seq for left in self._noted)))
            if isinstance(noted, IngestRows):
                pieces = self._ingest_pieces(noted)
            else:
                await self._until_published(noted.log_id)
                pieces = self._row_pieces(noted)
            async for piece in pieces:
                self._place = piece.end
                yield piece

    async def _until_published(self, log_id: int) -> None:
        """Wait until every successor inherits the log up to ``log_id``. A writer that ends first never returns."""
        await self.writer.flusher.until_published(log_id)
        if self.writer.state.published_end < log_id:
            await asyncio.Event().wait()

    def _skip_to(self, seq: int) -> None:
        self._noted.clear()
        self._nbytes = 0
        self._place = Place(seq)
        raise LostRowsError(seq)

    async def _row_pieces(self, noted: MemoryRows) -> AsyncGenerator[Piece, None]:
        for rows in noted.table.slices(noted.start, noted.stop):
            changes = changes_of(rows)
            yield Piece(changes, self._place, Place(changes[-1].seq))

    async def _ingest_pieces(self, noted: IngestRows) -> AsyncGenerator[Piece, None]:
        """The rows in the order of their keys. The edit that applied them was this writer's own, so they are durable.

        Rows that are damaged are left to the shared feed, which says so."""
        if noted.ssts is None:
            self._skip(noted)
        assert noted.ssts is not None
        rows = self._ingested(noted.state, noted.last_seq, noted.ssts)
        begin = self._place
        while not rows.over:
            try:
                parts = await rows.next()
            except UnavailableError:  # nobody else has them for certain: they may be compacted already
                await self._clock.sleep(RETRY_S)
                continue
            except CorruptionError:
                self._skip(noted)
            for part in parts:
                for start in range(0, len(part), INGEST_STEP_ROWS):
                    changes = changes_of(part.slice(start, min(len(part), start + INGEST_STEP_ROWS)))
                    end = place_after(changes[-1], begin.seq)
                    yield Piece(changes, self._place, end)
        yield Piece((), self._place, Place(noted.last_seq))

    def _skip(self, noted: IngestRows) -> NoReturn:
        self._place = Place(noted.last_seq)
        raise LostRowsError(noted.last_seq)


def _ingests_after(before: int, manifest: ManifestState) -> list[tuple[int, tuple[SstRef, ...] | None]]:
    """The ingests of ``manifest`` above number ``before``, each with its SSTs; ``None`` where a compaction has taken
    some already."""
    found: dict[int, list[SstRef]] = {record.seq: [] for record in manifest.ingest_records if record.seq > before}
    rows = {record.seq: record.rows for record in manifest.ingest_records if record.seq > before}
    for sst in manifest.l0:
        if sst.global_seq is not None and sst.global_seq > before:
            found.setdefault(sst.global_seq, []).append(sst)
    found.setdefault(manifest.ingest_seq, [])
    known: list[tuple[int, tuple[SstRef, ...] | None]] = []
    for seq, ssts in sorted(found.items()):
        whole = seq in rows and sum(sst.rows for sst in ssts) == rows[seq]
        known.append((seq, tuple(ssts) if whole else None))
    return known


class FeedSource:
    """Of a reader: one change feed, which reads what the reader's polls have found."""

    def __init__(self, shown_seq: Callable[[], int], open_feed: Callable[[int], ChangeFeed]) -> None:
        self._shown_seq = shown_seq
        self._open_feed = open_feed
        self._place = Place(0)

    @property
    def durable_seq(self) -> int:
        """See `Source`."""
        return self._shown_seq()

    def start(self, from_seq: int, rows: int) -> int:
        """See `Source`: the feed begins at what is asked for, if that is not far."""
        shown = self.durable_seq
        self._place = Place(shown)
        return shown

    def stop(self) -> None:
        """See `Source`."""

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """See `Source`. Raises `LostRowsError` when the feed can go on from here no more."""
        feed = self._open_feed(self._place.seq)
        try:
            async with feed:
                async for piece in feed_pieces(feed, self._place):
                    self._place = piece.end
                    yield piece
        except NotFoundError:
            self._place = Place(self.durable_seq)
            raise LostRowsError(self._place.seq) from None


async def feed_pieces(feed: ChangeFeed, begin: Place) -> AsyncGenerator[Piece, None]:
    """What ``feed``, which has begun, gives behind ``begin``, for ever. After `UnavailableError` call it again."""
    rows = aiter(feed)
    assert isinstance(rows, Rows)
    while (ready := await rows.more()) is not None:
        changes = list(ready)
        end = max(begin, Place(feed.seq), place_after(changes[-1], feed.seq))
        yield Piece([change for change in changes if not begin.covers(change)] if begin.key else changes, begin, end)
        begin = end
