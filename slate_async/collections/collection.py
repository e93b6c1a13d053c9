"""`Collection`: one collection of a `Lake` by its name, and what is opened on it. It sends nothing until it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from slate_async.collections.codec.life import Life
from slate_async.collections.core.names import check_name
from slate_async.collections.info import CollectionInfo, info_of
from slate_async.collections.lake_context import LakeContext
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.errors import ClosedError, InvalidError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.opening import Opening
from slate_async.runtime.shared import Taken

H = TypeVar("H", bound=LoopHandle)


class Handles(Protocol):
    """What knows the handles that are open, to close them when it closes."""

    def check(self) -> None:
        """Raise unless something may be opened now."""

    def opened(self, handle: LoopHandle) -> None:
        """``handle`` is open."""


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
        self._handles.check()
        return info_of(self._name, await self._context.find(self._name))

    def writer(self, name: str = "main") -> Opening[Writer]:
        """Open a writer: await it, or enter it with ``async with``.

        name: of the writer, 1 to 64 of a-z, 0-9 and -. Two processes may write under one name, for one may stand in
        for the other. In a ``compare`` collection it changes nothing

        Raises `NotFoundError`, `InvalidError`, `UnavailableError`."""
        check_name(name, "writer")

        async def begin(stores: LifeStores) -> Writer:
            parallelism = stores.settings.flush_parallelism
            return await open_writer(stores.writing(name), stores.appends, flush_parallelism=parallelism)

        return self._opening(begin, "a writer", "collection.writer(...)")

    def reader(self, note: str = "") -> Opening[ReadHandle]:
        """Open a read handle with a lease of its own: await it, or enter it with ``async with``.

        note: stored with its hold, for people

        Raises `NotFoundError`, `UnavailableError`."""
        if not isinstance(note, str):
            raise InvalidError(f"note is a str, not {type(note).__name__}")

        async def begin(stores: LifeStores) -> ReadHandle:
            return await open_reader(stores.reading(), note)

        return self._opening(begin, "a reader", "collection.reader(...)")

    def _opening(self, begin: Callable[[LifeStores], Awaitable[H]], what: str, call: str) -> Opening[H]:
        async def start() -> H:
            self._handles.check()
            return await self._open(await self._context.find(self._name), begin)

        return Opening(start, what, call)

    async def _open(self, life: Life, begin: Callable[[LifeStores], Awaitable[H]]) -> H:
        """What ``begin`` opens on ``life``; what it takes is given back when that closes, or does not open."""
        taken = Taken()
        try:
            try:
                handle = await begin(self._context.take(self._name, life, taken))
            except ClosedError as error:
                self._handles.check()
                raise self._context.deleted(self._name) from error  # but for the register, which says so soon
        except BaseException:
            await run_to_completion(taken.give_back())
            raise
        handle._on_closed(taken.give_back)
        try:
            self._handles.opened(handle)
        except BaseException:  # the lake closed meanwhile
            await run_to_completion(handle._end())
            raise
        return handle

    @asynccontextmanager
    async def _stores(self) -> AsyncIterator[LifeStores]:
        """What is used of its life, for work that ends with the block. Raises `NotFoundError`."""
        self._handles.check()
        taken = Taken()
        try:
            yield self._context.take(self._name, await self._context.find(self._name), taken)
        finally:
            await run_to_completion(taken.give_back())
