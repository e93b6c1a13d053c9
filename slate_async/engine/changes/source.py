"""`ChangeSource`: the rows of one database above a sequence number, piece by piece, wherever they are now.

From one manifest state on: a snapshot of what was compacted (if that was asked for) -> the SSTs, exactly -> the log,
round by round. A round is as a follower's: objects at the position -> the head, read after them -> if our subscription
is in it, or the log still starts at or before the position, the round counts (rule 13). Otherwise what was read is
dropped, and the source begins anew from the SSTs of that head, if they have all that is missing, or ends with an error.

A step that is cancelled or fails changes nothing: what it read is only taken over in one step at its end.

Rule 13: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from slate_async.codec.columns import Columns
from slate_async.engine.changes.history import History
from slate_async.engine.changes.ingested import IngestedRows
from slate_async.engine.changes.log_rows import LoggedRows, LogRows
from slate_async.engine.changes.order import above, check_gapless
from slate_async.engine.changes.subscription import LogPosition, Subscription, SubscriptionStats, subscription_lost
from slate_async.engine.follow.tail import Chunk, Gap, Position, Tail
from slate_async.engine.read.bounds import EVERY_KEY
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.edits.subscriptions import check_exact
from slate_async.storage.manifest.state import FeedMark, ManifestState, SstRef
from slate_async.storage.sst.reader import MissingError

logger = logging.getLogger(__name__)
MAX_POSITION = 2**63
"""Above every position of a log."""


@dataclass(slots=True)
class SourceStats(SubscriptionStats):
    """Counters of one database's feeds. ``selections``: ranges of sequence numbers looked for in SSTs."""

    rows: int = 0
    log_objects: int = 0
    selections: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that follow one another, in parts between which they may be cut; ``end``: all up to there are in it.

    more: whether there may be more at once"""

    parts: list[Columns]
    end: int
    more: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source reads with. ``history`` makes one of a state."""

    driver: ManifestDriver
    tail: Tail
    log: LogRows
    history: Callable[[ManifestState], History]
    stats: SourceStats
    path: str


class ChangeSource:
    """See the module docstring.

    state, mark: what the subscription retains, or what there was at the beginning
    seq: rows above it are delivered; those up to snapshot_seq as a snapshot
    subscription: ``None`` if nothing is retained
    """

    def __init__(
        self, reading: Reading, state: ManifestState, mark: FeedMark, seq: int, subscription: Subscription | None
    ) -> None:
        self.seq = seq
        self.subscription = subscription
        self.snapshot_seq = 0
        self._ingest: IngestedRows | None = None
        self._reading = reading
        self._begin(state, mark)

    def _begin(self, state: ManifestState, mark: FeedMark) -> None:
        self._state = state
        self._ingest = None
        self._log_start = state.log_start
        self._history = self._reading.history(state)
        self._log_seq = mark.log_seq
        self.position = Position(mark.log_position, mark.log_floor)
        if self.seq < min(state.history_floor, mark.log_seq):
            self.snapshot_seq = state.history_floor

    @property
    def in_history(self) -> bool:
        """Whether the next rows are in SSTs."""
        return self.seq < self._log_seq

    def count(self, rows: int) -> None:
        """So many of the rows that were read are handed out."""
        self._reading.stats.rows += rows

    async def read(self, until: int) -> Piece:
        """The next rows, no more of SSTs than up to ``until`` unless that is kept; none if there are none yet.

        Raises `InvalidError` (the subscription no longer exists, missing rows were compacted, the database was
        destroyed), `CorruptionError`, `UnavailableError`; may be called again."""
        if self._ingest is None and not self.in_history:
            return await self._read_log()
        try:
            if self._ingest is not None:
                return await self._read_ingest(self._ingest)
            ahead = self._history.ahead is not None
            return await self._read_history(self._log_seq if ahead else min(self._log_seq, max(until, self.seq + 1)))
        except MissingError as missing:
            await self._look_past(missing)
            return Piece([], self.seq, more=True)

    # ---- SSTs

    async def _read_history(self, until: int) -> Piece:
        state, seq = self._state, self.seq
        self._reading.stats.selections += 1
        shared = self._history.shared_after(max(seq, state.history_floor))
        if seq < state.history_floor:
            found = await self._history.snapshot(seq)
        elif shared is not None and _is_next(state, shared, seq):
            return await self._read_ingest(self._history.ingested(shared))
        else:
            found = await self._history.exact(seq, until if shared is None else min(until, shared - 1))
            self._check(found.rows, seq, found.end)
        self.seq = found.end
        return Piece([] if found.rows is None else [found.rows], found.end, more=True)

    def _check(self, rows: Columns | None, after: int, end: int) -> None:
        """All of ``(after, end]`` must be there, of all keys."""
        if self._history.span != EVERY_KEY:
            return
        name = f"manifest version {self._state.version}"
        if rows is not None:
            skipped = self._state.skipped or ()
            check_gapless(rows, after, shared_until=self._state.ingest_seq, skipped=skipped, source=name)
        last = after if rows is None else int(rows.seqs[-1])
        if self._state.rows_up_to(last) != self._state.rows_up_to(end):
            raise CorruptionError(f"its SSTs do not hold row {end} of the change feed", object_name=name)

    async def _read_ingest(self, ingest: IngestedRows) -> Piece:
        """The next part of it; with the last one, its sequence number is done."""
        parts = await ingest.next()
        self._ingest = None if ingest.over else ingest
        if ingest.over:
            self.seq = ingest.seq
        return Piece(parts, self.seq, more=True)

    async def _look_past(self, missing: MissingError) -> None:
        """After an SST is found missing: continue from the head, if the checkpoint that retained the SST was removed,
        too."""
        head = await self._head()
        if self.subscription is not None and head.checkpoint(self.subscription.id) is not None:
            raise missing
        if self.subscription is None and any(sst.location == missing.object_name for sst in head.ssts()):
            raise missing
        await self._begin_anew(head)

    # ---- the log

    async def _read_log(self) -> Piece:
        self._reading.stats.rounds += 1
        first, known_start = self.position.next_id, self._log_start
        chunk = await self._reading.tail.read(self.position)
        missed: MissingError | None = None
        read: list[LoggedRows] = []
        try:
            read = await self._reading.log.read(chunk.objects)
            if len(read) < len(chunk.objects):  # the rest comes with the next round
                chunk = Chunk(chunk.objects[: len(read)], read[-1].end, more=True)
        except MissingError as missing:
            missed = missing
        head = await self._head()
        if not await self._counts(first, chunk, head, known_start):
            return Piece([], self.seq, more=True)
        if missed is not None:
            raise missed
        if not await self._holds_all(read, chunk, head):
            return Piece([], self.seq, more=True)
        return self._take(read, chunk, head)

    async def _counts(self, first: int, chunk: Chunk, head: ManifestState, known_start: int) -> bool:
        """Whether what was read at ``first`` is the log, by ``head``, read afterwards; else the source begins anew.

        known_start: where the log started before it was read"""
        if first < self._safe_from(head):
            await self._begin_anew(head)
            return False
        nowhere = chunk.end.next_id == first < known_start
        if nowhere and head.mirrored is not None:  # its log is never there
            await self._begin_anew(head)
            return False
        if nowhere or (chunk.gap is not None and chunk.gap.lost(head)):
            gap = chunk.gap or Gap(first, f"log position {first}")
            if not await self._reading.tail.there(gap) and self._safe_from(await self._head()) <= gap.id:
                raise CorruptionError("is missing, though a change feed still needs it", object_name=gap.key)
        return True

    def _safe_from(self, head: ManifestState) -> int:
        """The first position where nothing was deleted before ``head`` was read."""
        if self.subscription is None:
            return head.log_start
        kept = head.checkpoint(self.subscription.id)
        return MAX_POSITION if kept is None else min(kept.log_start, head.log_start)

    async def _holds_all(self, read: list[LoggedRows], chunk: Chunk, head: ManifestState) -> bool:
        """Whether the log goes on where we are. If an ingest comes first that is not retained, the source begins
        anew."""
        seq = self.seq
        if self._ingest_after(seq, head):
            return True
        fresh = [logged.rows for logged in read if int(logged.rows.seqs[-1]) > seq]
        if fresh:
            gap = not _is_next(head, int(above(fresh[0], seq).seqs[0]), seq)
        else:
            gap = not chunk.more and seq < head.last_seq and chunk.end.next_id >= head.log_start
        if gap and seq < head.last_seq:
            await self._begin_anew(head)
            return False
        return True

    def _ingest_after(self, seq: int, head: ManifestState) -> tuple[SstRef, ...]:
        """The SSTs of the ingest whose sequence number comes next, as they were applied; empty if no ingest comes
        next."""
        if head.ingest_seq <= seq:
            return ()
        kept = None if self.subscription is None else head.checkpoint(self.subscription.id)
        ssts = head.ssts() if kept is None or kept.feed is None else kept.feed.ingests
        return tuple(sst for sst in ssts if sst.global_seq is not None and _is_next(head, sst.global_seq, seq))

    def _take(self, read: list[LoggedRows], chunk: Chunk, head: ManifestState) -> Piece:
        """Take over what was read, up to where an ingest comes first: in one step."""
        parts: list[Columns] = []
        positions: list[LogPosition] = []
        seq, end = self.seq, chunk.end
        for logged in read:
            rows = above(logged.rows, seq)
            if len(rows) and self._ingest_after(seq, head):
                end = positions[-1].position if positions else self.position
                break
            check_gapless(rows, seq, shared_until=0, skipped=head.skipped or (), source=logged.key)
            if len(rows):
                parts.append(rows)
                seq = int(rows.seqs[-1])
            positions.append(LogPosition(max(seq, int(logged.rows.seqs[-1])), logged.end))
        ingest = self._ingest_after(seq, head)
        self.seq, self.position = seq, end
        self._ingest = self._reading.history(head).ingest(ingest[0].global_seq or 0, ingest) if ingest else None
        self._reading.stats.log_objects += len(positions)
        if self.subscription is not None:
            for position in positions:
                self.subscription.passed(position)
        return Piece(parts, seq, chunk.more or bool(ingest) or self._log_start > chunk.end.next_id)

    # ---- the head

    async def _head(self) -> ManifestState:
        head = await self._reading.driver.load()
        if head is None:
            raise NotFoundError(f"there is no database at {self._reading.path} any more")
        check_usable(head)
        if head.database_id != self._state.database_id:
            raise NotFoundError(
                f"{self._reading.path} was destroyed, and another database made in its place; open a feed of that"
            )
        self._log_start = head.log_start
        return head

    async def _begin_anew(self, head: ManifestState) -> None:
        """The objects this feed read were deleted, or are not retained: read on from the SSTs of the newest state, if
        they hold every change."""
        subscription = self.subscription
        if subscription is None:
            check_exact(head, self.seq)
            self._begin(head, FeedMark(self.seq, head.last_seq, head.log_start, head.log_floor))
        elif subscription.name is not None and head.checkpoint(subscription.id) is None:
            raise subscription_lost(subscription.name)
        else:
            logger.warning(
                "%s: the log that a change feed's subscription retained was deleted; the feed continues from the"
                " newest state",
                self._reading.path,
            )
            state, mark = await subscription.anew(self.seq)
            self._begin(state, mark)


def _is_next(state: ManifestState, seq: int, after: int) -> bool:
    """Whether no row can have a sequence number between ``after`` and ``seq``."""
    return seq > after and state.rows_up_to(seq) == state.rows_up_to(after) + 1
