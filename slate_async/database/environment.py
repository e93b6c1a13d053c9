"""`Environment`: what the databases of one process share - store clients, block cache, worker threads, polling.

A composition root: it wires and owns, and decides nothing else. ``slate.open`` makes a private one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import Duration, check_arguments, check_reader_arguments, check_standby
from slate_async.codec.arrays import prepare
from slate_async.database.admin import Admin
from slate_async.database.compactor import DbCompactor
from slate_async.database.db import Db
from slate_async.database.garbage_collector import GarbageCollector
from slate_async.database.handle import Handle, HandleResources, close_all
from slate_async.database.ingest import DAY_S, IngestJob, IngestTask, begin_ingest
from slate_async.database.opening import Opening
from slate_async.database.reader import DbReader
from slate_async.database.resources import Clients, Path, root_of
from slate_async.engine.compaction.executor import Executor
from slate_async.engine.compaction.open import open_compaction
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.context import DatabaseContext
from slate_async.engine.follow.open import open_reading
from slate_async.engine.gc.open import open_gc
from slate_async.engine.ingest.open import IngestOptions
from slate_async.engine.ingest.spec import IngestSpec
from slate_async.engine.stored_database import StoredDatabase, open_stored
from slate_async.engine.write.open import open_writer
from slate_async.engine.write.standby import stand_by
from slate_async.errors import InvalidError, SlateError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_lag import LoopLag, timed
from slate_async.runtime.polling import PollScheduler
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings import Settings
from slate_async.storage.sst.cache import BlockCache

H = TypeVar("H", bound=Handle)
logger = logging.getLogger(__name__)


class Environment:
    """Shared by any number of databases of one event loop. ``async with``, or `close`, which closes its databases.

    block_cache_bytes: memory for blocks, indexes and filters of the SSTs of all of them
    threads: worker threads that encode, decode and merge; by default one for every two processors, 1 to 4. Each more
    makes the event loop wait longer for its turn
    runtime: clock, randomness, ids and threads to use instead of the machine's
    stores: store objects by the names they were opened with, where those of a clone's parents are no URLs
    close_deadline_ms: time for `close` to finish what its databases have begun; what is left then is stopped
    """

    def __init__(
        self,
        *,
        block_cache_bytes: int | None = None,
        threads: int | None = None,
        runtime: Runtime | None = None,
        stores: Mapping[str, ObjectStore] | None = None,
        close_deadline_ms: int = 60_000,
    ) -> None:
        for name, number, least in (
            ("threads", threads, 1),
            ("block_cache_bytes", block_cache_bytes, 0),
            ("close_deadline_ms", close_deadline_ms, 1),
        ):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise InvalidError(f"{name} is a whole number of at least {least}, not {number!r}")
        self._own_runtime = runtime is None
        self._cache_bytes = block_cache_bytes
        self._machine = system_runtime(threads) if runtime is None else runtime
        self._loop_lag = LoopLag()
        self.runtime = timed(self._machine, self._loop_lag)
        self._cache: BlockCache | None = None
        self._polls = PollScheduler(self.runtime)
        self._clients = Clients(self.runtime, dict(stores or {}))
        self._opening = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close_deadline_s = close_deadline_ms / 1000
        self._handles: dict[int, tuple[Hashable, Handle]] = {}
        """With the stores they are in."""
        self._closed = False

    def __repr__(self) -> str:
        return f"<Environment {'closed' if self._closed else 'open'}, handles={len(self._handles)}>"

    def open(
        self,
        path: Path,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        create: bool = True,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        standby: bool = False,
    ) -> Opening[Db]:
        """Open a database as its writer: ``async with env.open(...) as db``, or ``db = await env.open(...)``.

        path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` whose
        root becomes the database. ``name`` names the latter in logs and in metastores outside of the store, where
        it must be given.
        metastore: ``None`` (versions beside the data), ``"if-match"``, ``"dynamodb://table"``, or a factory
        create: make the database if it is missing
        properties: kept with a database that this call creates
        standby: wait until no writer has the database open, then take over: at once when the writer closes, else when
        it has been silent for three of its heartbeats. So of several processes one writes, and another goes on

        Raises `InvalidError`, `FencedError`, `UnavailableError`, `CorruptionError`."""
        check_arguments(path, metastore, settings, create, properties, name)
        check_standby(standby)
        return self._open_writer(path, metastore, settings, name, create=create, properties=properties, standby=standby)

    def _open_writer(
        self,
        path: Path,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        name: str | None,
        *,
        create: bool = False,
        properties: Mapping[str, str] | None = None,
        if_free: bool = False,
        standby: bool = False,
    ) -> Opening[Db]:
        async def begin(resources: HandleResources) -> Db:
            if standby:
                claimed = await stand_by(resources.context, resources.supervisor, create=create, properties=properties)
            else:
                claimed = await open_writer(
                    resources.context, resources.supervisor, create=create, properties=properties, if_free=if_free
                )
            return Db(resources, claimed)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_compactor(
        self,
        path: Path,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
        progress: EventSink | None = None,
        auto_compaction: bool = True,
        executor: Executor | None = None,
    ) -> Opening[DbCompactor]:
        """Open a compactor of the database at ``path``; see `open` for the arguments. One that runs elsewhere, the
        writer's own included, is fenced.

        progress: called with each `CompactionEvent`
        auto_compaction: compact what is due; else only go on with what was begun, and what `DbCompactor.compact` asks
        for
        executor: runs the key ranges, ``compaction_parallelism`` at a time, e.g. a `slate_async.spark.SparkExecutor`;
        by default this process does

        Raises `InvalidError`, `UnavailableError`, `CorruptionError`."""
        check_arguments(path, metastore, settings, True, None, name)

        async def begin(resources: HandleResources) -> DbCompactor:
            opened = await open_compaction(
                resources.context, resources.supervisor, auto_compaction=auto_compaction, executor=executor
            )
            return DbCompactor(resources, opened, progress=progress)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_gc(
        self,
        path: Path,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
        periodic: bool = True,
    ) -> Opening[GarbageCollector]:
        """Open a garbage collector of the database at ``path``; see `open` for the arguments.

        periodic: collect every ``gc_interval_ms``, beginning now; else only when `GarbageCollector.collect` is called

        Raises `InvalidError`, `UnavailableError`, `CorruptionError`."""
        check_arguments(path, metastore, settings, True, None, name)

        async def begin(resources: HandleResources) -> GarbageCollector:
            opened = await open_gc(resources.context, resources.supervisor)
            return GarbageCollector(resources, opened, periodic=periodic)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_reader(
        self,
        path: Path,
        checkpoint: str | UUID | None = None,
        pin: bool = True,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
    ) -> Opening[DbReader]:
        """Open a database to read it beside its writer, which is not disturbed.

        checkpoint: id or name of the one to read, as it was; by default the reader follows the database
        pin: a follower makes checkpoints of its own, in the manifest, that keep what it reads from being deleted.
        Without, it writes nothing and needs no permission to; a scan that is overtaken by compaction and GC
        then fails

        Other arguments as of `open`. Raises `InvalidError` (no database, no such checkpoint), `UnavailableError`,
        `CorruptionError`."""
        check_arguments(path, metastore, settings, False, None, name)
        check_reader_arguments(checkpoint, pin)

        async def begin(resources: HandleResources) -> DbReader:
            opened = await open_reading(resources.context, resources.supervisor, checkpoint=checkpoint, pin=pin)
            return DbReader(resources, opened)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_admin(
        self,
        path: Path,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
    ) -> Opening[Admin]:
        """The administration of the database at ``path``, for work that needs no writer; see `open` for the arguments.

        It claims no role, and sends nothing before it is asked to do something. Raises `InvalidError`."""
        check_arguments(path, metastore, settings, False, None, name)

        async def begin(resources: HandleResources) -> Admin:
            return Admin(resources, partial(self._open_stored, resources))

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_ingest(
        self,
        path: Path,
        *,
        job_id: str | None = None,
        lifetime: Duration = DAY_S,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        create: bool = False,
        replace: bool = False,
        name: str | None = None,
    ) -> Opening[IngestJob]:
        """Begin a bulk ingest into the database at ``path``, or go on with it; see `open` for the other arguments.

        job_id: its name, 1 to 200 characters; one that is known is the same job. By default a new one
        lifetime: seconds or a timedelta after which a job that nobody has open, and nobody has committed, has ended
        create: make the database if it is missing
        replace: delete every key that is there when the job begins and that its rows do not have; what is written
        meanwhile under other keys stays. Its tasks read all that was there; what waits to be applied is waited for

        Raises `InvalidError`, `IngestPendingError` (``replace``), `UnavailableError`, `CorruptionError`."""
        check_arguments(path, metastore, settings, create, None, name)
        wanted = IngestOptions.of(self.runtime.ids.token() if job_id is None else job_id, lifetime, create, replace)

        async def begin(resources: HandleResources) -> IngestJob:
            own = resources.context.settings.replace(auto_compaction=False)
            writer = partial(self._open_writer, path, metastore, own, name)
            old = partial(self.open_reader, path, metastore=metastore, settings=settings, name=name)
            return await begin_ingest(resources, wanted, writer, old)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_ingest_task(
        self,
        path: Path,
        spec: IngestSpec | str,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
    ) -> Opening[IngestTask]:
        """A task of a bulk ingest, which writes SSTs at ``path`` as ``spec`` says: `IngestJob.spec`, or its JSON. It
        sends nothing before it is asked to write; ``metastore`` is for jobs that replace. Raises `InvalidError`."""
        check_arguments(path, metastore, settings, False, None, name)
        known = spec if isinstance(spec, IngestSpec) else IngestSpec.from_json(spec)

        async def begin(resources: HandleResources) -> IngestTask:
            old = partial(self.open_reader, path, metastore=metastore, settings=settings, name=name)
            return IngestTask(resources, known, old=old)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    @asynccontextmanager
    async def _open_stored(
        self, resources: HandleResources, path: str, metastore: str | MetaStoreFactory | None
    ) -> AsyncIterator[StoredDatabase]:
        """Another database than that of ``resources``, in any store, for work on both; given back at the end."""
        settings = resources.context.settings
        check_arguments(path, metastore, settings, True, None, None)
        taken = Taken()
        try:
            factory = self._clients.factory(metastore, settings, taken)
            store, name = self._clients.store_at(path, settings, metastore, taken)
            async with open_stored(name, store, factory, resources.supervisor, self.runtime, settings) as database:
                yield database
        finally:
            await run_to_completion(taken.give_back())

    async def _open_handle(
        self,
        path: Path,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        name: str | None,
        begin: Callable[[HandleResources], Awaitable[H]],
    ) -> H:
        """What ``begin`` makes of its resources, which are given back when it closes or fails to open."""
        self._require_own_loop()
        if self._closed:
            raise InvalidError("this Environment is closed")
        settings = Settings() if settings is None else settings
        taken = Taken()
        opened: list[H] = []
        supervisor: Supervisor | None = None

        async def release() -> None:
            if opened:
                self._handles.pop(id(opened[0]), None)
            await taken.give_back()

        self._opening += 1
        try:
            if self._own_runtime:
                await self.runtime.offload.run(prepare)
            factory = self._clients.factory(metastore, settings, taken)
            store, store_stats, display = self._clients.store(path, settings, name, metastore, taken)
            parents = self._clients.parents(path, settings, taken)
            cache = self._shared_cache(settings)
            context = DatabaseContext(
                display, store, store_stats, factory, settings, self.runtime, cache, parents, self._loop_lag
            )
            supervisor = Supervisor(display, lambda cause: opened[0]._fail(cause))  # only what is open has tasks
            where = (root_of(path), metastore)
            handle = await begin(HandleResources(context, supervisor, self._polls.of_store(where), release))
            opened.append(handle)
            self._handles[id(handle)] = where, handle
        except BaseException:
            await run_to_completion(_give_back(supervisor, release))
            raise
        finally:
            self._opening -= 1
        return handle

    def _shared_cache(self, settings: Settings) -> BlockCache:
        if self._cache is None:
            capacity = settings.block_cache_bytes if self._cache_bytes is None else self._cache_bytes
            self._cache = BlockCache(capacity, settings.decode_memory_bytes)
        self._cache.decoding.widen(settings.decode_memory_bytes)
        return self._cache

    async def close(self) -> None:
        """Close what is still open of it, side by side, then give up threads and polling. Idempotent.

        What has not finished after ``close_deadline_ms``, because its store does not answer, is stopped; writes that
        were not acknowledged then fail with outcome ``"unknown"``. Raises `InvalidError` while something is being
        opened, or on another event loop, and what closing a database raises."""
        loop_ended = self._loop is not None and self._loop.is_closed()
        if not loop_ended:
            self._require_own_loop()
            if self._opening:
                raise InvalidError("a database of this Environment is being opened; wait for that first")
        self._closed = True
        try:
            await close_all(list(self._handles.values()), self._close_deadline_s)
        finally:
            self._clients.end()
            if not loop_ended:
                await self._polls.close()
            if self._own_runtime:
                end_threads(self._machine)

    def _require_own_loop(self) -> None:
        """Raise `InvalidError` outside of the event loop that uses it: polls, clients and locks belong to that one."""
        require_loop()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise InvalidError("this Environment belongs to another event loop; make one for each loop")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            bug = not isinstance(failure, SlateError)
            logger.error(
                "closing an Environment failed too, while another error was on its way: %s", failure, exc_info=bug
            )


def require_loop() -> None:
    """Raise `InvalidError` outside of an asyncio event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise InvalidError("a database is opened on asyncio (uvloop included); trio is not supported") from error


async def _give_back(supervisor: Supervisor | None, release: Callable[[], Awaitable[None]]) -> None:
    """What a failed opening took."""
    try:
        if supervisor is not None:
            await supervisor.close()
    finally:
        await release()
