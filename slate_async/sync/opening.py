"""Opening something in the loop of this process. Arguments and errors are those of `slate_async`'s functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import Duration
from slate_async.database import environment as engine
from slate_async.database import open as entry
from slate_async.database.ingest import DAY_S
from slate_async.database.resources import Path
from slate_async.engine.compaction.executor import Executor
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.ingest.spec import IngestSpec
from slate_async.settings import Settings
from slate_async.sync.admin import Admin
from slate_async.sync.compactor import DbCompactor
from slate_async.sync.db import Db
from slate_async.sync.environment import Environment
from slate_async.sync.garbage_collector import GarbageCollector
from slate_async.sync.handle import opened
from slate_async.sync.ingest import IngestJob, IngestTask
from slate_async.sync.reader import DbReader


def open_database(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    standby: bool = False,
    environment: Environment | None = None,
) -> Db:
    """Open a database as its writer, with ``standby`` once no other has it open. See `slate_async.open`."""
    begin = partial(
        entry.open_database,
        path,
        metastore=metastore,
        settings=settings,
        create=create,
        properties=properties,
        name=name,
        standby=standby,
        environment=_shared(environment),
    )
    return Db(*opened(begin))


def open_reader(
    path: Path,
    checkpoint: str | UUID | None = None,
    pin: bool = True,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
) -> DbReader:
    """Open a database to read it beside its writer. See `slate_async.open_reader`."""
    begin = partial(
        entry.open_reader,
        path,
        checkpoint,
        pin,
        metastore=metastore,
        settings=settings,
        name=name,
        environment=_shared(environment),
    )
    return DbReader(*opened(begin))


def open_compactor(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    progress: EventSink | None = None,
    auto_compaction: bool = True,
    executor: Executor | None = None,
    environment: Environment | None = None,
) -> DbCompactor:
    """Open a compactor. ``progress`` is called in the loop's thread. See `slate_async.open_compactor`."""
    begin = partial(
        entry.open_compactor,
        path,
        metastore=metastore,
        settings=settings,
        name=name,
        progress=progress,
        auto_compaction=auto_compaction,
        executor=executor,
        environment=_shared(environment),
    )
    return DbCompactor(*opened(begin))


def open_admin(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
) -> Admin:
    """The administration of a database. See `slate_async.open_admin`."""
    begin = partial(
        entry.open_admin, path, metastore=metastore, settings=settings, name=name, environment=_shared(environment)
    )
    return Admin(*opened(begin))


def open_gc(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    periodic: bool = True,
    environment: Environment | None = None,
) -> GarbageCollector:
    """Open a garbage collector. See `slate_async.open_gc`."""
    begin = partial(
        entry.open_gc,
        path,
        metastore=metastore,
        settings=settings,
        name=name,
        periodic=periodic,
        environment=_shared(environment),
    )
    return GarbageCollector(*opened(begin))


def open_ingest(
    path: Path,
    *,
    job_id: str | None = None,
    lifetime: Duration = DAY_S,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    create: bool = False,
    replace: bool = False,
    name: str | None = None,
    environment: Environment | None = None,
) -> IngestJob:
    """Begin a bulk ingest. See `slate_async.open_ingest`."""
    begin = partial(
        entry.open_ingest,
        path,
        job_id=job_id,
        lifetime=lifetime,
        metastore=metastore,
        settings=settings,
        create=create,
        replace=replace,
        name=name,
        environment=_shared(environment),
    )
    return IngestJob(*opened(begin))


def open_ingest_task(
    path: Path,
    spec: IngestSpec | str,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
) -> IngestTask:
    """A task of a bulk ingest. See `slate_async.open_ingest_task`."""
    begin = partial(
        entry.open_ingest_task,
        path,
        spec,
        metastore=metastore,
        settings=settings,
        name=name,
        environment=_shared(environment),
    )
    return IngestTask(*opened(begin))


def _shared(environment: Environment | None) -> engine.Environment | None:
    return None if environment is None else environment.shared
