"""Rule 30: the writer applies pending ingests, for only it orders data.

Ordering rule: writes wait -> everything written before is durable -> one manifest edit moves it out of the log and adds
the ingests above it, under the next sequence numbers -> writes go on, above those -> the ingests are reported, since
this writer's own reads see them by then. So an ingest takes its place among the writes for all readers at once: no row
above it is seen, nor in the log, before the edit that applies it; log objects made later carry that edit's manifest
version, or a later one; and reads from an older view go on without it.

What is in memory is flushed before writes begin to wait, so that they wait for little: the last log object, a small SST
(without a WAL none: the log's objects are SSTs, and stand in L0 as they are), and the commit.

Rule 30: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from slate_async.engine.read.sources import Table
from slate_async.engine.write.l0_flusher import L0Flusher
from slate_async.engine.write.l0_pressure import L0Pressure
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.state import WriterState
from slate_async.errors import ConflictError, UnavailableError
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Clock
from slate_async.storage.log.reader import READS_IN_PARALLEL
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.apply_ingests import ApplyIngests, ShowIngests
from slate_async.storage.manifest.edits.ingests import pending_ingests, unreported_ingests
from slate_async.storage.manifest.edits.logged import LogIntoL0
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.state import EXPIRED, SstRef
from slate_async.storage.sst.reference import stored_sst_ref

logger = logging.getLogger(__name__)
SMALL_BYTES = 1 << 20
"""So much in memory is flushed while writes wait."""
PASSES = 3
"""How often what is in memory is flushed first: a busy writer never has little there."""
REPORT_AGAIN_S = 1.0
EXPECTED_S = 10.0
"""For so long after an ingest the next one is expected: streams bring one after the other."""


class Progress(Protocol):
    """What of the log flusher is needed here."""

    def force(self) -> None:
        """Flush now."""

    async def until_published(self, log_id: int) -> None:
        """Wait for it."""


@dataclass(slots=True)
class IngestStats:
    """Counters of one writer."""

    applied: int = 0
    expired: int = 0
    rows: int = 0
    paused_seconds: float = 0.0


class IngestApplier:
    """One task. ``pressure`` lets it wait until L0 may have one more source; ``skew_ms``: how far clocks of drivers may
    be behind this writer's."""

    def __init__(
        self,
        *,
        state: WriterState,
        sequencer: Sequencer,
        flusher: Progress,
        l0: L0Flusher,
        pins: WriterPins,
        driver: ManifestDriver,
        pressure: L0Pressure,
        clock: Clock,
        skew_ms: int,
    ) -> None:
        self._state = state
        self._memtables = state.memtables
        self._sequencer = sequencer
        self._flusher = flusher
        self._l0 = l0
        self._pins = pins
        self._driver = driver
        self._pressure = pressure
        self._clock = clock
        self._skew_ms = skew_ms
        self._wake = asyncio.Event()
        self._opening = ExitStack()
        self._paused = False
        self._refs: dict[int, SstRef] = {}
        self._applied_at: float | None = None
        self.stats = IngestStats()

    def start(self) -> None:
        """What waits when the writer opens comes before its first row: until then writes wait."""
        if pending_ingests(self._state.manifest):
            self._opening.enter_context(self._sequencer.paused())
            self._paused = True
        self.notify()

    def notify(self) -> None:
        """A state was adopted."""
        if pending_ingests(self._state.manifest) or unreported_ingests(self._state.manifest):
            self._wake.set()

    def expects_more(self) -> bool:
        """Whether an ingest was applied not long ago."""
        return self._applied_at is not None and self._clock.monotonic() - self._applied_at < EXPECTED_S

    async def run(self) -> None:
        """Apply what is pending, for ever."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while pending_ingests(self._state.manifest):
                    await self._apply()
                self._go_on()
                if unreported_ingests(self._state.manifest):
                    await self._report()
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """What waited when the writer opened is in."""
        self._opening.close()
        self._paused = False

    async def _report(self) -> None:
        """Only tasks that wait for the ingests depend on it, so a store that does not answer is asked again, later."""
        try:
            await self._driver.commit(ShowIngests(self._state.epoch))
        except UnavailableError as error:
            logger.warning(
                "%s: applied ingests are not reported as applied yet, trying again: %s", self._driver.name, error
            )
            await self._clock.sleep(REPORT_AGAIN_S)
            self._wake.set()

    async def _apply(self) -> None:
        await self._pressure.room()
        await self._lighten()
        began = self._clock.monotonic()
        with nullcontext() if self._paused else self._sequencer.paused():
            await self._make_durable()
            if self._state.manifest.wal_enabled:
                await self._with_flush()
            else:
                await self._commit(self._edit(), log=True)
        self.stats.paused_seconds += self._clock.monotonic() - began

    async def _lighten(self) -> None:
        """Leave little to do while writes wait."""
        if not self._state.manifest.wal_enabled:
            await self._learn_refs()
            return
        for _ in range(PASSES):
            if not self._memtables.frozen and self._memtables.active.table.nbytes < SMALL_BYTES:
                return
            self._memtables.freeze()
            self._flusher.force()
            if self._memtables.frozen:
                await self._memtables.frozen[-1].stored.wait()

    async def _make_durable(self) -> None:
        """See everything written so far into the log for good."""
        if self._state.manifest.wal_enabled:
            self._memtables.freeze()
        self._flusher.force()
        newest = self._sequencer.newest_group
        if newest is not None:
            await newest.wait()
        await self._flusher.until_published(self._state.acknowledged_end)

    async def _with_flush(self) -> None:
        async with self._l0.turn:
            entries = list(self._memtables.frozen)
            for entry in entries[:-1]:
                await self._l0.flush(entry, self._l0.commit)
            if entries:
                await self._l0.flush(entries[-1], self._flushing)
            else:
                await self._commit(self._edit())

    async def _flushing(self, flush: AddL0) -> None:
        await self._commit(replace(self._edit(), flush=flush))

    def _edit(self) -> ApplyIngests:
        ids = tuple(ingest.id for ingest in pending_ingests(self._state.manifest))
        return ApplyIngests(
            self._state.epoch,
            ids,
            self._sequencer.last_seq + 1,
            self._sequencer.tick(),
            log_floor=self._state.epoch,
            judged_ms=self._clock.now_ms() - self._skew_ms,
        )

    async def _commit(self, edit: ApplyIngests, *, log: bool = False) -> None:
        """Commit and adopt. What a compactor took of the log meanwhile is adopted, and the next turn applies."""
        async with self._pins.lock:
            if log:
                edit = replace(edit, log=await self._log_into_l0())
            before = self._state.manifest.ingest_seq
            try:
                state = await self._driver.commit(replace(edit, pin=self._pins.for_flush()))
            except ConflictError as conflict:
                if edit.log is None:
                    raise
                logger.info("%s: applying ingests again: %s", self._driver.name, conflict)
                state = await self._driver.load() or self._state.manifest
            self._state.adopt(await self._pins.pin(state))
        self._count(edit, before)

    def _count(self, edit: ApplyIngests, before: int) -> None:
        for record in self._state.manifest.ingest_records:
            if record.id in edit.ids and record.outcome == EXPIRED:
                self.stats.expired += 1
                logger.warning("ingest %s was not applied: its driver has not renewed its lease", record.id)
            if record.id in edit.ids and record.seq > before:
                self._applied_at = self._clock.monotonic()
                self.stats.applied += 1
                self.stats.rows += record.rows
                logger.info(
                    "%s: ingest %s was applied: %d rows as sequence number %d",
                    self._driver.name,
                    record.id,
                    record.rows,
                    record.seq,
                )

    # ---- without a WAL

    async def _log_into_l0(self) -> LogIntoL0 | None:
        start, end = self._state.manifest.log_start, self._state.published_end
        await self._learn_refs()
        refs = tuple(self._refs[log_id] for log_id, _ in self._state.log_ssts)
        return LogIntoL0(start, end, refs) if refs else None

    async def _learn_refs(self) -> None:
        """How the manifest is to refer to each SST of the log."""
        there = list(self._state.log_ssts)
        self._refs = {log_id: self._refs[log_id] for log_id, _ in there if log_id in self._refs}
        new = [(log_id, table) for log_id, table in there if log_id not in self._refs]
        if new:
            self._refs.update(await log_references(new))


async def log_references(ssts: Sequence[tuple[int, Table]]) -> list[tuple[int, SstRef]]:
    """How the manifest is to refer to SSTs of the log, given with their positions."""
    return await map_bounded(_reference, ssts, READS_IN_PARALLEL)


async def _reference(logged: tuple[int, Table]) -> tuple[int, SstRef]:
    log_id, table = logged
    source = table.source
    meta = await source.load()
    footer = meta.footer
    return log_id, stored_sst_ref(source.key, footer.object_id, source.size, meta.stats, footer.writer_epoch)
