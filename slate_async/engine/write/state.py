"""`WriterState`: the facts that every part of a writer reads, and the steps that change what its reads see.

Each step is synchronous: a segment is acknowledged, or a manifest state adopted, between two awaits. Reads take the
current `ReadView`, an immutable object that such a step replaces.

Rule 20: docs/design/protocol-rules.md
"""

from __future__ import annotations

from slate_async.engine.read.covered import ViewMaker
from slate_async.engine.read.hot import HotReads
from slate_async.engine.read.sources import Table
from slate_async.engine.read.sst_tables import SstTables
from slate_async.engine.read.view import ReadView
from slate_async.engine.write.memtables import MemtableEntry, MemtableList, Segment
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.replay import Replayed
from slate_async.engine.write.signals import WriterSignals
from slate_async.merge_operators.guarded import merging
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.log.protocol import Inherited, Log
from slate_async.storage.manifest.state import ManifestState, SeqTime, l0_units
from slate_async.storage.sst.locate import SstOpener


class WriterState:
    """See the module docstring.

    manifest: the newest manifest state that is adopted
    memtables: rows that are not in SSTs yet
    log_ssts: without a WAL, the log's objects with their positions, newest first: they are SSTs themselves
    durable_seq: the sequence number up to which rows are durable
    acknowledged_end, published_end: the last log position that is acknowledged; that every successor inherits
    view: what reads see
    merging: the database's merge operator, if it has one
    most_objects: log objects that are not in L0 yet, which the next opening is to read at most
    """

    def __init__(
        self,
        *,
        epoch: int,
        inherited: Inherited,
        replayed: Replayed,
        log: Log,
        ssts: SstOpener,
        pins: WriterPins,
        signals: WriterSignals,
        yield_budget: YieldBudget,
        most_objects: int,
    ) -> None:
        self.epoch = epoch
        self.manifest = inherited.state
        self.memtables: MemtableList = replayed.memtables
        self.log_ssts: list[tuple[int, Table]] = replayed.log_ssts
        newest = [(log_id, SeqTime(replayed.last_seq, replayed.last_tick_ms)) for log_id, _ in replayed.log_ssts[:1]]
        self._log_times: dict[int, SeqTime] = dict(newest)  # when SSTs of the log were written, ascending
        self.durable_seq = replayed.last_seq
        self.acknowledged_end = self.published_end = inherited.next_id - 1
        self.hot = HotReads(ssts.cache)
        self._log = log
        self._ssts = ssts
        self._sst_tables = SstTables(ssts)
        self._pins = pins
        self._signals = signals
        self._most_objects = most_objects
        self.merging = merging(self.manifest.merge_operator)
        self._views = ViewMaker(yield_budget, self.hot, self.merging)
        self.view = self._new_view()

    # ---- steps

    def adopt(self, manifest: ManifestState) -> None:
        """Install a newer manifest state, which a pin keeps. Rule 20: in one step, rows below its ``log_start`` leave
        memory.

        Rows that it covers are durable, acknowledged or not: without a WAL, a landed object may be compacted first.
        Then older versions of its keys are dropped, and a durable read below it would find nothing."""
        if manifest.version <= self.manifest.version:
            return
        self.manifest = manifest
        self.durable_seq = max(self.durable_seq, manifest.last_seq)
        stored = self.memtables.drop_below(manifest.log_start)
        self.log_ssts = [(log_id, table) for log_id, table in self.log_ssts if log_id >= manifest.log_start]
        self._log_times = {log_id: time for log_id, time in self._log_times.items() if log_id >= manifest.log_start}
        self.show()
        self._pins.adopted(manifest)
        for entry in stored:
            self._stored(entry)
        self._signals.adopted()

    def acknowledge(self, segment: Segment) -> None:
        """The rows of ``segment`` are in the log for good, and so are all before them."""
        self.durable_seq = max(self.durable_seq, segment.last_seq)
        if not self.manifest.wal_enabled:
            self._promote(segment)

    def _promote(self, segment: Segment) -> None:
        """The log object *is* an SST: reads use it from now on, and the memtable goes. Unless it went already: what
        landed may be compacted, and the manifest that says so adopted, before it is acknowledged here."""
        if segment.entry not in self.memtables.frozen:
            return
        key = self._log.key(segment.log_id)
        reader = self._ssts.open_log(key, segment.object_bytes, log_object_id(segment.log_id))
        expires = segment.entry.table.expires
        self.log_ssts.insert(0, (segment.log_id, Table(*segment.key_range, reader, expires)))
        written_ms = segment.entry.table.time_of(segment.last_seq)
        self._log_times[segment.log_id] = SeqTime(segment.last_seq, written_ms)
        self.memtables.frozen.remove(segment.entry)
        self.show()
        self._stored(segment.entry)
        self._signals.ssts_changed()

    def _stored(self, entry: MemtableEntry) -> None:
        entry.stored.resolve()
        self._signals.released(entry.table.nbytes)

    def freeze_if_idle(self) -> None:
        """If no memtable is on its way to L0, send the active one."""
        if self.manifest.wal_enabled and not self.memtables.frozen:
            self.memtables.freeze()

    def undone(self) -> None:
        """Rows have left memory that will never be stored."""
        newest = max((table.last_seq for table in self.memtables.newest_first()), default=0)
        self._views.undo_above(max(newest, self.manifest.last_seq))

    def show(self) -> None:
        """What reads see has changed: replace the view."""
        self._pins.retire(self.view)
        self.view = self._new_view()

    def _new_view(self) -> ReadView:
        l0, runs = self._sst_tables.levels(self.manifest)
        log = [table for _, table in self.log_ssts]
        return self._views.view(self.memtables.newest_first(), [*log, *l0], runs, self.manifest.range_deletes)

    # ---- facts

    def log_is_full(self) -> bool:
        """Whether the log has as many objects that are not in L0 as the next opening is to read at most."""
        return self.manifest.wal_enabled and self.memtables.log_objects >= self._most_objects

    @property
    def log_objects(self) -> int:
        """Positions of the log that the next opening would look at, fences among them."""
        return max(0, self.acknowledged_end + 1 - self.manifest.log_start)

    @property
    def samples(self) -> list[SeqTime]:
        """When rows of the log's SSTs were written, ascending; of those inherited, the newest only."""
        return list(self._log_times.values())

    @property
    def range_deletes(self) -> int:
        """Range deletes that compaction has not used up, in memory or stored."""
        in_memory = sum(entry.table.range_count for entry in self.memtables.entries())
        return len(self.manifest.range_deletes or ()) + in_memory

    @property
    def l0_count(self) -> int:
        """SSTs that no compaction has taken yet; those of one ingest count as one."""
        return len(l0_units(self.manifest.l0)) + len(self.log_ssts)
