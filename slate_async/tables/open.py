"""`open_tables`: how a process comes to `Tables`."""

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
from slate_async.tables.tables import Tables, TablesContext


def open_tables(
    path: StorePath,
    *,
    metastore: str | MetaStoreFactory | None = None,
    name: str | None = None,
    settings: Settings | None = None,
    environment: SharesClients | None = None,
    runtime: Runtime | None = None,
) -> Opening[Tables]:
    """Open a folder of tables: await it, or enter it with ``async with``. It sends nothing.

    path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` that is the
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

    async def start() -> Tables:
        require_loop()
        chosen = Settings() if settings is None else settings
        if environment is not None:
            environment._require_open()
            tables = await _opened(environment._clients, environment.runtime, path, metastore, name, chosen)
            tables._on_closed(called(environment._admit((root_of(path), metastore), tables)))
            return tables
        machine = system_runtime() if runtime is None else runtime
        clients = StoreClients(machine, {})
        end = [clients.end] if runtime is not None else [clients.end, lambda: end_threads(machine)]
        try:
            tables = await _opened(clients, machine, path, metastore, name, chosen)
        except BaseException:
            for ending in end:
                ending()
            raise
        for ending in end:
            tables._on_closed(called(ending))
        return tables

    return Opening(start, "a folder of tables", "open_tables(...)")


async def _opened(
    clients: StoreClients,
    runtime: Runtime,
    path: StorePath,
    metastore: str | MetaStoreFactory | None,
    name: str | None,
    settings: Settings,
) -> Tables:
    """Tables that give back what they take of ``clients``."""
    taken = Taken()
    try:
        metastores = clients.factory(metastore, settings, taken)
        store, stats, url = clients.store(path, settings, name, metastore, taken)
        supervisor = Supervisor(url, lambda cause: None)
        tables = Tables(TablesContext(url, store, metastores, runtime, settings, supervisor, stats))
    except BaseException:
        await run_to_completion(taken.give_back())
        raise
    tables._on_closed(taken.give_back)
    return tables
