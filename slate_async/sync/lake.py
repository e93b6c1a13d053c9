"""`open_collections`, `Lake` and `Collection` without ``await``."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Literal

import pyarrow as pa

from metastores.protocol import MetaStoreFactory
from slate_async.collections import collection, lake
from slate_async.collections import open as asynchronous
from slate_async.collections.controller.executor import Executor
from slate_async.collections.info import CollectionInfo, DamagedCollection
from slate_async.collections.overview.views import Overview
from slate_async.collections.verify.report import CollectionVerifyProgress, CollectionVerifyReport
from slate_async.objectstore.clients import StorePath
from slate_async.runtime.loop_thread import LoopThread
from slate_async.settings.collections import CollectionSettings
from slate_async.sync.collection_handles import Controller, ControllerService, CriticalHandle, ReadHandle, Writer
from slate_async.sync.environment import Environment
from slate_async.sync.loop_handle import LoopHandle, opened


def open_collections(
    path: StorePath,
    *,
    metastore: str | MetaStoreFactory | None = None,
    name: str | None = None,
    settings: CollectionSettings | None = None,
    environment: Environment | None = None,
    controller: bool = True,
) -> Lake:
    """As `slate_async.open_collections`: open when it returns. Use ``with``, or close it."""
    shared = None if environment is None else environment._shared
    opening = lambda: asynchronous.open_collections(  # noqa: E731 - one that is not awaited warns
        path, metastore=metastore, name=name, settings=settings, environment=shared, controller=controller
    )
    return Lake(*opened(opening))


class Collection:
    """As `slate_async.Collection`. What it opens is closed when the lake is."""

    def __init__(self, loop: LoopThread, made: collection.Collection) -> None:
        self._loop = loop
        self._collection = made

    def __repr__(self) -> str:
        return repr(self._collection).replace("<", "<sync ", 1)

    @property
    def name(self) -> str:
        """In its lake."""
        return self._collection.name

    def info(self) -> CollectionInfo:
        """What it holds, as it was created."""
        return self._loop.run(self._collection.info)

    def writer(self, name: str = "main") -> Writer:
        """A writer: use ``with``, or close it."""
        return Writer(*opened(lambda: self._collection.writer(name), self._loop))

    def reader(self, note: str = "") -> ReadHandle:
        """A read handle with a lease of its own: use ``with``, or expire it."""
        return ReadHandle(*opened(lambda: self._collection.reader(note), self._loop))

    def critical(self, name: str, note: str = "") -> CriticalHandle:
        """The critical hold called ``name``, which keeps its times readable without a lease."""
        return CriticalHandle(self._loop, self._loop.run(self._collection.critical, name, note))

    def controller(self, *, background: bool = True, executor: Executor | None = None) -> Controller:
        """Become its controller: use ``with``, or close it."""
        begin = lambda: self._collection.controller(background=background, executor=executor)  # noqa: E731
        return Controller(*opened(begin, self._loop))

    def verify(
        self, *, on_progress: Callable[[CollectionVerifyProgress], None] | None = None
    ) -> CollectionVerifyReport:
        """Read all that is stored of it and report what is wrong. ``on_progress`` is called in the loop's thread."""
        return self._loop.run(self._collection.verify, on_progress=on_progress)

    def inspect(self) -> Overview:
        """Its layers, shards, frontiers, holds and garbage now."""
        return self._loop.run(self._collection.inspect)

    def expire_reader(self, reader: str) -> None:
        """Take its hold from a reader that somebody left behind."""
        self._loop.run(self._collection.expire_reader, reader)


class Lake(LoopHandle[lake.Lake]):
    """As `slate_async.Lake`. Made by `open_collections`."""

    def __repr__(self) -> str:
        return repr(self._handle).replace("<", "<sync ", 1)

    @property
    def settings(self) -> CollectionSettings:
        """Of all that is opened in it."""
        return self._handle.settings

    def create(
        self,
        name: str,
        *,
        data: type[bytes] | pa.Schema = bytes,
        time: Literal["u64", "u64x2"] = "u64",
        appends: Literal["definite", "compare"] = "definite",
        note: str = "",
    ) -> ReadHandle:
        """Create the collection ``name``, or find it there, and open a read handle on it."""
        begin = lambda: self._handle.create(name, data=data, time=time, appends=appends, note=note)  # noqa: E731
        return ReadHandle(*opened(begin, self._loop))

    def collection(self, name: str) -> Collection:
        """The collection ``name``, whether it is there or not."""
        return Collection(self._loop, self._handle.collection(name))

    def list(self) -> builtins.list[CollectionInfo | DamagedCollection]:
        """All collections that were ever created here, in the order of their names."""
        return self._loop.run(self._handle.list)

    def delete(self, name: str, *, force: bool = False) -> None:
        """Delete the collection ``name`` and all that it holds."""
        self._loop.run(self._handle.delete, name, force=force)

    def controllers(self, names: builtins.list[str] | None = None) -> ControllerService:
        """Be the controller of all collections here, those to come included: use ``with``, or close it."""
        return ControllerService(*opened(lambda: self._handle.controllers(names), self._loop))

    def metrics(self) -> dict[str, int | float]:
        """Requests of the client that it shares, and handles that are open, by dotted name."""
        return self._loop.call(self._handle.metrics)

    def close(self) -> None:
        """Close all that was opened in it, then give up its clients. Idempotent."""
        self._end()
