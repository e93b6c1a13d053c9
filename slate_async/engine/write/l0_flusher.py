"""Frozen memtables become L0 SSTs: build, upload, then one manifest edit that moves the rows out of the log.

Ordering rule (rules 2 and 19): a flush covers whole, published log positions only, oldest table first, and applies
only if the log still starts where it did. A flush refused by ``sst_floor`` is redone under a new name.

Rules 2, 19, 25 and 34: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import anyio

from slate_async.engine.read.folding import Folding
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.l0_pressure import L0Pressure
from slate_async.engine.write.memtables import MemtableEntry
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.state import WriterState
from slate_async.errors import ConflictError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.log.reader import READS_AT_ONCE
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.history import kept_above
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reference import sst_ref

logger = logging.getLogger(__name__)
REDO_LIMIT = 5
LONG_LOG = READS_AT_ONCE
"""An opening that walked over so many log positions leaves the next one none of them; fewer are read in one go."""


@dataclass(slots=True)
class L0Stats:
    """Counters of one writer."""

    ssts: int = 0
    rows: int = 0
    bytes: int = 0


class WriteTime(Protocol):
    """What of the sequencer is needed here."""

    @property
    def tick_ms(self) -> int:
        """When the newest row was written, milliseconds since the epoch."""


class L0Flusher:
    """One task. ``turn``: the task that flushes holds it.

    written: when the newest row was written
    pressure: lets it wait until L0 may have one more SST"""

    def __init__(
        self,
        *,
        state: WriterState,
        written: WriteTime,
        encoder: Encoder,
        driver: ManifestDriver,
        store: ObjectStore,
        runtime: Runtime,
        pins: WriterPins,
        pressure: L0Pressure,
        flush_objects: int,
        flush_interval_ms: int,
    ) -> None:
        self._state = state
        self._memtables = state.memtables
        self._written = written
        self._encoder = encoder
        self._driver = driver
        self._store = store
        self._runtime = runtime
        self._pins = pins
        self._pressure = pressure
        self._due_objects = max(1, flush_objects * 3 // 4)
        self._interval_s = flush_interval_ms / 1000
        self._wake = asyncio.Event()
        self.turn = asyncio.Lock()
        self.stats = L0Stats()

    def notify(self) -> None:
        """A table was frozen, or log positions were published."""
        self._wake.set()

    async def run(self) -> None:
        """Flush tables as they become ready, for ever."""
        while True:
            await self._until_woken()
            while self._next() is not None:
                await self._pressure.room()
                async with self.turn:
                    await self._flush_ready()
                await asyncio.sleep(0)  # what was adopted was a step of its own

    async def _flush_ready(self) -> None:
        """Flush the oldest table if it is ready. A call of its own: what a task that waits has in its frame stays in
        memory, and this is a table."""
        if (entry := self._ready()) is not None:
            await self.flush(entry, self.commit)

    async def _until_woken(self) -> None:
        """Wait for a notice, or until the active table has become old."""
        with anyio.move_on_after(None if self._memtables.frozen else self._young_for()):
            await self._wake.wait()
        self._wake.clear()

    def _next(self) -> MemtableEntry | None:
        """The table to flush now. The active one is frozen when its objects have become many or old, unless another
        one waits: what comes meanwhile may as well go with it."""
        active = self._memtables.active
        if not self._memtables.frozen and (active.objects >= self._due_objects or self._young_for() == 0):
            self._memtables.freeze()
        return self._ready()

    def _young_for(self) -> float | None:
        """Seconds until the active table is old enough to go; ``None``: that does not matter."""
        active = self._memtables.active
        if not active.objects or not self._interval_s:
            return None
        now = self._runtime.clock.monotonic()
        if active.aging_since is None:
            active.aging_since = now
        return max(0.0, active.aging_since + self._interval_s - now)

    def _ready(self) -> MemtableEntry | None:
        """The oldest table, once every row of it is acknowledged (rule 19)."""
        if not self._memtables.frozen:
            return None
        entry = self._memtables.frozen[0]
        if entry.queued_segments or not self._covered(entry):
            return None
        return entry

    def _covered(self, entry: MemtableEntry) -> bool:
        return entry.log_end <= self._state.published_end

    async def flush(self, entry: MemtableEntry, commit: Callable[[AddL0], Awaitable[None]]) -> None:
        """Flush ``entry``, the oldest table and ready, and have ``commit`` see the edit in and adopted."""
        for _ in range(REDO_LIMIT):
            base = self._newest_version()
            object_id = self._runtime.ids.ulid(self._runtime.clock.now_ms())
            location = sst_key(base, object_id)
            folding = self._folding(entry)
            encoded = await self._encoder.sst(entry.table, object_id=object_id, manifest_version=base, folding=folding)
            await self._store.put(location, encoded.buffers, metadata={"slate-epoch": str(self._state.epoch)})
            try:
                edit = self._edit(entry, base, location, object_id, encoded)
                await commit(edit if folding is None else replace(edit, folded_seq=folding.folded_seq))
            except ConflictError as conflict:
                logger.warning("%s: writing %s again under a new name: %s", self._driver.name, location, conflict)
                continue
            self.stats.ssts += 1
            self.stats.rows += encoded.stats.rows
            self.stats.bytes += encoded.size
            return
        raise ConflictError(
            f"{self._driver.name}: each of {REDO_LIMIT} uploads of an L0 SST took longer than garbage collectors wait;"
            " raise gc_min_age_ms where they run, and open the database again: nothing acknowledged is lost",
            outcome="not_applied",
        )

    def _folding(self, entry: MemtableEntry) -> Folding | None:
        """What folds the operands of ``entry``. All of them stay where a range delete may lie between two of them."""
        merging = self._state.merging
        if merging is None or entry.table.range_count:
            return None
        kept = kept_above(self._state.manifest, self._runtime.clock.now_ms(), entry.table.last_seq)
        return Folding(merging, keep_above=kept, expired_at_ms=0, bottom=False)

    def _newest_version(self) -> int:
        """The version a name begins with: after a refusal that of the head it was judged on, adopted or not."""
        head = self._driver.head
        return self._state.manifest.version if head is None else head.version

    async def commit(self, edit: AddL0) -> None:
        """Commit ``edit``, and adopt what it made."""
        async with self._pins.lock:
            if edit.sst is not None:
                edit = replace(edit, pin=self._pins.for_flush())
            state = await self._driver.commit(edit)
            self._state.adopt(await self._pins.pin(state))

    def _edit(self, entry: MemtableEntry, base: int, location: str, object_id: bytes, encoded: EncodedSst) -> AddL0:
        return AddL0(
            epoch=self._state.epoch,
            from_position=self._state.manifest.log_start,
            to_position=entry.log_end,
            sst=sst_ref(location, object_id, encoded, self._state.epoch),
            last_seq=encoded.stats.max_seq,
            last_tick_ms=self._written.tick_ms,
            log_floor=entry.log_floor,
            base_version=base,
            last_write_ms=encoded.stats.max_create_ms,
            log_end=self._state.published_end,
            range_deletes=tuple(entry.table.range_deletes()),
        )
