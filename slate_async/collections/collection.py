"""`Collection`: one collection of a `Lake` by its name, and what is opened on it. It sends nothing until it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

from slate_async.arguments import check_kinds
from slate_async.collections.codec.life import Life
from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.controller.executor import Executor
from slate_async.collections.controller.standby import StandbyController
from slate_async.collections.core.names import check_name
from slate_async.collections.expiring import expire
from slate_async.collections.info import CollectionInfo, info_of
from slate_async.collections.lake_context import LakeContext
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.overview.look import look
from slate_async.collections.overview.views import Overview
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.critical import CriticalHandle, open_critical
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.verify.report import CollectionVerifyProgress, CollectionVerifyReport
from slate_async.collections.verify.verifier import verify
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.errors import ClosedError, CorruptionError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import LoopHandle, called
from slate_async.runtime.opening import Opening
from slate_async.runtime.shared import Shared, Taken
from slate_async.types import finding_of

H = TypeVar("H", bound=LoopHandle)


class Handles(Protocol):
    """What knows the handles that are open, to close them when it closes.

    _standbys: controllers in waiting, of the lives that are written; ``None`` if this process is never to be one
    """

    _standbys: Shared[StandbyController] | None

    def _check_open(self) -> None:
        """Raise unless something may be opened now."""

    def _opened(self, handle: LoopHandle) -> None:
        """``handle`` is open."""

    def _keep(self, name: str, life: Life) -> LifeStores:
        """What is used of ``life`` by what needs no closing, until it closes."""


class Collection:
    """Made by `Lake.collection`; needs no closing. What it opens is closed when the lake is."""

    def __init__(self, name: str, context: LakeContext, handles: Handles) -> None:
        self._name = check_name(name, "collection")
        self._context = context
        self._handles = handles

    def __repr__(self) -> str:
        return f"<Collection {self._context.url}/{self._name}>"

    @property
    def name(self) -> str:
        """In its lake."""
        return self._name

    async def info(self) -> CollectionInfo:
        """What it holds, as it was created. Raises `NotFoundError`, `UnavailableError`."""
        self._handles._check_open()
        return info_of(self._name, await self._context.find(self._name))

    def writer(self, name: str = "main") -> Opening[Writer]:
        """Open a writer: await it, or enter it with ``async with``.

        name: of the writer, 1 to 64 of a-z, 0-9 and -. Two processes may write under one name, for one may stand in
        for the other. In a ``compare`` collection it changes nothing

        Raises `NotFoundError`, `InvalidError`, `UnavailableError`."""
        check_name(name, "writer")

        async def begin(stores: LifeStores) -> Writer:
            parallelism = stores.settings.flush_parallelism
            writer = await open_writer(stores.writing(name), stores.appends, flush_parallelism=parallelism)
            self._stand_by(stores, writer)
            return writer

        return self._opening(begin, "a writer", "collection.writer(...)")

    def reader(self, note: str = "") -> Opening[ReadHandle]:
        """Open a read handle with a lease of its own: await it, or enter it with ``async with``.

        note: stored with its hold, for people

        Raises `NotFoundError`, `InvalidError` beyond ``max_holds``, `UnavailableError`."""
        check_kinds(("note", isinstance(note, str), note, "a str"))

        async def begin(stores: LifeStores) -> ReadHandle:
            return await open_reader(self._reading(stores), note)

        return self._opening(begin, "a reader", "collection.reader(...)")

    async def critical(self, name: str, note: str = "") -> CriticalHandle:
        """The critical hold called ``name``: the one that is stored, or a new one at what may be read now. It keeps its
        times readable, without a lease, until `CriticalHandle.expire`. It needs no closing, and ends with the lake.

        name: 1 to 64 of a-z, 0-9 and -
        note: stored with a new one, for people

        Raises `NotFoundError`, `InvalidError`, `UnavailableError`."""
        check_kinds(("note", isinstance(note, str), note, "a str"))
        self._handles._check_open()
        stores = self._handles._keep(self._name, await self._context.find(self._name))
        try:
            return await open_critical(self._reading(stores), name, note)
        except ClosedError as error:
            self._handles._check_open()
            raise self._context.deleted(self._name) from error

    def controller(self, *, background: bool = True, executor: Executor | None = None) -> Opening[Controller]:
        """Become the controller of this collection: await it, or enter it with ``async with``. One that works
        elsewhere is fenced.

        background: work all the time; else only when a method is called
        executor: runs the merges; this process by default

        Raises `NotFoundError`, `UnavailableError`."""
        check_kinds(("background", isinstance(background, bool), background, "True or False"))

        async def begin(stores: LifeStores) -> Controller:
            return await open_controller(controlling(stores), executor=executor, background=background)

        return self._opening(begin, "a controller", "collection.controller(...)")

    async def verify(
        self, *, on_progress: Callable[[CollectionVerifyProgress], None] | None = None
    ) -> CollectionVerifyReport:
        """Read all that is stored of it, beside those who use it, and report what is wrong.

        on_progress: called now and then, in the thread of the event loop

        Raises `NotFoundError`, `ClosedError` if it is deleted meanwhile, `LeaseLostError` if the hold under which it
        reads was revoked: verify again, `UnavailableError`."""
        try:
            async with self._stores() as stores:
                return await verify(stores.reading(), on_progress)
        except CorruptionError as error:  # its register
            return CollectionVerifyReport.unreadable(self._name, finding_of(error))

    async def inspect(self) -> Overview:
        """Its layers, shards, frontiers, holds and garbage now. Holds nothing and writes nothing.

        Raises `NotFoundError`, `CorruptionError`, `UnavailableError`."""
        async with self._stores() as stores:
            return await look(stores.reading(), stores.life.number, stores.life.created_ms)

    async def expire_reader(self, reader: str) -> None:
        """Take its hold from a reader that somebody left behind: what it still reads fails from then on. A hold whose
        bytes are damaged ends in this way, too, whatever it kept.

        reader: its name, as `inspect` shows it; of a critical hold the name that it was opened with

        Raises `NotFoundError`, `UnavailableError`: the hold may be taken."""
        async with self._stores() as stores:
            await expire(stores.reading(), reader)

    def _reading(self, stores: LifeStores) -> ReaderContext:
        """As `LifeStores.reading`; what is opened by it, clones too, is closed with the lake and keeps ``stores``."""

        def adopted(handle: LoopHandle) -> None:
            taken = Taken()
            self._context.take(self._name, stores.life, taken)
            handle._on_closed(taken.give_back)
            self._handles._opened(handle)

        return replace(stores.reading(), adopted=adopted)

    def _opening(self, begin: Callable[[LifeStores], Awaitable[H]], what: str, call: str) -> Opening[H]:
        async def start() -> H:
            self._handles._check_open()
            return await self._open(await self._context.find(self._name), begin)

        return Opening(start, what, call)

    def _stand_by(self, stores: LifeStores, writer: Writer) -> None:
        """Become the controller if what ``writer`` appends waits for one."""
        standbys = self._handles._standbys
        if standbys is None:
            return
        taken = Taken()
        standby = taken.take(standbys, stores.life.uuid, lambda: StandbyController(stores))
        writer._on_closed(called(standby.add(writer)))
        writer._on_closed(taken.give_back)

    async def _open(self, life: Life, begin: Callable[[LifeStores], Awaitable[H]]) -> H:
        """What ``begin`` opens on ``life``; what it takes is given back when that closes, or does not open."""
        taken = Taken()
        try:
            try:
                handle = await begin(self._context.take(self._name, life, taken))
            except ClosedError as error:
                self._handles._check_open()
                raise self._context.deleted(self._name) from error  # but for the register, which says so soon
        except BaseException:
            await run_to_completion(taken.give_back())
            raise
        handle._on_closed(taken.give_back)
        try:
            self._handles._opened(handle)
        except BaseException:  # the lake closed meanwhile
            await run_to_completion(handle._end())
            raise
        return handle

    @asynccontextmanager
    async def _stores(self) -> AsyncIterator[LifeStores]:
        """What is used of its life, for work that ends with the block. Raises `NotFoundError`."""
        self._handles._check_open()
        taken = Taken()
        try:
            yield self._context.take(self._name, await self._context.find(self._name), taken)
        finally:
            await run_to_completion(taken.give_back())
