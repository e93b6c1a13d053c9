"""`ReaderState`: what a reader knows of a database: a manifest state, and the log's rows from there on.

Invariant: it is always a state the database was in, a prefix of its writer's order, and never goes back. Rows that are
being loaded are in a table already, but no read sees them before the whole log object is in. Every change that reads
notice is one step without an await (rule 20).

Tables hold up to a bound of replayed rows each. One may hold rows that the state's SSTs hold, too: it goes when all of
its log positions are below ``log_start``. Until then it holds every newer version of its keys that the log had up to
its last position, so it can never show a row whose tombstone was compacted away.

Rule 20: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slate_async.codec.header import ObjectKind
from slate_async.engine.follow.tail import Position, start_of
from slate_async.engine.read.covered import ViewMaker
from slate_async.engine.read.hot import HotReads
from slate_async.engine.read.sources import Table
from slate_async.engine.read.sst_tables import SstTables
from slate_async.engine.read.view import ReadView
from slate_async.merge_operators.guarded import merging
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Offload
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.reader import READS_IN_PARALLEL
from slate_async.storage.log.rows import check_kind, check_room, decoded_rows, new_rows
from slate_async.storage.manifest.state import ManifestState, SeqTime
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.reader import SstReader

ROWS_PER_TURN = 512
"""Appending so many rows takes about a millisecond; then the loop gets a turn."""
MEMORY_SHARE = 8
"""A memtable takes one of so many parts of the memory for all, or one log object more. The oldest one nearly always
holds rows on both sides of ``log_start``, and stays; so SSTs hold no more than such a part of what is in memory."""
MANY_SSTS = 16
"""So many SSTs of the log make reads slow."""


@dataclass(slots=True, eq=False)
class _Replayed:
    """A memtable and the last log position that it holds whole."""

    table: Memtable
    last_position: int


@dataclass(frozen=True, slots=True)
class _LogSst:
    """A log object that is an SST. ``written``: its highest sequence number and its latest write time."""

    position: int
    table: Table
    written: SeqTime


@dataclass(slots=True)
class ReplayStats:
    """Counters of one reader."""

    objects: int = 0
    rows: int = 0
    nbytes: int = 0


class ReaderState:
    """See the module docstring.

    table_bytes: a memtable that has reached it, or a share of ``most_bytes``, is followed by another one
    most_bytes: what the memtables may take together
    ssts: opens the SSTs that a state names
    on_view: called with each new view, in the step that makes it the one reads get
    """

    def __init__(
        self,
        state: ManifestState,
        *,
        table_bytes: int,
        most_bytes: int,
        offload: Offload,
        ssts: SstOpener,
        yield_budget: YieldBudget,
        on_view: Callable[[ReadView], None] | None = None,
    ) -> None:
        self.manifest = state
        self.position = start_of(state)
        self.last_seq = state.last_seq
        self.stats = ReplayStats()
        self._table_bytes = min(table_bytes, most_bytes // MEMORY_SHARE)
        self._most_bytes = most_bytes
        self._offload = offload
        self._opener = ssts
        self._on_view = on_view
        self._frozen: list[_Replayed] = []  # oldest first
        self._active = _Replayed(Memtable(), state.log_start - 1)
        self._log_ssts: list[_LogSst] = []  # newest first
        self._sst_tables = SstTables(ssts)
        self._hot = HotReads(ssts.cache)
        self._views = ViewMaker(yield_budget, self._hot, merging(state.merge_operator))
        self.view = self._new_view()

    @property
    def memtables(self) -> list[Memtable]:
        """Tables of replayed rows, newest first."""
        return [self._active.table, *(frozen.table for frozen in reversed(self._frozen))]

    @property
    def range_deletes(self) -> int:
        """Range deletes that compaction has not used up, replayed or stored."""
        return len(self.manifest.range_deletes or ()) + sum(table.range_count for table in self.memtables)

    @property
    def log_sst_count(self) -> int:
        """SSTs that live in the log itself."""
        return len(self._log_ssts)

    @property
    def crowded(self) -> bool:
        """Whether the log has brought so much that a newer state should take some of it over."""
        return len(self._log_ssts) >= MANY_SSTS or self._held_bytes >= self._table_bytes

    @property
    def half_full(self) -> bool:
        """Whether a newer state should take some of the log over before more of it is replayed."""
        return self._held_bytes > self._most_bytes // 2

    @property
    def _held_bytes(self) -> int:
        return sum(table.nbytes for table in self.memtables)

    @property
    def samples(self) -> list[SeqTime]:
        """When rows of the log were written, by its SSTs, ascending."""
        return [sst.written for sst in reversed(self._log_ssts)]

    # ---- the log

    async def replay(self, objects: Sequence[LogObject], end: Position) -> None:
        """Add log objects that follow the position one after another; ``end`` is behind them.

        May be cancelled, and called again with what follows the position then. Raises `CorruptionError`, `MissingError`
        for a log object that is an SST and was deleted, `UnavailableError`."""
        if self.manifest.wal_enabled:
            for logged in objects:
                await self._load(logged)
        elif objects:
            await self._add_ssts(objects)
        self.position = end

    async def _load(self, logged: LogObject) -> None:
        """Append the object's rows to the active table, a turn of the loop between steps, then show them all."""
        active, decoding = self._active, self._opener.cache.decoding
        async with decoded_rows(logged, self._offload, decoding) as columns:
            rows = len(columns)
            fresh = new_rows(columns, max(self.last_seq, active.table.last_seq))
            check_room(logged, fresh, self._held_bytes, self._most_bytes)
            for start in range(0, len(fresh), ROWS_PER_TURN):
                if start:
                    await asyncio.sleep(0)
                active.table.extend(fresh.slice(start, min(start + ROWS_PER_TURN, len(fresh))))
        active.last_position = logged.id
        self.last_seq = max(self.last_seq, active.table.last_seq)
        self.position = Position(logged.id + 1, max(self.position.floor, logged.header.writer_epoch))
        self._count(logged, rows)
        full = active.table.nbytes >= self._table_bytes
        if full:
            self._rotate()
        if full or not self._views.knows(active.table):
            self.view = self._new_view()

    async def _add_ssts(self, objects: Sequence[LogObject]) -> None:
        """The objects are SSTs: load what says which rows they have, then show them all."""
        for logged in objects:
            check_kind(logged, ObjectKind.SST)
        readers = [self._opener.open_log(logged.key, logged.size, logged.header.object_id) for logged in objects]
        metas = await map_bounded(SstReader.load, readers, READS_IN_PARALLEL)
        for logged, reader, meta in zip(objects, readers, metas, strict=True):
            stats = meta.stats
            table = Table(stats.first_key, stats.last_key, reader, stats.max_expire_ms is not None)
            self._log_ssts.insert(0, _LogSst(logged.id, table, SeqTime(stats.max_seq, stats.max_create_ms)))
            self.last_seq = max(self.last_seq, stats.max_seq)
            self._count(logged, stats.rows)
        self.view = self._new_view()

    def _rotate(self) -> None:
        self._active.table.freeze()
        self._frozen.append(self._active)
        self._active = _Replayed(Memtable(), self._active.last_position)

    def _count(self, logged: LogObject, rows: int) -> None:
        self.stats.objects += 1
        self.stats.rows += rows
        self.stats.nbytes += logged.size

    # ---- the manifest

    def adopt(self, state: ManifestState) -> None:
        """Install a newer state. Rule 20: in one step, what is below its ``log_start`` leaves memory and the position
        moves up to it, with its ``log_floor``."""
        if state.version <= self.manifest.version:
            return
        before, self.manifest = self.manifest, state
        self.last_seq = max(self.last_seq, state.last_seq)
        start = start_of(state)
        self.position = Position(max(self.position.next_id, start.next_id), max(self.position.floor, start.floor))
        shown = (before.l0, before.runs, before.range_deletes) == (state.l0, state.runs, state.range_deletes)
        if self._purge(state.log_start) or not shown:
            self.view = self._new_view()

    def _purge(self, log_start: int) -> bool:
        """Drop what is below ``log_start``; whether anything went."""
        before = len(self._frozen), len(self._log_ssts), self._active
        self._frozen = [frozen for frozen in self._frozen if frozen.last_position >= log_start]
        self._log_ssts = [sst for sst in self._log_ssts if sst.position >= log_start]
        if self._active.last_position < log_start and len(self._active.table):
            self._active = _Replayed(Memtable(), log_start - 1)
        return before != (len(self._frozen), len(self._log_ssts), self._active)

    def end(self) -> None:
        """Nobody reads it any more."""
        self._hot.end()

    # ---- what reads see

    def _new_view(self) -> ReadView:
        l0, runs = self._sst_tables.levels(self.manifest)
        log = [sst.table for sst in self._log_ssts]
        view = self._views.view(self.memtables, [*log, *l0], runs, self.manifest.range_deletes)
        if self._on_view is not None:
            self._on_view(view)
        return view
