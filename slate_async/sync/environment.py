"""`Environment`: what the databases of one process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from slate_async.database import environment as asynchronous
from slate_async.database import handle
from slate_async.database.open import called_like
from slate_async.database.opener import Opener
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.loop_thread import LoopThread
from slate_async.runtime.opening import Opening
from slate_async.sync.admin import Admin
from slate_async.sync.compactor import DbCompactor
from slate_async.sync.db import Db
from slate_async.sync.garbage_collector import GarbageCollector
from slate_async.sync.handle import opened, shared_loop
from slate_async.sync.ingest import IngestJob, IngestTask
from slate_async.sync.reader import DbReader

P = ParamSpec("P")
S = TypeVar("S")
H = TypeVar("H", bound=handle.Handle)


def _without_await(
    method: Callable[Concatenate[asynchronous.Environment, P], Opening[H]], facade: Callable[[LoopThread, H], S]
) -> Callable[Concatenate[Environment, P], S]:
    """What ``method`` opens in the environment of the loop, as a ``facade``."""

    def call(self: Environment, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return facade(*opened(partial(method, self._shared, *args, **kwargs)))

    return called_like(method, call, returns=facade)


class Environment:
    """As `slate_async.Environment`: ``with``, or `close`, which closes its databases. One that is open when the
    interpreter ends is closed then."""

    open = _without_await(Opener.open, Db)
    open_reader = _without_await(Opener.open_reader, DbReader)
    open_admin = _without_await(Opener.open_admin, Admin)
    open_compactor = _without_await(Opener.open_compactor, DbCompactor)
    open_gc = _without_await(Opener.open_gc, GarbageCollector)
    open_ingest = _without_await(Opener.open_ingest, IngestJob)
    open_ingest_task = _without_await(Opener.open_ingest_task, IngestTask)

    def __init__(
        self,
        *,
        block_cache_bytes: int | None = None,
        threads: int | None = None,
        stores: Mapping[str, ObjectStore] | None = None,
        close_deadline_ms: int = 60_000,
    ) -> None:
        self._loop = shared_loop()
        self._shared = asynchronous.Environment(
            block_cache_bytes=block_cache_bytes, threads=threads, stores=stores, close_deadline_ms=close_deadline_ms
        )
        self._loop.at_end(self, self._shared.close)

    def close(self) -> None:
        """Close what is still open of it, then give up threads and polling. Idempotent."""
        try:
            self._loop.run(self._shared.close)
        finally:
            self._loop.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._shared.__aexit__, kind, error, traceback)
        finally:
            self._loop.forget(self)

    def __repr__(self) -> str:
        return repr(self._shared).replace("<", "<sync ", 1)
