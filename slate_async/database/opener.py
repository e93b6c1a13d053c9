"""`Opener`: every way to open a database, with its arguments and what they mean. The functions of `slate_async` and of
`slate_async.sync` are made of its methods.

Wiring only: how each role starts lies in the engine, in the module ``open`` of its package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import Duration, check_arguments, check_reader_arguments, check_standby
from slate_async.database.admin import Admin
from slate_async.database.compactor import DbCompactor
from slate_async.database.db import Db
from slate_async.database.garbage_collector import GarbageCollector
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.ingest import DAY_S, IngestJob, IngestTask, begin_ingest
from slate_async.database.reader import DbReader
from slate_async.database.resources import DatabasePath
from slate_async.engine.compaction.executor import Executor
from slate_async.engine.compaction.open import open_compaction
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.follow.open import open_reading
from slate_async.engine.gc.open import open_gc
from slate_async.engine.ingest.open import IngestOptions
from slate_async.engine.ingest.spec import IngestSpec
from slate_async.engine.ingest.watch import IngestMode, OnWait
from slate_async.engine.stored_database import StoredDatabase
from slate_async.engine.write.open import open_writer
from slate_async.engine.write.standby import stand_by
from slate_async.runtime.opening import Opening
from slate_async.runtime.protocol import Runtime
from slate_async.settings import Settings

H = TypeVar("H", bound=Handle)


class Opener(ABC):
    """The one place that holds the arguments of the openings."""

    runtime: Runtime
    """Clock, randomness, ids and threads of all that it opens."""

    @abstractmethod
    async def _open_handle(
        self,
        path: DatabasePath,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        name: str | None,
        begin: Callable[[HandleResources], Awaitable[H]],
    ) -> H:
        """What ``begin`` makes of its resources, which are given back when it closes or fails to open."""

    @abstractmethod
    def _open_elsewhere(
        self, resources: HandleResources, path: str, metastore: str | MetaStoreFactory | None
    ) -> AbstractAsyncContextManager[StoredDatabase]:
        """Another database than that of ``resources``, in any store, for work on both; given back at the end."""

    def open(
        self,
        path: DatabasePath,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        create: bool = True,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        standby: bool = False,
    ) -> Opening[Db]:
        """Open a database as its writer.

        path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` whose
        root becomes the database. ``name`` names the latter in logs and in metastores outside of the store, where
        it must be given.
        metastore: ``None`` (versions beside the data), ``"if-match"``, ``"dynamodb://table"``,
            ``"etcd://host/prefix"``, or a factory
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
        path: DatabasePath,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        name: str | None,
        *,
        create: bool = False,
        properties: Mapping[str, str] | None = None,
        if_free: bool = False,
        instead_of: str | None = None,
        standby: bool = False,
    ) -> Opening[Db]:
        async def begin(resources: HandleResources) -> Db:
            if standby:
                claimed = await stand_by(resources.context, resources.supervisor, create=create, properties=properties)
            else:
                claimed = await open_writer(
                    resources.context,
                    resources.supervisor,
                    create=create,
                    properties=properties,
                    if_free=if_free,
                    instead_of=instead_of,
                )
            return Db(resources, claimed)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_compactor(
        self,
        path: DatabasePath,
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

        progress: called with each `CompactionEvent`, in the thread of the event loop
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
        path: DatabasePath,
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
        path: DatabasePath,
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
        path: DatabasePath,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        name: str | None = None,
    ) -> Opening[Admin]:
        """The administration of the database at ``path``, for work that needs no writer; see `open` for the arguments.

        It claims no role, and sends nothing before it is asked to do something. Raises `InvalidError`."""
        check_arguments(path, metastore, settings, False, None, name)

        async def begin(resources: HandleResources) -> Admin:
            return Admin(resources, partial(self._open_elsewhere, resources))

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_ingest(
        self,
        path: DatabasePath,
        *,
        job_id: str | None = None,
        lifetime: Duration = DAY_S,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        create: bool = False,
        replace: bool = False,
        mode: IngestMode = "auto",
        leased: bool | None = None,
        on_wait: OnWait | None = None,
        name: str | None = None,
    ) -> Opening[IngestJob]:
        """Begin a bulk ingest into the database at ``path``, or go on with it; see `open` for the other arguments.

        job_id: its name, 1 to 200 characters; one that is known is the same job. By default a new one
        lifetime: seconds or a timedelta after which a job that no driver renews, and that is not committed, has ended
        create: make the database if it is missing
        replace: delete every key that is there when the job begins and that its rows do not have; what is written
        meanwhile under other keys stays. Its tasks read all that was there. What waits to be applied comes in before,
        through this driver if it is to be the writer
        mode: how its rows are to come in, see `IngestJob.commit`. With ``"auto"`` it is known at the opening whether a
        writer lives: of one that died the role is given back, after three of its heartbeats
        leased: the job ends with its driver: when its commit fails, it is aborted; what was committed and not applied
        when its driver died expires, by the setting ``ingest_lease_ms``. By default so is a job without ``job_id``. A
        commit with a batch's number, or that does not wait, has no lease
        on_wait: called with a sentence when a writer that may have died is waited for

        Raises `InvalidError`, `IngestPendingError` (``replace``), `UnavailableError`, `CorruptionError`,
        `ConflictError` (a job that was leased and has ended)."""
        check_arguments(path, metastore, settings, create, None, name)
        wanted = IngestOptions.of(
            self.runtime.ids.token() if job_id is None else job_id,
            lifetime,
            create,
            replace,
            mode=mode,
            leased=job_id is None if leased is None else leased,
            on_wait=on_wait,
        )

        async def begin(resources: HandleResources) -> IngestJob:
            own = resources.context.settings.replace(auto_compaction=False)
            writer = partial(self._open_writer, path, metastore, own, name)
            old = partial(self.open_reader, path, metastore=metastore, settings=settings, name=name)
            return await begin_ingest(resources, wanted, writer, old)

        return Opening(lambda: self._open_handle(path, metastore, settings, name, begin))

    def open_ingest_task(
        self,
        path: DatabasePath,
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
