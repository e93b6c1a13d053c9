"""`open_catalog`: how a process comes to a `Catalog`."""

from __future__ import annotations

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import check_kinds, check_place
from slate_async.errors import InvalidError
from slate_async.objectstore.clients import SharesClients, StoreClients, StorePath, root_of
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import called
from slate_async.runtime.opening import Opening, require_loop
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings import Settings
from slate_async.tables.catalog import Catalog, CatalogContext


def open_catalog(
    path: StorePath,
    *,
    metastore: str | MetaStoreFactory | None = None,
    name: str | None = None,
    settings: Settings | None = None,
    environment: SharesClients | None = None,
    runtime: Runtime | None = None,
) -> Opening[Catalog]:
    """Open a catalog: await it, or enter it with ``async with``. It sends nothing.

    path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` that is its
    folder. ``name`` names the latter in messages and in metastores outside of the store, where it must be given.
    metastore: ``None`` (versions beside the data), ``"if-match"``, ``"dynamodb://table"``, or a factory; the same for
    all processes
    settings: of requests: ``request_timeout_ms``, ``retry_deadline_ms``, ``version_keep_ms`` and ``file_mode``
    environment: an `Environment` whose clients and threads it shares, and which closes it
    runtime: clock, randomness, ids and threads to use instead of the machine's

    Raises `InvalidError`."""
    check_place(path, metastore, name)
    check_kinds(
        ("settings", settings is None or isinstance(settings, Settings), settings, "Settings or None"),
        ("environment", environment is None or hasattr(environment, "_admit"), environment, "an Environment or None"),
        ("runtime", runtime is None or isinstance(runtime, Runtime), runtime, "a Runtime or None"),
    )
    if environment is not None and runtime is not None:
        raise InvalidError("an environment has a runtime of its own; give one of the two")

    async def start() -> Catalog:
        require_loop()
        chosen = Settings() if settings is None else settings
        if environment is not None:
            environment._require_open()
            catalog = await _opened(environment._clients, environment.runtime, path, metastore, name, chosen)
            catalog._on_closed(called(environment._admit((root_of(path), metastore), catalog)))
            return catalog
        machine = system_runtime() if runtime is None else runtime
        clients = StoreClients(machine, {})
        end = [clients.end] if runtime is not None else [clients.end, lambda: end_threads(machine)]
        try:
            catalog = await _opened(clients, machine, path, metastore, name, chosen)
        except BaseException:
            for ending in end:
                ending()
            raise
        for ending in end:
            catalog._on_closed(called(ending))
        return catalog

    return Opening(start, "a catalog", "open_catalog(...)")


async def _opened(
    clients: StoreClients,
    runtime: Runtime,
    path: StorePath,
    metastore: str | MetaStoreFactory | None,
    name: str | None,
    settings: Settings,
) -> Catalog:
    """A catalog that gives back what it takes of ``clients``."""
    taken = Taken()
    try:
        metastores = clients.factory(metastore, settings, taken)
        store, stats, url = clients.store(path, settings, name, metastore, taken)
        supervisor = Supervisor(url, lambda cause: None)
        catalog = Catalog(CatalogContext(url, store, metastores, runtime, settings, supervisor, stats))
    except BaseException:
        await run_to_completion(taken.give_back())
        raise
    catalog._on_closed(taken.give_back)
    return catalog
