"""Opening something in the `Environment` given, or in a private one that ends with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import Duration
from slate_async.database.admin import Admin
from slate_async.database.compactor import DbCompactor
from slate_async.database.db import Db
from slate_async.database.environment import Environment
from slate_async.database.garbage_collector import GarbageCollector
from slate_async.database.handle import Handle
from slate_async.database.ingest import DAY_S, IngestJob, IngestTask
from slate_async.database.opening import Opening
from slate_async.database.reader import DbReader
from slate_async.database.resources import Path
from slate_async.engine.compaction.executor import Executor
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.ingest.spec import IngestSpec
from slate_async.errors import InvalidError
from slate_async.runtime.protocol import Runtime
from slate_async.settings import Settings

H = TypeVar("H", bound=Handle)


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
    runtime: Runtime | None = None,
) -> Opening[Db]:
    """Open a database as its writer, in ``environment`` or a private one. See `Environment.open`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open(
            path,
            metastore=metastore,
            settings=settings,
            create=create,
            properties=properties,
            name=name,
            standby=standby,
        ),
    )


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
    runtime: Runtime | None = None,
) -> Opening[DbCompactor]:
    """Open a compactor, in ``environment`` or a private one. See `Environment.open_compactor`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_compactor(
            path,
            metastore=metastore,
            settings=settings,
            name=name,
            progress=progress,
            auto_compaction=auto_compaction,
            executor=executor,
        ),
    )


def open_admin(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
    runtime: Runtime | None = None,
) -> Opening[Admin]:
    """The administration of a database, in ``environment`` or a private one. See `Environment.open_admin`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_admin(path, metastore=metastore, settings=settings, name=name),
    )


def open_gc(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    periodic: bool = True,
    environment: Environment | None = None,
    runtime: Runtime | None = None,
) -> Opening[GarbageCollector]:
    """Open a garbage collector, in ``environment`` or a private one. See `Environment.open_gc`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_gc(path, metastore=metastore, settings=settings, name=name, periodic=periodic),
    )


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
    runtime: Runtime | None = None,
) -> Opening[IngestJob]:
    """Begin a bulk ingest, in ``environment`` or a private one. See `Environment.open_ingest`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_ingest(
            path,
            job_id=job_id,
            lifetime=lifetime,
            metastore=metastore,
            settings=settings,
            create=create,
            replace=replace,
            name=name,
        ),
    )


def open_ingest_task(
    path: Path,
    spec: IngestSpec | str,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
    runtime: Runtime | None = None,
) -> Opening[IngestTask]:
    """A task of a bulk ingest, in ``environment`` or a private one. See `Environment.open_ingest_task`."""
    known = spec if isinstance(spec, IngestSpec) else IngestSpec.from_json(spec)
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_ingest_task(path, known, metastore=metastore, settings=settings, name=name),
    )


def open_reader(
    path: Path,
    checkpoint: str | UUID | None = None,
    pin: bool = True,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    environment: Environment | None = None,
    runtime: Runtime | None = None,
) -> Opening[DbReader]:
    """Open a database to read it, in ``environment`` or a private one. See `Environment.open_reader`."""
    return opening_in(
        environment,
        runtime,
        lambda env: env.open_reader(
            path, checkpoint=checkpoint, pin=pin, metastore=metastore, settings=settings, name=name
        ),
    )


def opening_in(
    environment: Environment | None, runtime: Runtime | None, begin: Callable[[Environment], Opening[H]]
) -> Opening[H]:
    """What ``begin`` opens in ``environment``, or in a private one that ends with it."""
    if environment is None:
        private = Environment(runtime=runtime)
        return begin(private)._ending(private.close)
    if runtime is not None:
        raise InvalidError("runtime= goes with a private Environment; the one given has its own")
    return begin(environment)
