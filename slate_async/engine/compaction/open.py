"""Putting a compactor together: for a process of its own, or to live beside a writer. Wiring only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from metastores.protocol import Register
from slate_async.codec.compression import Compression
from slate_async.engine.compaction.compactor import Compactor
from slate_async.engine.compaction.embedded import BesideWriter, EmbeddedCompactor
from slate_async.engine.compaction.executor import Executor, MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.job import CompactionContext
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.engine.compaction.log_source import LogSource
from slate_async.engine.compaction.own_process import OwnProcess
from slate_async.engine.compaction.progress import CompactorStats, Listeners
from slate_async.engine.context import DatabaseContext, close_metadata
from slate_async.engine.create import follow_database
from slate_async.engine.write.open import Opened
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.limited_offload import LimitedOffload
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.log.reader import LogReader
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.ownership import check_ownership, proved_head
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.sst.reader import SstReader

logger = logging.getLogger(__name__)
THREADS_BESIDE_A_WRITER = 1
"""Worker threads that compute for compactions at a time: each more makes the writer's loop wait longer for its turn."""


@dataclass(frozen=True, slots=True)
class OpenedCompactor:
    """A claimed compactor, its task not yet started."""

    compactor: Compactor
    driver: ManifestDriver
    register: Register | None
    settings: Settings
    stats: CompactorStats
    listeners: Listeners


async def open_compaction(
    context: DatabaseContext, supervisor: Supervisor, *, auto_compaction: bool, executor: Executor | None = None
) -> OpenedCompactor:
    """See `Environment.open_compactor`."""
    Compression.of(context.settings.compression)  # an extra that is missing is an error now
    driver = context.driver(supervisor)
    register: Register | None = None
    try:
        state = await proved_head(context.ground, driver)
        settings = follow_database(context.settings, state)
        check_usable(state)
        await check_ownership(context.store, state, driver.load)
        if not state.wal_enabled:
            register = context.register(state)
        stats, listeners = CompactorStats(), Listeners()
        compactor = Compactor(
            _compaction_context(context, settings, state, driver, register, stats, listeners, executor=executor),
            name=context.name,
            host=OwnProcess(driver, context.runtime.ids),
            of=(state.database_id, state.store_id),
            runtime=context.runtime,
            supervisor=supervisor,
            interval_s=settings.manifest_poll_interval_ms / 1000,
            auto_compaction=auto_compaction,
        )
        await compactor.claim()
    except BaseException:
        await run_to_completion(close_metadata(driver, register))
        raise
    return OpenedCompactor(compactor, driver, register, settings, stats, listeners)


@dataclass(frozen=True, slots=True)
class OpenedEmbeddedCompactor:
    """A compactor beside a writer, its task not yet started."""

    compactor: EmbeddedCompactor
    stats: CompactorStats
    listeners: Listeners


def open_embedded(
    context: DatabaseContext,
    opened: Opened,
    committed: Callable[[], None],
    before: OpenedEmbeddedCompactor | None = None,
) -> OpenedEmbeddedCompactor:
    """The compactor that lives beside ``opened``'s writer and shares its manifest driver; ``committed`` is called when
    the writer should look at the head. ``before``: the one beside this process's last writer, whose counters and
    listeners it takes over."""
    writer, settings, driver = opened.writer, opened.settings, opened.driver
    stats = CompactorStats() if before is None else before.stats
    listeners = Listeners() if before is None else before.listeners
    beside = BesideWriter(writer, driver, settings, context.runtime.ids, committed)
    compactor = Compactor(
        _compaction_context(
            context,
            settings,
            writer.state.manifest,
            driver,
            opened.register,
            stats,
            listeners,
            threads=THREADS_BESIDE_A_WRITER,
        ),
        name=context.name,
        host=beside,
        of=(writer.state.manifest.database_id, writer.state.manifest.store_id),
        runtime=context.runtime,
        supervisor=writer.tasks,
        auto_compaction=settings.auto_compaction,
    )
    embedded = EmbeddedCompactor(
        compactor,
        name=context.name,
        beside=beside,
        clock=context.runtime.clock,
    )
    return OpenedEmbeddedCompactor(embedded, stats, listeners)


def _compaction_context(
    context: DatabaseContext,
    settings: Settings,
    state: ManifestState,
    driver: ManifestDriver,
    register: Register | None,
    stats: CompactorStats,
    listeners: Listeners,
    *,
    threads: int | None = None,
    executor: Executor | None = None,
) -> CompactionContext:
    threads = settings.compaction_parallelism if threads is None else threads
    context = replace(
        context, runtime=replace(context.runtime, offload=LimitedOffload(context.runtime.offload, threads))
    )
    ssts = context.ssts(state.database_id)
    log: LogSource | None = None
    if not state.wal_enabled:
        reader = LogReader(context.store, state.database_id, whole=False)
        check = partial(context.ground.check_again, load_head=driver.load)
        log = LogSource(context.store, ssts, reader, register, driver.load, check)

    def open_sst(sst: SstRef) -> SstReader:
        head = driver.head
        return ssts.open(sst, () if head is None else head.parents, must_exist=False)

    return CompactionContext(
        driver=driver,
        executor=LocalExecutor(context.store, open_sst, context.runtime) if executor is None else executor,
        open_sst=open_sst,
        log=log,
        settings=settings,
        slots=asyncio.Semaphore(settings.compaction_parallelism),
        stats=stats,
        emit=listeners.emit,
    )


async def merge_range(
    context: DatabaseContext, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None
) -> RangeResult:
    """Run ``task`` here, for a compactor that is elsewhere. See `slate_async.engine.compaction.executor.Executor`."""
    ssts = context.ssts(task.database_id)
    executor = LocalExecutor(context.store, lambda sst: ssts.open(sst, task.parents, must_exist=False), context.runtime)
    return await executor.run(task, progress)
