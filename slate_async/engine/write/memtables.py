"""The writer's memtables and the cuts through them: which rows go into which log object, and which table into L0.

Everything here is synchronous: a batch is applied, a cut is made, a table is frozen between two awaits, so a batch is
never split across log objects and sequence order is log order is age order.

An *entry* is a memtable and the log positions its rows have. A *segment* is a run of rows of one entry that will become
one log object. The active entry's uncut rows wait for the next cut; cut segments wait in a queue for their log id.

Rule 20: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slate_async.engine.write.commit_group import CommitGroup
from slate_async.engine.write.signals import WriterSignals
from slate_async.storage.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable


@dataclass(slots=True, eq=False)
class MemtableEntry:
    """A memtable. ``log_end`` is the last log position that holds rows of it (final once no segment is queued);
    ``log_floor`` the highest epoch among valid log objects up to there; ``cut_rows`` and ``cut_nbytes`` what is in
    segments; ``objects`` how many log objects hold rows of it, and ``aging_since`` since when it has one, in monotonic
    seconds; ``stored`` resolves when its rows are in SSTs."""

    table: Memtable
    log_end: int
    log_floor: int
    cut_rows: int = 0
    cut_nbytes: int = 0
    queued_segments: int = 0
    objects: int = 0
    aging_since: float | None = None
    frozen: bool = False
    stored: CommitGroup = field(default_factory=CommitGroup)


@dataclass(slots=True, eq=False)
class Segment:
    """Rows ``start`` to ``stop`` of an entry: one log object, of ``object_bytes``, once it has an id.
    ``key_range``: its first and last key, known when the object is an SST."""

    entry: MemtableEntry
    start: int
    stop: int
    nbytes: int
    group: CommitGroup
    last_seq: int
    log_id: int = 0
    object_bytes: int = 0
    key_range: tuple[bytes, bytes] = (b"", b"")

    @property
    def written_ms(self) -> int:
        """When its first row was written, milliseconds since the epoch."""
        return self.entry.table.written_ms(self.start)


@dataclass(slots=True, eq=False)
class MemtableList:
    """See the module docstring. ``freeze_each_cut``: the log holds SSTs, so each cut is a table of its own.
    ``table_bytes``, ``segment_bytes``: the active table is frozen, a segment is cut, at the end of the batch that
    reaches it.
    ``signals``: of the writer whose rows these are."""

    epoch: int
    freeze_each_cut: bool
    table_bytes: int
    segment_bytes: int
    active: MemtableEntry
    frozen: list[MemtableEntry] = field(default_factory=list)  # oldest first
    queue: deque[Segment] = field(default_factory=deque)
    group: CommitGroup = field(init=False)
    queued_bytes: int = 0
    signals: WriterSignals = field(default_factory=WriterSignals)

    def __post_init__(self) -> None:
        self.group = self._new_group()

    def _new_group(self) -> CommitGroup:
        return CommitGroup(self.signals.group_full)

    def entries(self) -> list[MemtableEntry]:
        """All of them, oldest first."""
        return [*self.frozen, self.active]

    @property
    def uncut_bytes(self) -> int:
        """Bytes of keys and values that are in no segment yet."""
        entry = self.active
        overhead = self.uncut_rows * ROW_OVERHEAD_BYTES
        return entry.table.nbytes - entry.cut_nbytes - overhead

    @property
    def uncut_rows(self) -> int:
        """Rows that are in no segment yet."""
        return len(self.active.table) - self.active.cut_rows

    @property
    def pending_bytes(self) -> int:
        """Bytes of rows that have no log id yet."""
        return self.uncut_bytes + self.queued_bytes

    @property
    def log_objects(self) -> int:
        """Log objects with rows of a table: what is not in L0 yet."""
        return self.active.objects + sum(entry.objects for entry in self.frozen)

    @property
    def has_pending(self) -> bool:
        """Whether rows wait for a log id."""
        return bool(self.queue) or self.active.cut_rows < len(self.active.table)

    def cut_if_full(self) -> None:
        """Cut at `segment_bytes`, however long the window has had no room: an object stays of a size that can be
        encoded, uploaded and retried, and a table of a size that can be flushed."""
        if self.uncut_bytes >= self.segment_bytes:
            self.cut()

    def cut(self) -> None:
        """Close the current segment: its rows will be one log object. No rows, no segment."""
        entry, rows = self.active, len(self.active.table)
        self.signals.memtable_cut()
        if entry.cut_rows < rows:
            segment = Segment(entry, entry.cut_rows, rows, self.uncut_bytes, self.group, entry.table.last_seq)
            entry.cut_rows, entry.cut_nbytes = rows, entry.table.nbytes
            entry.queued_segments += 1
            self.queue.append(segment)
            self.queued_bytes += segment.nbytes
            self.group = self._new_group()
        if self.freeze_each_cut or entry.table.nbytes >= self.table_bytes:
            self._retire()

    def freeze(self) -> None:
        """Cut, and let no further rows into the active table."""
        self.cut()
        self._retire()

    def _retire(self) -> None:
        entry = self.active
        if len(entry.table) == 0 or entry.frozen:
            return
        entry.table.freeze()
        entry.frozen = True
        self.frozen.append(entry)
        self.active = MemtableEntry(Memtable(), entry.log_end, self.epoch)
        self.signals.memtable_frozen()

    def next_segment(self, log_id: int) -> Segment:
        """Give the oldest segment its id. There must be pending rows."""
        if not self.queue:
            self.cut()
        segment = self.queue.popleft()
        self.queued_bytes -= segment.nbytes
        segment.log_id = log_id
        segment.entry.queued_segments -= 1
        segment.entry.objects += 1
        segment.entry.log_end = log_id
        segment.entry.log_floor = self.epoch
        return segment

    @property
    def oldest_pending_ms(self) -> int | None:
        """When the oldest row without a log id was written, milliseconds since the epoch; ``None`` without one."""
        if self.queue:
            return self.queue[0].written_ms
        entry = self.active
        return entry.table.written_ms(entry.cut_rows) if entry.cut_rows < len(entry.table) else None

    def groups(self) -> list[CommitGroup]:
        """Groups whose rows have no log id yet: certainly not written anywhere."""
        return [*(segment.group for segment in self.queue), self.group]

    def drop_unsent(self) -> None:
        """Undo every row that has no log id, for all readers. Nothing is written afterwards."""
        sent = {id(entry): entry.cut_rows for entry in self.entries()}
        for segment in reversed(self.queue):
            sent[id(segment.entry)] = segment.start
        self.queue.clear()
        self.queued_bytes = 0
        for entry in self.entries():
            entry.table.drop_after(sent[id(entry)])
            entry.cut_rows, entry.queued_segments = sent[id(entry)], 0

    def drop_above(self, seq: int) -> None:
        """Undo every row above sequence number ``seq``, for all readers."""
        for entry in self.entries():
            entry.table.drop_after(entry.table.row_after(seq))

    def drop_below(self, log_start: int) -> list[MemtableEntry]:
        """Remove frozen tables whose rows are all below ``log_start``, and return them (rule 20)."""
        stored = [entry for entry in self.frozen if entry.queued_segments == 0 and entry.log_end < log_start]
        if stored:
            self.frozen = [entry for entry in self.frozen if entry not in stored]
        return stored

    def newest_first(self) -> list[Memtable]:
        """All tables with rows, for a read view."""
        memtables = [entry.table for entry in reversed(self.frozen)]
        return [self.active.table, *memtables]
