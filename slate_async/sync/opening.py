"""Opening without ``await``, in the loop of this process: what `slate_async` opens, behind the facade of its class.

The arguments are those of the functions of `slate_async`, which `slate_async.database.opener.Opener` declares.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from slate_async.database import handle
from slate_async.database import open as asynchronous
from slate_async.database.open import called_like
from slate_async.runtime.loop_thread import LoopThread
from slate_async.runtime.opening import Opening
from slate_async.sync.admin import Admin
from slate_async.sync.compactor import DbCompactor
from slate_async.sync.db import Db
from slate_async.sync.garbage_collector import GarbageCollector
from slate_async.sync.handle import opened
from slate_async.sync.ingest import IngestJob, IngestTask
from slate_async.sync.reader import DbReader

P = ParamSpec("P")
S = TypeVar("S")
H = TypeVar("H", bound=handle.Handle)


def without_await(function: Callable[P, Opening[H]], facade: Callable[[LoopThread, H], S]) -> Callable[P, S]:
    """What ``function`` opens, as a ``facade``."""

    def call(*args: P.args, **kwargs: P.kwargs) -> S:
        return facade(*opened(partial(function, *args, **kwargs)))

    return called_like(function, call, returns=facade)


open = without_await(asynchronous.open, Db)
open_reader = without_await(asynchronous.open_reader, DbReader)
open_admin = without_await(asynchronous.open_admin, Admin)
open_compactor = without_await(asynchronous.open_compactor, DbCompactor)
open_gc = without_await(asynchronous.open_gc, GarbageCollector)
open_ingest = without_await(asynchronous.open_ingest, IngestJob)
open_ingest_task = without_await(asynchronous.open_ingest_task, IngestTask)
