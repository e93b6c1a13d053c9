"""`Writer`: the live owner of one epoch. Applies writes, flushes them to the log and to L0, and publishes the view that
reads use.

Its parts meet in three ways: they read facts in `WriterState`, call the capabilities that they are given, and raise
`WriterSignals`, which `Writer` connects.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from slate_async.engine.checkpoint.manage import Scope
from slate_async.engine.write.admission import Admission
from slate_async.engine.write.commit_group import CommitGroup
from slate_async.engine.write.compactor_role import CompactorRole
from slate_async.engine.write.completions import CompletionQueue
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.errors import about_all_written, closed_failure, refused, write_failure
from slate_async.engine.write.flush_policy import FlushPolicy
from slate_async.engine.write.ingest_applier import IngestApplier
from slate_async.engine.write.l0_flusher import LONG_LOG, L0Flusher
from slate_async.engine.write.l0_pressure import L0Pressure
from slate_async.engine.write.log_flusher import LogFlusher
from slate_async.engine.write.memtables import MemtableEntry, Segment
from slate_async.engine.write.open_transactions import OpenTransactions
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.range_rows import allow_range_deletes
from slate_async.engine.write.replay import Replayed
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.state import WriterState
from slate_async.errors import SlateError, UnavailableError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.settings import Settings
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.log.protocol import Inherited, Log
from slate_async.storage.log.reader import READS_AT_ONCE
from slate_async.storage.log.window import FlushWindow
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.locate import SstOpener

logger = logging.getLogger(__name__)
SHORTEN_LIMIT_S = 20.0
"""A full memtable passes in it at 5 MB/s."""
LONG_SHARE = 2
"""More than this share of a full memtable is worth an L0 SST when the writer closes."""


@dataclass(frozen=True, slots=True)
class WriterHost:
    """The open database that a writer works for: its listeners of the writer's signals of these names."""

    failed: Callable[[BaseException], None]
    acknowledged: Sequence[Callable[[Segment], None]]
    ssts_changed: Sequence[Callable[[], None]]
    polled: Sequence[Callable[[], None]]


class Writer:
    """See the module docstring. Each part owns one thing: `state` the facts, `sequencer` the numbers, `flusher` the
    log, `l0` and `pressure` what becomes of memtables, `ingests`, `transactions`, `admission` and `pins`.
    `compactor_role` says which process compacts, as far as known."""

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
        self.epoch, self.pins = encoder.epoch, pins
        self.signals = signals = replayed.memtables.signals
        self._log, self._first_id = log, inherited.next_id
        self._supervisor = supervisor
        self._driver, self._name = driver, driver.name
        self._failed_groups: list[CommitGroup] = []
        self._table_bytes = settings.l0_sst_bytes
        self._read_s = replayed.request_s
        self.state = WriterState(
            epoch=encoder.epoch,
            inherited=inherited,
            replayed=replayed,
            log=log,
            ssts=ssts,
            pins=pins,
            signals=signals,
            yield_budget=yield_budget,
            most_objects=settings.l0_flush_objects,
        )
        self.admission = Admission(settings.max_unflushed_bytes, self.state.log_is_full)
        self.admission.force(sum(entry.table.nbytes for entry in self.state.memtables.entries()))
        self.sequencer = self._sequencer(replayed, settings, runtime)
        self.compactor_role = CompactorRole(driver, self.state, settings.auto_compaction)
        self.pressure = L0Pressure(driver.name, settings.l0_max_ssts, self.state, self.compactor_role, runtime.clock)
        self.flusher = LogFlusher(
            state=self.state,
            log=log,
            window=FlushWindow(inherited.next_id, settings.flush_parallelism),
            policy=_flush_policy(settings),
            early_ack=settings.ack == "flushed",
            encoder=encoder,
            completions=CompletionQueue(signals.completed),
            pressure=self.pressure,
            signals=signals,
            contact=driver.contact,
            runtime=runtime,
            supervisor=supervisor,
        )
        self.l0 = L0Flusher(
            state=self.state,
            written=self.sequencer,
            encoder=encoder,
            driver=driver,
            store=store,
            runtime=runtime,
            pins=pins,
            pressure=self.pressure,
            flush_objects=settings.l0_flush_objects,
            flush_interval_ms=settings.l0_flush_interval_ms,
        )
        self.ingests = IngestApplier(
            state=self.state,
            sequencer=self.sequencer,
            flusher=self.flusher,
            l0=self.l0,
            pins=pins,
            driver=driver,
            pressure=self.pressure,
            clock=runtime.clock,
            skew_ms=settings.gc_clock_skew_ms,
        )
        self.transactions = self._transactions(settings, runtime)
        self._connect()

    def _sequencer(self, replayed: Replayed, settings: Settings, runtime: Runtime) -> Sequencer:
        return Sequencer(
            state=self.state,
            admission=self.admission,
            last_seq=max(replayed.last_seq, self.state.manifest.skipped_end),
            tick_ms=replayed.last_tick_ms,
            most_bytes=settings.decode_memory_bytes,
            most_batch_bytes=settings.replay_memory_bytes // 2,
            skip_bytes=settings.skip_memtable_bytes,
            flush_bytes=settings.flush_bytes,
            clock=runtime.clock,
            signals=self.signals,
        )

    def _transactions(self, settings: Settings, runtime: Runtime) -> OpenTransactions:
        return OpenTransactions(
            state=self.state,
            sequencer=self.sequencer,
            clock=runtime.clock,
            yield_budget=self.yield_budget,
            lifetime_ms=settings.transaction_lifetime_ms,
            memory_bytes=settings.transaction_memory_bytes,
        )

    # ---- wiring

    def _connect(self) -> None:
        """Connect the listeners of each signal, in this order; `start` connects the open database."""
        signals = self.signals
        signals.connect(
            rows_added=[self.flusher.notify],
            space_wanted=[self.state.freeze_if_idle, self.flusher.notify],
            memtable_cut=[self.sequencer.end_lease, self.transactions.follow_cut],
            memtable_frozen=[self.state.show, self.l0.notify],
            group_full=[self.flusher.notify],
            completed=[self.flusher.notify],
            published=[self.sequencer.reclaim, self.l0.notify],
            released=[self.admission.release],
            adopted=[
                self.sequencer.adopted,
                self.transactions.adopted,
                self.pressure.changed,
                signals.ssts_changed,
                self.flusher.notify,
                self.ingests.notify,
                self.sequencer.reclaim,
            ],
        )

    def start(self, host: WriterHost) -> None:
        """Start the background tasks, for ``host``."""
        self.signals.connect(
            acknowledged=host.acknowledged, ssts_changed=host.ssts_changed, polled=host.polled, failed=[host.failed]
        )
        self.flusher.start()
        manifest, memtables = self.state.manifest, self.state.memtables
        if manifest.wal_enabled:
            if memtables.active.log_end - manifest.log_start >= LONG_LOG:
                memtables.freeze()
            self._supervisor.spawn("L0 flusher", self.l0.run())
            self.l0.notify()
        self.ingests.start()
        self._supervisor.spawn("ingest applier", self.ingests.run())

    async def pin(self) -> None:
        """Before the first read: see that everything reads may meet is pinned. Raises `FencedError`."""
        async with self.pins.lock:
            self.state.adopt(await self.pins.pin(self.state.manifest))

    @property
    def tasks(self) -> Supervisor:
        """Of all that ends with its epoch."""
        return self._supervisor

    # ---- writes

    async def allow_range_deletes(self, count: int) -> Callable[[], None]:
        """See `allow_range_deletes`: ``count`` of them are about to be applied."""
        return await allow_range_deletes(self.state, self.pins, self._driver, count)

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
        if l0 and self.state.manifest.wal_enabled:
            self.state.memtables.freeze()
            entry = self.state.memtables.frozen[-1] if self.state.memtables.frozen else None
        if force:
            self.flusher.force()
        newest = self.sequencer.newest_group
        if newest is not None:
            await newest.wait()
        if entry is not None:
            await entry.stored.wait()

    async def finish(self, name: str, close_feeds: Callable[[], Awaitable[None]]) -> None:
        """The last work of the database ``name`` before it is closed on purpose, in this order: make everything
        durable, which may raise; shorten the log; close the feeds; let the pins go."""
        with about_all_written():
            await self.make_durable()
        await self.shorten_log()
        await close_feeds()
        await self.pins.close_at_the_end(self.state.published_end, name)

    async def shorten_log(self) -> None:
        """Before closing: flush to L0 if the next opening could not read what is in the log in one go, fences among it.
        Not worth a failure, for all of it is durable."""
        nbytes = sum(entry.table.nbytes for entry in self.state.memtables.entries())
        long = self.state.log_objects > LONG_LOG or nbytes > self._table_bytes // LONG_SHARE
        if not self.state.manifest.wal_enabled or not long or self.pressure.over > 0:
            return
        try:
            with anyio.move_on_after(SHORTEN_LIMIT_S):
                await self.make_durable(l0=True)
        except SlateError as error:
            logger.info("%s: closing leaves the log unflushed, so the next opening replays it: %s", self._name, error)

    async def log_extent(self, scope: Scope, force_flush: bool) -> LogExtent:
        """The log up to everything acknowledged at the call, which any successor inherits from then on; with scope
        ``"all"`` after a flush of everything written, forced or when it is due. What a new checkpoint keeps."""
        if scope == "all":
            await self.flush(force=force_flush)
        end = self.state.acknowledged_end
        await self.flusher.until_published(end)
        if self._failure is not None:
            raise self._failure()
        return LogExtent(end, self._log.ranges, (self.state.manifest.database_id, self.state.manifest.store_id))

    # ---- the manifest

    async def follow(self, head: ManifestState) -> None:
        """Adopt ``head``, or a later state that pins its SSTs; when nothing is to be pinned, let idle pins go."""
        if head.version > self.state.manifest.version or self.pins.idle(head):
            await self._supervisor.run("follow the manifest", self._follow(head))

    async def _follow(self, head: ManifestState) -> None:
        async with self.pins.lock:
            if head.version < self.state.manifest.version:
                return
            state = await self.pins.pin(head)
            self.state.adopt(state)
            if state is head:
                await self.pins.release(head)

    def refuse_writes(self, cause: BaseException | None) -> None:
        """No row is applied any more; writes that wait for room are out."""
        self._refuse(lambda: closed_failure(self._name, cause, "not_applied"))

    def _refuse(self, failure: Callable[[], SlateError]) -> None:
        self.sequencer.refuse(failure)
        self.pressure.lift()

    def fail(self, cause: BaseException | None) -> None:
        """The epoch has ended. Every waiter gets the outcome of its own write."""
        if self._failure is None:
            self._end(cause, lambda: closed_failure(self._name, cause, "not_applied"))
        self.state.hot.end()
        self.suspended = False

    def suspend(self, cause: BaseException) -> None:
        """The store is out of reach: the epoch has ended, but reads go on. In one step, writes that were never sent
        fail as not applied and leave memory, those that were sent fail as unknown and stay until `undo_above`."""
        self.suspended = True
        self._end(cause, lambda: refused(cause))
        self.state.memtables.drop_unsent()
        self.state.undone()

    def undo_above(self, seq: int) -> None:
        """What was sent, and a takeover of the log did not find, leaves memory: rows above ``seq``."""
        self.state.memtables.drop_above(seq)
        self.state.undone()

    async def stop(self) -> None:
        """End every task of it, wherever it stands."""
        await self._supervisor.close()

    def _end(self, cause: BaseException | None, failure: Callable[[], SlateError]) -> None:
        self._failure = failure
        self._refuse(failure)
        self.flusher.stop()
        sent = [segment.group for segment in self.flusher.issued_segments()]
        unsent = self.state.memtables.groups()
        for group in sent:
            group.fail(lambda: write_failure(cause, "unknown"))
        for group in unsent:
            group.fail(lambda: write_failure(cause, "not_applied"))
        self._failed_groups = [*sent, *unsent]
        for entry in self.state.memtables.entries():
            entry.stored.fail(failure)

    def succeed(self, before: Writer) -> None:
        """Go on where ``before``, suspended, ended, which this writer's own replay continues.

        Numbers and times go on above all that were ever given, those of rows included that did not get in."""
        self.pins.succeed(before.state.view)
        self._failed_groups = [group for group in before._failed_groups if group.unreported]
        self.sequencer.succeed(before.sequencer)
        before.undo_above(self.state.durable_seq)
        before.state.hot.end()
        self.flusher.stats, self.l0.stats, self.ingests.stats = (
            before.flusher.stats,
            before.l0.stats,
            before.ingests.stats,
        )
        self.transactions.succeed(before.transactions)
        self.pressure.succeed(before.pressure)
        self.admission.stalls += before.admission.stalls

    @property
    def lost_unreported(self) -> bool:
        """Whether writes failed whose callers did not wait, and so do not know."""
        return any(group.unreported for group in self._failed_groups)

    # ---- facts for people

    @property
    def replay_ms(self) -> int | None:
        """About how long the next opening would read the log: as if reading an object took as long as writing one;
        ``None``: not known yet."""
        request_s = self.flusher.stats.put_s or self._read_s
        if request_s is None:
            return None
        return round(1000 * request_s * math.ceil(self.state.log_objects / READS_AT_ONCE))

    @property
    def last_log_key(self) -> str | None:
        """Where the last log object is that this epoch put and that is acknowledged, its fence if there is no other."""
        end = self.state.acknowledged_end
        return None if self._log.ranges and end < self._first_id else self._log.key(end)

    @property
    def oldest_unacknowledged_ms(self) -> int | None:
        """When the oldest write was made that waits to be acknowledged, milliseconds since the epoch."""
        if self._failure is not None:
            return None
        issued = self.flusher.issued_segments()
        return issued[0].written_ms if issued else self.state.memtables.oldest_pending_ms


def _flush_policy(settings: Settings) -> FlushPolicy:
    gap = 0.0 if settings.max_flushes_per_second is None else 1 / settings.max_flushes_per_second
    return FlushPolicy(settings.flush_interval_ms / 1000, settings.flush_bytes, gap, settings.flush_at_once)
