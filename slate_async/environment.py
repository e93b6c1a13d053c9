"""`Environment`: what the databases of one process share - store clients, block cache, worker threads, polling.

A composition root: it wires and owns, and decides nothing else. ``slate.open`` makes a private one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
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
from slate_async.objectstore.url import StoreURL, open_store, parse_url
from slate_async.opening import Place, open_writer
from slate_async.runtime.concurrent import to_the_end
from slate_async.runtime.polling import PollScheduler
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import ThreadOffload, system_runtime
from slate_async.settings import Settings
from slate_async.sst.cache import BlockCache

Path: TypeAlias = str | os.PathLike[str] | ObjectStore
DEFAULT_THREADS = 4
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
        self._stores: dict[StoreURL, tuple[RetryingStore, int]] = {}
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
        root becomes the database. ``name`` names the latter in logs and metastores.
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
        own_factory = metastore is None or isinstance(metastore, str)
        with translating():
            factory = parse_metastore(metastore, runtime=self._metadata_runtime(settings))
        store, store_stats, display, release_store = self._store_of(path, settings, name)
        supervisor: Supervisor | None = None

        async def release() -> None:
            try:
                if own_factory:
                    await factory.close()
                await release_store()
            finally:
                self._open -= 1

        self._open += 1
        try:
            place = Place(display, store, store_stats, factory, settings, self.runtime, self._shared_cache(settings))
            failures: list[BaseException] = []
            db: Db | None = None

            def failed(cause: BaseException) -> None:
                failures.append(cause) if db is None else db._fail(cause)

            supervisor = Supervisor(display, failed)
            opened = await open_writer(place, supervisor, create=create, properties=properties)
            db = Db(place, opened, supervisor, self._shared_polls(), release)
        except BaseException:
            await to_the_end(_give_back(supervisor, release))
            raise
        return db

    def _metadata_runtime(self, settings: Settings) -> MetaRuntime:
        return MetaRuntime(
            sleep=self.runtime.clock.sleep,
            rng=self.runtime.rng,
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
        self, path: Path, settings: Settings, name: str | None
    ) -> tuple[ObjectStore, StoreStats, str, Callable[[], Awaitable[None]]]:
        """The database's folder, what counts its client's requests, its name, and how to give the client back."""
        if not isinstance(path, str | os.PathLike):
            retrying = RetryingStore(path, self.runtime.clock, self.runtime.rng, _policy(settings))
            return retrying, retrying.stats, name or f"store:{id(path):x}", _nothing
        if name is not None:
            raise InvalidError("name= goes with a store object; a URL is its own name")
        url = parse_url(path)
        root = replace(url, prefix="")
        shared, users = self._stores.get(root, (None, 0))
        if shared is None:
            shared, _ = open_store(root, self.runtime, retry=_policy(settings))
        self._stores[root] = (shared, users + 1)

        async def release() -> None:
            store, left = self._stores[root]
            if left > 1:
                self._stores[root] = (store, left - 1)
                return
            del self._stores[root]
            await store.close()

        return PrefixedStore(shared, url.prefix), shared.stats, url.display, release

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


async def _nothing() -> None:
    """A store object belongs to whoever passed it."""


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
