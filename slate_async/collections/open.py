"""`open_collections`: how a process comes to a `Lake`."""

from __future__ import annotations

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import check_kinds, check_place
from slate_async.collections.lake import Lake
from slate_async.collections.lake_context import LakeContext
from slate_async.errors import InvalidError
from slate_async.objectstore.clients import SharesClients, StoreClients, StorePath, root_of
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import called
from slate_async.runtime.opening import Opening, require_loop
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings.collections import CollectionSettings


def open_collections(
    path: StorePath,
    *,
    metastore: str | MetaStoreFactory | None = None,
    name: str | None = None,
    settings: CollectionSettings | None = None,
    environment: SharesClients | None = None,
    controller: bool = True,
    runtime: Runtime | None = None,
) -> Opening[Lake]:
    """Open a folder of persistent collections: await it, or enter it with ``async with``. It sends nothing.

    path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` that is the
    folder. ``name`` names the latter in messages and in metastores outside of the store, where it must be given.
    metastore: ``None`` (versions beside the data), ``"if-match"``, ``"dynamodb://table"``, or a factory; the same for
    all processes
    environment: an `Environment` whose clients and threads it shares, and which closes it
    controller: whether this process becomes the controller of a collection that it writes to, when what it appended
    has waited for ``controller_takeover_ms``. Off where controllers run in processes of their own
    runtime: clock, randomness, ids and threads to use instead of the machine's

    Raises `InvalidError`."""
    check_place(path, metastore, name)
    check_kinds(
        (
            "settings",
            settings is None or isinstance(settings, CollectionSettings),
            settings,
            "CollectionSettings or None",
        ),
        ("environment", environment is None or hasattr(environment, "_admit"), environment, "an Environment or None"),
        ("controller", isinstance(controller, bool), controller, "True or False"),
        ("runtime", runtime is None or isinstance(runtime, Runtime), runtime, "a Runtime or None"),
    )
    if environment is not None and runtime is not None:
        raise InvalidError("an environment has a runtime of its own; give one of the two")

    async def start() -> Lake:
        require_loop()
        chosen = CollectionSettings() if settings is None else settings
        if environment is not None:
            environment._require_open()
            lake = await _opened(environment._clients, environment.runtime, path, metastore, name, chosen, controller)
            lake._on_closed(called(environment._admit((root_of(path), metastore), lake)))
            return lake
        machine = system_runtime() if runtime is None else runtime
        clients = StoreClients(machine, {})
        end = [clients.end] if runtime is not None else [clients.end, lambda: end_threads(machine)]
        try:
            lake = await _opened(clients, machine, path, metastore, name, chosen, controller)
        except BaseException:
            for ending in end:
                ending()
            raise
        for ending in end:
            lake._on_closed(called(ending))
        return lake

    return Opening(start, "a lake of collections", "open_collections(...)")


async def _opened(
    clients: StoreClients,
    runtime: Runtime,
    path: StorePath,
    metastore: str | MetaStoreFactory | None,
    name: str | None,
    settings: CollectionSettings,
    controller: bool,
) -> Lake:
    """A lake that gives back what it takes of ``clients``."""
    taken = Taken()
    try:
        metastores = clients.factory(metastore, settings, taken)
        store, stats, url = clients.store(path, settings, name, metastore, taken)
    except BaseException:
        await run_to_completion(taken.give_back())
        raise
    supervisor = Supervisor(url, lambda cause: None)
    context = LakeContext(url, store, metastores, runtime, settings, supervisor, stats, clients.pokes)
    lake = Lake(context, controller=controller)
    lake._on_closed(taken.give_back)
    return lake
