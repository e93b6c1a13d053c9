"""`Environment`: what the databases of one process share - store clients, block cache, worker threads, polling.

A composition root: it wires and owns, and decides nothing else. ``slate.open`` makes a private one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

from metastores.factories import parse_metastore
from metastores.protocol import MetaStoreFactory
from metastores.runtime import MetaRuntime
from slate_async.db import Db
from slate_async.errors import InvalidError
from slate_async.manifest.driver import translating
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.retry import RetryingStore, RetryPolicy
from slate_async.objectstore.stats import StoreStats
from slate_async.objectstore.url import open_store, parse_url
from slate_async.opening import Place, open_writer
from slate_async.runtime.concurrent import to_the_end
from slate_async.runtime.polling import PollScheduler
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Shared
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import ThreadOffload, system_runtime
from slate_async.settings import Settings
from slate_async.sst.cache import BlockCache

Path: TypeAlias = str | os.PathLike[str] | ObjectStore
DEFAULT_THREADS = 4
BESIDE_THE_DATA = (None, "put-if-absent", "if-match")
"""Metastores that keep metadata in the database's own folder, whatever its name."""
RETRY_ATTEMPTS = 1_000


class Environment:
    """Shared by any number of databases of one event loop. ``async with``, or `close` it after its databases.

    block_cache_bytes: memory for decoded blocks, filters and indexes of all of them
    threads: worker threads for encoding, decoding and file I/O
    runtime: clock, randomness, ids and threads to use instead of the machine's
    """

    def __init__(
        self, *, block_cache_bytes: int | None = None, threads: int = DEFAULT_THREADS, runtime: Runtime | None = None
    ) -> None:
        if threads < 1:
            raise InvalidError(f"threads is a positive number, not {threads}")
        self._own_runtime = runtime is None
        self._cache_bytes = block_cache_bytes
        self.runtime = system_runtime(threads) if runtime is None else runtime
        self._cache: BlockCache | None = None
        self._polls: PollScheduler | None = None
        self._stores = Shared[RetryingStore](RetryingStore.close)
        self._factories = Shared[MetaStoreFactory](MetaStoreFactory.close)
        self._open = 0
        self._closed = False

    def open(
        self,
        path: Path,
        *,
        metastore: str | MetaStoreFactory | None = None,
        settings: Settings | None = None,
        create: bool = True,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> OpeningDb:
        """Open a database as its writer: ``async with env.open(...) as db``, or ``db = await env.open(...)``.

        path: URL (``memory://``, ``file://``, ``s3://``, ``az://``, ``gs://``), folder, or an `ObjectStore` whose
        root becomes the database. ``name`` names the latter in logs and in metastores outside of the store, where
        it must be given.
        metastore: ``None`` (versions beside the data), ``"if-match"``, ``"dynamodb://table"``, or a factory
        create: make the database if it is missing
        properties: kept with a database that this call creates

        Raises `InvalidError`, `FencedError`, `UnavailableError`, `CorruptionError`."""
        return OpeningDb(lambda: self._open_db(path, metastore, settings, create, properties, name))

    async def _open_db(
        self,
        path: Path,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        create: bool,
        properties: Mapping[str, str] | None,
        name: str | None,
    ) -> Db:
        if self._closed:
            raise InvalidError("this Environment is closed")
        settings = Settings() if settings is None else settings
        give_backs: list[Callable[[], Awaitable[None]]] = []
        opened: list[Db] = []
        supervisor: Supervisor | None = None

        async def release() -> None:
            try:
                await _each(give_backs)
            finally:
                self._open -= 1

        self._open += 1
        try:
            factory = self._factory_of(metastore, settings, give_backs)
            store, store_stats, display = self._store_of(path, settings, name, metastore, give_backs)
            place = Place(display, store, store_stats, factory, settings, self.runtime, self._shared_cache(settings))
            supervisor = Supervisor(display, lambda cause: opened[0]._fail(cause))  # only an open database has tasks
            claimed = await open_writer(place, supervisor, create=create, properties=properties)
            opened.append(Db(place, claimed, supervisor, self._shared_polls(), release))
        except BaseException:
            await to_the_end(_give_back(supervisor, release))
            raise
        return opened[0]

    def _factory_of(
        self,
        metastore: str | MetaStoreFactory | None,
        settings: Settings,
        give_backs: list[Callable[[], Awaitable[None]]],
    ) -> MetaStoreFactory:
        """The metastore's factory; one that a name stands for is shared, with its clients, by all who name it."""
        if metastore is not None and not isinstance(metastore, str):
            return metastore
        with translating():
            factory, give_back = self._factories.take(
                (metastore, settings.request_timeout_ms, settings.retry_deadline_ms),
                lambda: parse_metastore(metastore, runtime=self._metadata_runtime(settings)),
            )
        give_backs.append(give_back)
        return factory

    def _metadata_runtime(self, settings: Settings) -> MetaRuntime:
        return MetaRuntime(
            sleep=self.runtime.clock.sleep,
            rng=self.runtime.rng,
            token=self.runtime.ids.token,
            request_timeout=settings.request_timeout_ms / 1000,
            deadline=settings.retry_deadline_ms / 1000,
        )

    def _shared_cache(self, settings: Settings) -> BlockCache:
        if self._cache is None:
            self._cache = BlockCache(settings.block_cache_bytes if self._cache_bytes is None else self._cache_bytes)
        return self._cache

    def _shared_polls(self) -> PollScheduler:
        if self._polls is None:
            self._polls = PollScheduler(self.runtime)
        return self._polls

    def _store_of(
        self,
        path: Path,
        settings: Settings,
        name: str | None,
        metastore: str | MetaStoreFactory | None,
        give_backs: list[Callable[[], Awaitable[None]]],
    ) -> tuple[ObjectStore, StoreStats, str]:
        """The database's folder, what counts its client's requests, and its name."""
        policy = _policy(settings)
        if not isinstance(path, str | os.PathLike):
            if name is None and metastore not in BESIDE_THE_DATA:
                raise InvalidError("a store object with metadata kept elsewhere needs name=, which finds it again")
            retrying = RetryingStore(path, self.runtime.clock, self.runtime.rng, policy)
            return retrying, retrying.stats, name or f"store:{id(path):x}"
        if name is not None:
            raise InvalidError("name= goes with a store object; a URL is its own name")
        url = parse_url(path)
        root = replace(url, prefix="")
        shared, give_back = self._stores.take((root, policy), lambda: open_store(root, self.runtime, retry=policy)[0])
        give_backs.append(give_back)
        return PrefixedStore(shared, url.prefix), shared.stats, url.display

    async def close(self) -> None:
        """Give up threads and polling. Raises `InvalidError` while databases are open. Idempotent."""
        if self._open:
            raise InvalidError(f"{self._open} databases of this Environment are open; close them first")
        self._closed = True
        if self._polls is not None:
            await self._polls.close()
        if self._own_runtime and isinstance(self.runtime.offload, ThreadOffload):
            self.runtime.offload.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or not self._open:
            await self.close()


def _policy(settings: Settings) -> RetryPolicy:
    """The deadline decides when to give up; the number of attempts is only the bound behind it."""
    return RetryPolicy(
        attempts=RETRY_ATTEMPTS,
        deadline=settings.retry_deadline_ms / 1000,
        request_timeout=settings.request_timeout_ms / 1000,
    )


async def _give_back(supervisor: Supervisor | None, release: Callable[[], Awaitable[None]]) -> None:
    """What a failed opening took."""
    try:
        if supervisor is not None:
            await supervisor.close()
    finally:
        await release()


async def _each(give_backs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Call all of them, last taken first, whatever one raises; the first failure is raised at the end."""
    if not give_backs:
        return
    *earlier, last = give_backs
    try:
        await last()
    finally:
        await _each(earlier)


class OpeningDb:
    """What `open` returns: await it for the `Db`, or enter it for a `Db` that is closed at the end."""

    def __init__(self, start: Callable[[], Awaitable[Db]]) -> None:
        self._start = start
        self._db: Db | None = None

    def __await__(self) -> Generator[object, None, Db]:
        return self._start().__await__()

    async def __aenter__(self) -> Db:
        self._db = await self._start()
        return await self._db.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._db is not None:
            await self._db.__aexit__(kind, error, traceback)


def open_database(
    path: Path,
    *,
    metastore: str | MetaStoreFactory | None = None,
    settings: Settings | None = None,
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    environment: Environment | None = None,
    runtime: Runtime | None = None,
) -> OpeningDb:
    """Open a database as its writer, in ``environment`` or a private one. See `Environment.open`."""
    if environment is not None:
        if runtime is not None:
            raise InvalidError("runtime= goes with a private Environment; the one given has its own")
        return environment.open(
            path, metastore=metastore, settings=settings, create=create, properties=properties, name=name
        )

    async def start() -> Db:
        private = Environment(runtime=runtime)
        try:
            db = await private.open(
                path, metastore=metastore, settings=settings, create=create, properties=properties, name=name
            )
        except BaseException:
            await to_the_end(private.close())
            raise
        db.on_closed(private.close)
        return db

    return OpeningDb(start)
