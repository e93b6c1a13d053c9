"""`Environment`: what the databases of one process share - store clients, block cache, worker threads, polling.

A composition root: it wires and owns, and decides nothing else. ``slate.open`` makes a private one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import check_arguments
from slate_async.database.handle import Handle, HandleResources, close_all
from slate_async.database.opener import Opener
from slate_async.database.resources import Clients, DatabasePath
from slate_async.engine.context import DatabaseContext
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import InvalidError
from slate_async.objectstore.clients import root_of
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import close_at_exit
from slate_async.runtime.loop_lag import LoopLag, timed
from slate_async.runtime.opening import require_loop
from slate_async.runtime.polling import PollScheduler
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Closable, Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings import Settings
from slate_async.storage.sst.cache import BlockCache

H = TypeVar("H", bound=Handle)
logger = logging.getLogger(__name__)


class _Entry:
    """One handle among those of an environment, from the first step of its opening on.

    taken: what it shares with others
    """

    def __init__(self, handles: dict[int, tuple[Hashable, Closable]]) -> None:
        self._handles = handles
        self._handle: Handle | None = None
        self.taken = Taken()

    def opened(self, where: Hashable, handle: Handle) -> None:
        """``handle`` is open, in the store ``where``."""
        self._handle = handle
        self._handles[id(handle)] = where, handle

    def failed(self, cause: BaseException) -> None:
        """A task of the handle failed."""
        assert self._handle is not None  # only what is open has tasks
        self._handle._fail(cause)

    async def release(self) -> None:
        """It has closed, or did not open."""
        if self._handle is not None:
            self._handles.pop(id(self._handle), None)
        await self.taken.give_back()


class Environment(Opener):
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
        self._handles: dict[int, tuple[Hashable, Closable]] = {}
        """With the stores they are in."""
        self._closed = False

    def __repr__(self) -> str:
        return f"<Environment {'closed' if self._closed else 'open'}, handles={len(self._handles)}>"

    async def _open_handle(
        self,
        path: DatabasePath,
        metastore: str | MetaStoreFactory | None,
        settings: Settings | None,
        name: str | None,
        begin: Callable[[HandleResources], Awaitable[H]],
    ) -> H:
        self._require_open()
        settings = Settings() if settings is None else settings
        entry = _Entry(self._handles)
        taken = entry.taken
        supervisor: Supervisor | None = None
        self._opening += 1
        try:
            factory = self._clients.factory(metastore, settings, taken)
            store, store_stats, display = self._clients.store(path, settings, name, metastore, taken)
            parents = self._clients.parents(path, settings, taken)
            cache = self._shared_cache(settings)
            context = DatabaseContext(
                display, store, store_stats, factory, settings, self.runtime, cache, parents, self._loop_lag
            )
            supervisor = Supervisor(display, entry.failed)
            where = (root_of(path), metastore)
            handle = await begin(HandleResources(context, supervisor, self._polls.of_store(where), entry.release))
            entry.opened(where, handle)
        except BaseException:
            await run_to_completion(_give_back(supervisor, entry.release))
            raise
        finally:
            self._opening -= 1
        return handle

    def _open_elsewhere(
        self, resources: HandleResources, path: str, metastore: str | MetaStoreFactory | None
    ) -> AbstractAsyncContextManager[StoredDatabase]:
        check_arguments(path, metastore, resources.context.settings, True, None, None)
        return self._clients.stored_at(path, resources.context.settings, metastore, resources.supervisor)

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

    def _admit(self, where: Hashable, handle: Closable) -> Callable[[], None]:
        """See `slate_async.objectstore.clients.SharesClients`."""
        self._handles[id(handle)] = where, handle

        def closed() -> None:
            self._handles.pop(id(handle), None)

        return closed

    def _require_open(self) -> None:
        """Raise `InvalidError` unless it is open, in its own loop."""
        self._require_own_loop()
        if self._closed:
            raise InvalidError("this Environment is closed; make another one")

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
        await close_at_exit("an Environment", self.close, error)


async def _give_back(supervisor: Supervisor | None, release: Callable[[], Awaitable[None]]) -> None:
    """What a failed opening took."""
    try:
        if supervisor is not None:
            await supervisor.close()
    finally:
        await release()
