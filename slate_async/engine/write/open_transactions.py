"""`OpenTransactions`: the open transactions of one writer, and what was written since the oldest of them began.

Nothing is done for a write while no transaction is open. While one is, the keys of new rows are taken from the
memtables: at the latest before they are cut into a segment, and so before any of them can leave memory.

Invariant: every row above the oldest open transaction's read point is in `RecentWrites`, or in a memtable above
``RecentWrites.through``. A transaction for which that cannot be kept up is *evicted*: it can only fail.

Rule 32: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from dataclasses import dataclass

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read.key_spans import KeySpans
from slate_async.engine.transactions.recent_writes import Conflict, RecentWrites
from slate_async.engine.transactions.tracked_reads import AFTER_ALL_KEYS, FIRST_BYTES, MOST_AT_ONCE, TrackedReads
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.state import WriterState
from slate_async.errors import ConflictError
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.manifest.state import ManifestState

JUDGED_AHEAD_ROWS = 4_096
"""Of more rows than these a transaction is judged in steps, other tasks between them, before the last one commits."""

FEW_ROWS = 64
"""Of so many rows a transaction is judged as they stand in the active memtable, and nothing is taken over."""

SHOWN_BYTES = 64
"""So much of a key stands in a message."""

EVICTIONS = {
    "too_old": "what was written since it began is not kept any longer (settings transaction_lifetime_ms,"
    " transaction_memory_bytes)",
    "too_large": "it has read more than can be kept track of (the setting transaction_memory_bytes)",
    "reopened": "the database was opened again after an outage of its store",
}
CONFLICTS = {
    "written": "was written",
    "ingested": "may have been written by an ingest",
    "expired": "has expired",
}


@dataclass(slots=True)
class TransactionStats:
    """Counters of one open database."""

    begun: int = 0
    committed: int = 0
    conflicts: int = 0
    evicted: int = 0
    retries: int = 0
    alone: int = 0
    updates: int = 0
    conditional: int = 0


class OpenTransactions:
    """See the module docstring."""

    def __init__(
        self,
        *,
        state: WriterState,
        sequencer: Sequencer,
        clock: Clock,
        yield_budget: YieldBudget,
        lifetime_ms: int,
        memory_bytes: int,
    ) -> None:
        self.lifetime_s = lifetime_ms / 1000
        self.stats = TransactionStats()
        self._state = state
        self._sequencer = sequencer
        self._clock = clock
        self._monotonic = clock.monotonic
        self._yield_budget = yield_budget
        self._memory_bytes = memory_bytes
        self._open: dict[TrackedReads, object] = {}  # the oldest first
        self._tracked_bytes = 0
        self._recent = RecentWrites()
        self._ingest_seq = state.manifest.ingest_seq
        self._over = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def nbytes(self) -> int:
        """About what reads and recent writes take."""
        return self._tracked_bytes + self._recent.nbytes

    # ---- their lives

    def begin(self) -> TrackedReads:
        """A transaction that sees every row there is."""
        now, others = self._monotonic(), self._open
        if others:
            self._evict_old(now)
        reads = TrackedReads(self._sequencer.last_seq, now)
        self.stats.begun += 1
        if self._over:
            reads.evicted = "reopened"
            return reads
        recent = self._recent
        if not others:
            recent.floor = recent.through = reads.seq
            if recent.nbytes:
                recent.restart(reads.seq)
        others[reads] = None
        self._tracked_bytes += FIRST_BYTES
        if self._tracked_bytes + recent.nbytes > self._memory_bytes:
            self._shed()
        return reads

    def end(self, reads: TrackedReads) -> None:
        """It is committed, or given up. Idempotent."""
        if self._open.pop(reads, self) is self:
            return
        self._tracked_bytes -= reads.counted
        recent = self._recent
        if recent.nbytes:
            if self._open:
                recent.prune(next(iter(self._open)).seq)
            else:
                recent.restart(self._sequencer.last_seq)

    def count(self, reads: TrackedReads) -> None:
        """It has read more than it is counted with."""
        if reads not in self._open:
            return
        grown = -(-(reads.nbytes - reads.counted) // FIRST_BYTES) * FIRST_BYTES
        reads.counted += grown
        self._tracked_bytes += grown
        self._shed()

    def _shed(self) -> None:
        """Evict until the rest fits: the oldest if recent writes are the most of it, else who has read most."""
        while self._open and self.nbytes > self._memory_bytes:
            if self._recent.nbytes >= self._tracked_bytes:
                self._evict(next(iter(self._open)), "too_old")
            else:
                self._evict(max(self._open, key=_counted), "too_large")

    def _evict_old(self, now: float) -> None:
        """Those that nobody has ended within their lifetime."""
        others = self._open
        while others and now - (oldest := next(iter(others))).began > self.lifetime_s:
            self._evict(oldest, "too_old")

    def _evict(self, reads: TrackedReads, reason: str) -> None:
        reads.evicted = reason
        reads.points, reads.spans = {}, None
        self.stats.evicted += 1
        self.end(reads)

    def succeed(self, before: OpenTransactions) -> None:
        """The writer of ``before`` is suspended for good: its transactions may have read what was lost."""
        self.stats = before.stats
        before._over = True
        for reads in list(before._open):
            before._evict(reads, "reopened")

    # ---- what is written meanwhile

    def follow_cut(self) -> None:
        """Rows are about to be cut into a segment, and may leave memory after that."""
        if self._open:
            self._evict_old(self._monotonic())
            self.follow()

    def follow(self) -> None:
        """Take in the keys of new rows."""
        recent = self._recent
        if not self._open or self._sequencer.last_seq <= recent.through:
            return
        for entry in self._state.memtables.entries():
            if entry.table.last_seq > recent.through:
                for delete in entry.table.range_deletes() if entry.table.range_count else ():
                    if delete.seq > recent.through:
                        recent.add_range_delete(delete.seq, delete.start, delete.end)
                for first_seq, keys in entry.table.keys_after(recent.through):
                    recent.add(first_seq, keys)
        self._shed()

    def adopted(self) -> None:
        """A manifest state was adopted: ingests may be in it that were not in the last one."""
        manifest, before = self._state.manifest, self._ingest_seq
        if manifest.ingest_seq <= before:
            return
        self._ingest_seq = manifest.ingest_seq
        if self._open:
            self.follow()
            self._recent.add_ingest(manifest.ingest_seq, _ingested(manifest, before))
            self._shed()

    # ---- judgement

    def check(self, reads: TrackedReads, points: KeysView[bytes], spans: KeySpans | None, after: int) -> None:
        """In the step that commits: raise `ConflictError` if one of ``points``, or a key of ``spans``, was written
        above number ``after``, or if what was read has expired."""
        written = self._sequencer.last_seq - after
        if written and reads.evicted is None:
            table = self._state.memtables.active.table
            is_few = written <= FEW_ROWS and table.last_seq == after + written and not table.range_count
            few = table.newest_keys(written) if is_few else None
            if few is not None:
                found = _among(few, points, spans)
            else:
                self.follow()
                found = None if reads.evicted is not None else self._recent.conflict(points, spans, after)
            if found is not None:
                raise self._conflict(found)
        self.check_alone(reads)

    def check_alone(self, reads: TrackedReads) -> None:
        """As `check`, of one after whose read point nothing was written."""
        if self._monotonic() - reads.began > self.lifetime_s and reads.evicted is None:
            self._evict(reads, "too_old")
        if reads.evicted is not None:
            raise self.evicted(reads)
        if reads.expires_ms != NO_EXPIRY and reads.expires_ms <= self._clock.now_ms():
            raise self._conflict(Conflict(reads.expiring, "expired"))

    async def check_ahead(self, reads: TrackedReads, points: KeysView[bytes], spans: KeySpans | None) -> int:
        """Judge it by most of what was written since it began, in steps; up to which number. Raises as `check`."""
        judged = reads.seq
        if self._sequencer.last_seq - judged <= JUDGED_AHEAD_ROWS and not reads.many and len(points) <= MOST_AT_ONCE:
            return judged
        self.follow()
        for through, found in self._recent.steps(points, spans, judged):
            if reads not in self._open:
                break  # it was evicted, which `check` says
            if found is not None:
                raise self._conflict(found)
            judged = through
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
        return judged

    def evicted(self, reads: TrackedReads) -> ConflictError:
        """The error of a call on a transaction that was evicted."""
        self.stats.conflicts += 1
        reason = reads.evicted or ""
        return ConflictError(
            f"the transaction cannot commit: {EVICTIONS[reason]}; run it again", outcome="not_applied", reason=reason
        )

    def _conflict(self, found: Conflict) -> ConflictError:
        self.stats.conflicts += 1
        return ConflictError(
            f"key {shown_key(found.key)} {CONFLICTS[found.reason]} since the transaction began; run it again",
            outcome="not_applied",
            key=found.key,
            reason=found.reason,
        )


def shown_key(key: bytes) -> str:
    """``key`` in a message."""
    return repr(key) if len(key) <= SHOWN_BYTES else f"{key[:SHOWN_BYTES]!r}… ({len(key)} bytes)"


def _among(keys: Sequence[bytes], points: KeysView[bytes], spans: KeySpans | None) -> Conflict | None:
    """One of ``keys`` that is one of ``points``, or in ``spans``."""
    if spans is None and points.isdisjoint(keys):
        return None
    found = next((key for key in keys if key in points or (spans is not None and key in spans)), None)
    return None if found is None else Conflict(found, "written")


def _counted(reads: TrackedReads) -> int:
    return reads.counted


def _ingested(manifest: ManifestState, before: int) -> list[tuple[bytes, bytes]]:
    """Where ingests wrote that were applied above number ``before``: the ranges of their SSTs, or all keys where a
    compaction has taken some already."""
    ssts = [sst for sst in manifest.l0 if sst.global_seq is not None and sst.global_seq > before]
    applied = [record for record in manifest.ingest_records if record.seq > before]
    rows = {record.seq: 0 for record in applied}
    for sst in ssts:
        assert sst.global_seq is not None
        rows[sst.global_seq] = rows.get(sst.global_seq, 0) + sst.rows
    if manifest.ingest_seq not in rows or any(rows[record.seq] != record.rows for record in applied):
        return [(b"", AFTER_ALL_KEYS)]
    return [(sst.first_key, sst.last_key) for sst in ssts]
