"""The engine inside a Spark Python process: one event loop on a thread of its own, with one `Environment`.

Spark runs plain functions in worker processes it forks and reuses. The loop, the store clients and the open readers
stay from task to task, so a task costs no connections of its own. They belong to the process that made them: after a
fork the child makes its own, at first use and never at import.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

from pyspark import TaskContext

import slate_async as slate
from slate_async.engine.changes.read_ahead import ReadAhead

T = TypeVar("T")

OPEN_READERS = 4
"""Readers that stay open, unless more are in use; the one used longest ago is closed."""
FEEDS_AHEAD = 2
"""Feeds of which rows are kept: 64 MiB of each."""
CACHE_BYTES = 4 << 20
"""A task reads each block once, and large scans go past the cache."""
CLOSE_LIMIT_S = 5.0


class ReaderName(NamedTuple):
    """What an open reader is found by."""

    path: str
    metastore: str | None
    checkpoint: str


class FeedName(NamedTuple):
    """What is read of one feed: of which database, by which subscription."""

    path: str
    metastore: str | None
    subscription: str


@dataclass(slots=True)
class _Shared:
    """An open reader, and how many use it."""

    reader: slate.DbReader
    users: int = 0


class Worker:
    """See the module docstring. Its methods are called from any thread but the loop's."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slate_async", daemon=True)
        self._thread.start()
        self._environment: slate.Environment | None = None
        self._readers: OrderedDict[ReaderName, _Shared] = OrderedDict()
        self._ahead: OrderedDict[FeedName, ReadAhead] = OrderedDict()
        self._opening = asyncio.Lock()

    def run(self, make: Callable[[slate.Environment], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine of ``make`` returns, run on the loop. An interrupt of the caller cancels it."""
        future = self.start(make)
        try:
            return future.result()
        except slate.InvalidError as error:
            raise error.with_traceback(None) from error.__cause__  # Spark shows it: thirty lines for a wrong path
        except BaseException:
            future.cancel()
            raise

    def start(self, make: Callable[[slate.Environment], Coroutine[Any, Any, T]]) -> Future[T]:
        """`run` without waiting. To cancel the future cancels the coroutine."""
        return self._submit(self._run(make))

    def iterate(self, make: Callable[[slate.Environment], AsyncGenerator[T, None]]) -> Iterator[T]:
        """The items of the asynchronous generator, each made on the loop while the caller works on the one before."""
        items = self.run(partial(_Items.of, make))
        ahead = self._submit(items.next())
        try:
            while (item := ahead.result()) is not _END:
                ahead = self._submit(items.next())
                yield item
        finally:
            ahead.cancel()
            self._submit(items.close()).result()

    @asynccontextmanager
    async def reader(self, name: ReaderName) -> AsyncGenerator[slate.DbReader, None]:
        """The reader of that checkpoint, for the block; opened at first use. On the loop only. It stays the worker's
        own."""
        async with self._opening:
            found = self._readers.pop(name, None)
            if found is None or found.reader.status().state != "open":
                environment = self._own_environment()
                found = _Shared(await environment.open_reader(name.path, name.checkpoint, metastore=name.metastore))
            self._readers[name] = found
            found.users += 1
        try:
            await self._close_idle()
            yield found.reader
        finally:
            found.users -= 1
            await self._close_idle()

    async def _close_idle(self) -> None:
        """All but `OPEN_READERS`, of those that no task uses."""
        idle = [name for name, shared in self._readers.items() if not shared.users]
        unwanted = [self._readers.pop(name) for name in idle[: max(0, len(self._readers) - OPEN_READERS)]]
        for shared in unwanted:
            await shared.reader.close()

    def ahead(self, name: FeedName) -> ReadAhead:
        """What this process has found of that feed beyond what its tasks were asked for."""
        found = self._ahead.pop(name, None) or ReadAhead()
        self._ahead[name] = found
        while len(self._ahead) > FEEDS_AHEAD:
            self._ahead.popitem(last=False)
        return found

    def _own_environment(self) -> slate.Environment:
        if self._environment is None:
            self._environment = slate.Environment(block_cache_bytes=CACHE_BYTES)
        return self._environment

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _run(self, make: Callable[[slate.Environment], Coroutine[Any, Any, T]]) -> T:
        return await make(self._own_environment())

    def close(self) -> None:
        """Close what is open, for a process that ends in peace."""
        if self._environment is not None and self._thread.is_alive():
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._environment.close(), self._loop).result(CLOSE_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)


_END: Any = object()
_lock = threading.Lock()
_worker: Worker | None = None


def this_worker() -> Worker:
    """The worker of this process."""
    global _worker
    with _lock:
        if _worker is None or _worker.pid != os.getpid():
            _worker = Worker()
            if TaskContext.get() is not None:
                gc.freeze()  # Spark collects garbage after every task: 40 ms of looking through what modules made
            atexit.register(_worker.close)
        return _worker


def _after_fork() -> None:
    """The child has neither the loop's thread nor, perhaps, a free lock."""
    global _lock, _worker
    _lock, _worker = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)


class _Items(Generic[T]):
    """An asynchronous generator that is asked from another thread, and may be closed while it works."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._turn = asyncio.Lock()

    @classmethod
    async def of(cls, make: Callable[[slate.Environment], AsyncGenerator[T, None]], env: slate.Environment) -> Self:
        """On the loop."""
        return cls(make(env))

    async def next(self) -> T:
        """The next item, `_END` after the last one."""
        async with self._turn:
            return await anext(self._items, _END)

    async def close(self) -> None:
        """After what is under way, which is cancelled."""
        async with self._turn:
            await self._items.aclose()
