"""`Writer`: the live owner of one epoch. Takes rows in, sees them into the log and L0, and keeps what reads see.

All state changes are synchronous steps between awaits: applying a batch, acknowledging a segment, adopting a
manifest state. Reads take the current `ReadView`, an immutable picture that such a step replaces.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import anyio

from slate_async.engine.read.hot import HotReads
from slate_async.engine.read.sources import Table
from slate_async.engine.read.sst_tables import SstTables
from slate_async.engine.read.view import ReadView
from slate_async.engine.write.admission import Admission
from slate_async.engine.write.commit_group import CommitGroup
from slate_async.engine.write.completions import CompletionQueue
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.errors import closed_failure, refused, write_failure
from slate_async.engine.write.flush_policy import FlushPolicy
from slate_async.engine.write.ingest_applier import IngestApplier
from slate_async.engine.write.l0_flusher import LONG_LOG, L0Flusher
from slate_async.engine.write.l0_pressure import L0Pressure
from slate_async.engine.write.log_flusher import LogFlusher
from slate_async.engine.write.memtables import MemtableEntry, Segment
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.replay import Replayed
from slate_async.engine.write.sequencer import Sequencer
from slate_async.errors import SlateError, UnavailableError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.settings import Settings
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.log.protocol import Inherited, Log
from slate_async.storage.log.reader import READS_AT_ONCE
from slate_async.storage.log.window import FlushWindow
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState, SeqTime, l0_units
from slate_async.storage.sst.locate import SstOpener

logger = logging.getLogger(__name__)
SHORTEN_LIMIT_S = 20.0
"""A full memtable passes in it at 5 MB/s."""
LONG_SHARE = 2
"""More than this share of a full memtable is worth an L0 SST when the writer closes."""


class Writer:
    """See the module docstring. ``on_failure`` is called when a background task of ``supervisor`` fails."""

    suspended = False
    _loss_reported = False
    _failure: Callable[[], SlateError] | None = None

    def __init__(
        self,
        *,
        inherited: Inherited,
        replayed: Replayed,
        log: Log,
        driver: ManifestDriver,
        pins: WriterPins,
        store: ObjectStore,
        ssts: SstOpener,
        encoder: Encoder,
        runtime: Runtime,
        settings: Settings,
        supervisor: Supervisor,
        yield_budget: YieldBudget,
    ) -> None:
        self.yield_budget = yield_budget
        self.state, self.epoch = inherited.state, encoder.epoch
        self.pins, self._ssts = pins, ssts
        self._log, self._first_id = log, inherited.next_id
        self._supervisor = supervisor
        self.on_failure: Callable[[BaseException], None] = lambda cause: None
        self.memtables = replayed.memtables
        self.durable_seq = replayed.last_seq
        self._failed_groups: list[CommitGroup] = []
        self._log_ssts: list[tuple[int, Table]] = replayed.log_ssts
        newest = [(log_id, SeqTime(replayed.last_seq, replayed.last_tick_ms)) for log_id, _ in replayed.log_ssts[:1]]
        self._log_times: dict[int, SeqTime] = dict(newest)  # when SSTs of the log were written, ascending
        self._sst_tables = SstTables(ssts)
        self.admission = Admission(settings.max_unflushed_bytes, self._log_is_full)
        self._most_objects, self._table_bytes = settings.l0_flush_objects, settings.l0_sst_bytes
        self._read_s = replayed.request_s
        self.admission.force(sum(entry.table.nbytes for entry in (*self.memtables.frozen, self.memtables.active)))
        self.sequencer = Sequencer(
            memtables=self.memtables,
            admission=self.admission,
            last_seq=max(replayed.last_seq, inherited.state.skipped_end),
            tick_ms=replayed.last_tick_ms,
            most_bytes=settings.decode_memory_bytes,
            skip_bytes=settings.skip_memtable_bytes,
            flush_bytes=settings.flush_bytes,
            clock=runtime.clock,
            added=lambda: self.flusher.notify(),
            space_wanted=self._space_wanted,
        )
        self.pressure = L0Pressure(settings.l0_max_ssts, lambda: self.l0_count, runtime.clock)
        self.on_ssts_changed: Callable[[], None] = lambda: None
        self._completions = CompletionQueue(lambda: self.flusher.notify())
        self.flusher = LogFlusher(
            memtables=self.memtables,
            log=log,
            window=FlushWindow(inherited.next_id, settings.flush_parallelism),
            policy=_flush_policy(settings),
            early_ack=settings.ack == "flushed",
            encode=self._encode,
            acknowledged=self._acknowledged,
            published=self._published,
            slowdown=self._slowdown,
            completing=lambda: self._completions.busy,
            contact=driver.contact,
            runtime=runtime,
            supervisor=supervisor,
        )
        self.l0 = self._l0_flusher(encoder, driver, store, runtime, settings)
        self.ingests = self._ingest_applier(driver, runtime)
        self._encoder = encoder
        self.memtables.on_frozen = self._table_frozen
        self.memtables.on_group_full = self.flusher.notify
        self._hot = HotReads(ssts.cache)
        self.view = self._picture()

    def _l0_flusher(
        self, encoder: Encoder, driver: ManifestDriver, store: ObjectStore, runtime: Runtime, settings: Settings
    ) -> L0Flusher:
        return L0Flusher(
            epoch=self.epoch,
            memtables=self.memtables,
            encoder=encoder,
            driver=driver,
            store=store,
            runtime=runtime,
            pins=self.pins,
            state=lambda: self.state,
            published_end=lambda: self.flusher.published_end,
            last_tick_ms=lambda: self.sequencer.tick_ms,
            adopt=self.adopt,
            room=self.pressure.room,
            flush_objects=settings.l0_flush_objects,
            flush_interval_ms=settings.l0_flush_interval_ms,
        )

    def _ingest_applier(self, driver: ManifestDriver, runtime: Runtime) -> IngestApplier:
        return IngestApplier(
            epoch=self.epoch,
            memtables=self.memtables,
            sequencer=self.sequencer,
            flusher=self.flusher,
            l0=self.l0,
            pins=self.pins,
            driver=driver,
            state=lambda: self.state,
            adopt=self.adopt,
            log_ssts=lambda: self._log_ssts,
            room=self.pressure.room,
            clock=runtime.clock,
        )

    async def pin(self) -> None:
        """Before the first read: see that everything reads may meet is pinned. Raises `FencedError`."""
        async with self.pins.lock:
            self.adopt(await self.pins.pin(self.state))

    def start(self) -> None:
        """Start the background tasks."""
        self.flusher.start()
        if self.state.wal_enabled:
            if self.memtables.active.log_end - self.state.log_start >= LONG_LOG:
                self.memtables.freeze()
            self._supervisor.spawn("L0 flusher", self.l0.run())
            self.l0.notify()
        self.ingests.start()
        self._supervisor.spawn("ingest applier", self.ingests.run())

    @property
    def tasks(self) -> Supervisor:
        """Of all that ends with its epoch."""
        return self._supervisor

    # ---- writes

    def _space_wanted(self) -> None:
        """Somebody waits for room: if no table is on its way to L0, send the active one."""
        if self.state.wal_enabled and not self.memtables.frozen:
            self.memtables.freeze()
        self.flusher.notify()

    def _log_is_full(self) -> bool:
        """Whether the log has as many objects that are not in L0 as the next opening is to read at most."""
        return self.state.wal_enabled and self.memtables.log_objects >= self._most_objects

    def _table_frozen(self) -> None:
        self._show()
        self.l0.notify()

    async def flush(self, *, l0: bool = False, force: bool = True) -> None:
        """As `make_durable`. One flush says that an outage has cost writes that were not reported to their callers."""
        await self.make_durable(l0=l0, force=force)
        if self.lost_unreported and not self._loss_reported:
            self._loss_reported = True
            raise UnavailableError("writes were lost in an outage of the store", outcome="unknown")

    async def make_durable(self, *, l0: bool = False, force: bool = True) -> None:
        """Make everything written so far durable, now or, without ``force``, when it is due; with ``l0`` also move it
        out of the log into SSTs."""
        if self._failure is not None:
            raise self._failure()
        entry: MemtableEntry | None = None
        if l0 and self.state.wal_enabled:
            self.memtables.freeze()
            entry = self.memtables.frozen[-1] if self.memtables.frozen else None
        if force:
            self.flusher.force()
        newest = self.sequencer.newest_group
        if newest is not None:
            await newest.wait()
        if entry is not None:
            await entry.stored.wait()

    async def shorten_log(self) -> None:
        """Before closing: flush to L0 if the next opening could not read what is in the log in one go, fences among it.
        Not worth a failure, for all of it is durable."""
        nbytes = sum(entry.table.nbytes for entry in (*self.memtables.frozen, self.memtables.active))
        long = self.log_objects > LONG_LOG or nbytes > self._table_bytes // LONG_SHARE
        if not self.state.wal_enabled or not long or self.pressure.over > 0:
            return
        try:
            with anyio.move_on_after(SHORTEN_LIMIT_S):
                await self.make_durable(l0=True)
        except SlateError as error:
            logger.info("the log stays as long as it is: %s", error)

    async def log_extent(self) -> LogExtent:
        """The log up to everything acknowledged at the call, which any successor inherits from then on."""
        end = self.flusher.acknowledged_end
        await self.flusher.until_published(end)
        if self._failure is not None:
            raise self._failure()
        return LogExtent(end, self._log.ranges, (self.state.database_id, self.state.store_id))

    # ---- what the tasks report

    async def _encode(self, segment: Segment) -> bytes:
        if self.state.wal_enabled:
            return await self._encoder.segment(
                segment.entry.table,
                segment.start,
                segment.stop,
                nbytes=segment.nbytes,
                log_id=segment.log_id,
                manifest_version=self.state.version,
            )
        encoded = await self._encoder.sst(
            segment.entry.table, object_id=log_object_id(segment.log_id), manifest_version=self.state.version
        )
        segment.key_range = (encoded.stats.first_key, encoded.stats.last_key)
        return b"".join(encoded.buffers)

    def _acknowledged(self, segment: Segment) -> None:
        self.durable_seq = max(self.durable_seq, segment.last_seq)
        if not self.state.wal_enabled:
            self._promote(segment)
        segment.group.resolve(self._completions)

    def _promote(self, segment: Segment) -> None:
        """The log object *is* an SST: reads use it from now on, and the memtable goes. Unless it went already: what
        landed may be compacted, and the manifest that says so adopted, before it is acknowledged here."""
        if segment.entry not in self.memtables.frozen:
            return
        key = self._log.key(segment.log_id)
        reader = self._ssts.open_log(key, segment.object_bytes, log_object_id(segment.log_id))
        expires = segment.entry.table.expires
        self._log_ssts.insert(0, (segment.log_id, Table(*segment.key_range, reader, expires)))
        written_ms = segment.entry.table.time_of(segment.last_seq)
        self._log_times[segment.log_id] = SeqTime(segment.last_seq, written_ms)
        self.memtables.frozen.remove(segment.entry)
        self._show()
        segment.entry.stored.resolve()
        self.admission.release(segment.entry.table.nbytes)
        self.on_ssts_changed()

    def _slowdown(self) -> float:
        """Without a WAL a flush makes an SST, and waits longer the more of them wait for compaction."""
        return 0.0 if self.state.wal_enabled else self.pressure.slowdown()

    def _published(self, log_id: int) -> None:
        if self.admission.waiting:
            self._space_wanted()  # what was let in since the last table went may be all that holds the room
        self.l0.notify()

    async def follow(self, head: ManifestState) -> None:
        """Adopt ``head``, or a later state that pins its SSTs; when nothing is to be pinned, let idle pins go."""
        if head.version > self.state.version or self.pins.idle(head):
            await self._supervisor.run("follow the manifest", self._follow(head))

    async def _follow(self, head: ManifestState) -> None:
        async with self.pins.lock:
            if head.version < self.state.version:
                return
            state = await self.pins.pin(head)
            self.adopt(state)
            if state is head:
                await self.pins.release(head)

    def adopt(self, state: ManifestState) -> None:
        """Install a newer manifest state, which a pin keeps. Rule 20: in one step, rows below its ``log_start`` leave
        memory.

        Rows that it covers are durable, acknowledged or not: without a WAL a landed object may be compacted first,
        and then older versions of its keys are gone, without which a durable read below it would find nothing."""
        if state.version <= self.state.version:
            return
        self.state = state
        self.durable_seq = max(self.durable_seq, state.last_seq)
        if state.last_seq > self.sequencer.last_seq:
            self.sequencer.continue_after(state.last_seq)  # an ingest was applied
        gone = self.memtables.drop_below(state.log_start)
        self._log_ssts = [one for one in self._log_ssts if one[0] >= state.log_start]
        self._log_times = {log_id: one for log_id, one in self._log_times.items() if log_id >= state.log_start}
        self._show()
        self.pins.adopted(state)
        for entry in gone:
            entry.stored.resolve()
            self.admission.release(entry.table.nbytes)
        self.pressure.changed()
        self.on_ssts_changed()
        self.flusher.notify()
        self.ingests.notify()
        if self.admission.waiting:
            self._space_wanted()

    def refuse_writes(self, cause: BaseException | None) -> None:
        """No row is applied any more; writes that wait for room are out."""
        self._refuse(lambda: closed_failure(cause, "not_applied"))

    def _refuse(self, failure: Callable[[], SlateError]) -> None:
        self.sequencer.refuse(failure)
        self.pressure.lift()

    def fail(self, cause: BaseException | None) -> None:
        """The epoch has ended. Every waiter gets the outcome of its own write."""
        if self._failure is None:
            self._end(cause, lambda: closed_failure(cause, "not_applied"))
        self._hot.end()
        self.suspended = False

    def suspend(self, cause: BaseException) -> None:
        """The store is out of reach: the epoch has ended, but reads go on. In one step, writes that were never sent
        fail as not applied and leave memory, those that were sent fail as unknown and stay until `undo_above`."""
        self.suspended = True
        self._end(cause, lambda: refused(cause))
        self.memtables.drop_unsent()

    def undo_above(self, seq: int) -> None:
        """What was sent, and a takeover of the log did not find, leaves memory: rows above ``seq``."""
        self.memtables.drop_above(seq)

    async def stop(self) -> None:
        """End every task of it, wherever it stands."""
        await self._supervisor.close()

    def _end(self, cause: BaseException | None, failure: Callable[[], SlateError]) -> None:
        self._failure = failure
        self._refuse(failure)
        self.flusher.stop()
        sent = [segment.group for segment in self.flusher.issued_segments()]
        unsent = self.memtables.groups()
        for group in sent:
            group.fail(lambda: write_failure(cause, "unknown"))
        for group in unsent:
            group.fail(lambda: write_failure(cause, "not_applied"))
        self._failed_groups = [*sent, *unsent]
        for entry in (*self.memtables.frozen, self.memtables.active):
            entry.stored.fail(failure)

    def succeed(self, before: Writer) -> None:
        """Go on where ``before``, suspended, ended, which this writer's own replay continues.

        Numbers and times go on above all that were ever given, those of rows included that did not get in."""
        self.pins.succeed(before.view)
        self._failed_groups = [group for group in before._failed_groups if group.unreported]
        self.sequencer.succeed(before.sequencer)
        before.undo_above(self.durable_seq)
        before._hot.end()
        self.flusher.stats, self.l0.stats, self.ingests.stats = (
            before.flusher.stats,
            before.l0.stats,
            before.ingests.stats,
        )
        self.pressure.succeed(before.pressure)
        self.admission.stalls += before.admission.stalls

    @property
    def lost_unreported(self) -> bool:
        """Whether writes failed whose callers did not wait, and so do not know."""
        return any(group.unreported for group in self._failed_groups)

    # ---- what reads see

    @property
    def log_objects(self) -> int:
        """Positions of the log that the next opening would look at, fences among them."""
        return max(0, self.flusher.acknowledged_end + 1 - self.state.log_start)

    @property
    def replay_ms(self) -> int | None:
        """About how long it would: as if reading an object took as long as writing one; ``None``: not known yet."""
        request_s = self.flusher.stats.put_s or self._read_s
        return None if request_s is None else round(1000 * request_s * math.ceil(self.log_objects / READS_AT_ONCE))

    @property
    def log_sst_count(self) -> int:
        """SSTs that live in the log itself."""
        return len(self._log_ssts)

    @property
    def last_log_key(self) -> str | None:
        """Where the last log object is that this epoch put and that is acknowledged, its fence if there is no other."""
        end = self.flusher.acknowledged_end
        return None if self._log.ranges and end < self._first_id else self._log.key(end)

    @property
    def oldest_unacknowledged_ms(self) -> int | None:
        """When the oldest write was made that waits to be acknowledged, milliseconds since the epoch."""
        if self._failure is not None:
            return None
        issued = self.flusher.issued_segments()
        return issued[0].written_ms if issued else self.memtables.oldest_pending_ms

    @property
    def samples(self) -> list[SeqTime]:
        """When rows of the log's SSTs were written, ascending; of those inherited, the newest only."""
        return list(self._log_times.values())

    @property
    def l0_count(self) -> int:
        """SSTs that no compaction has taken yet; those of one ingest count as one."""
        return len(l0_units(self.state.l0)) + len(self._log_ssts)

    def _show(self) -> None:
        self.pins.retire(self.view)
        self.view = self._picture()

    def _picture(self) -> ReadView:
        l0, runs = self._sst_tables.levels(self.state)
        log = [table for _, table in self._log_ssts]
        return ReadView(self.memtables.newest_first(), [*log, *l0], runs, yield_budget=self.yield_budget, hot=self._hot)


def _flush_policy(settings: Settings) -> FlushPolicy:
    gap = 0.0 if settings.max_flushes_per_second is None else 1 / settings.max_flushes_per_second
    return FlushPolicy(settings.flush_interval_ms / 1000, settings.flush_bytes, gap, settings.flush_at_once)
