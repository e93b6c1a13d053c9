"""What all parts of the suite share: opening the store under test, and expecting refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from slate_async.errors import SlateError
from slate_async.objectstore.protocol import ObjectStore

T = TypeVar("T")


class ConformanceBase:
    """Subclasses say how to open the store; class attributes tune how long the suite takes."""

    racers = 50
    rounds = 20
    increments = 100
    """Successful increments of the compare-and-set counter."""
    many_keys = 1_100
    """More than one page of any store."""
    large_bytes = 9 * 1024 * 1024
    parallelism = 32
    """Requests in flight where a test needs many objects."""

    async def make_store(self) -> ObjectStore:
        """A new, empty store; the suite closes it. To be overridden."""
        raise NotImplementedError("subclass ObjectStoreConformance and define make_store")

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        """Another handle on the same objects, as another process would have; races use both. ``store`` itself
        (the default) tests one handle only."""
        return store

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ObjectStore]:
        """The store of one test."""
        store = await self.make_store()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[ObjectStore, ObjectStore]]:
        """The store of one test and its peer."""
        async with self.opened() as store:
            peer = await self.make_peer(store)
            try:
                yield store, peer
            finally:
                if peer is not store:
                    await peer.close()

    async def put_many(self, store: ObjectStore, keys: Sequence[str]) -> None:
        """Put small objects, several at a time."""
        for first in range(0, len(keys), self.parallelism):
            await asyncio.gather(*(store.put(key, b"x") for key in keys[first : first + self.parallelism]))

    @contextmanager
    def refused(self, kind: type[SlateError]) -> Iterator[None]:
        """The body must raise ``kind``."""
        try:
            yield
        except kind:
            return
        raise AssertionError(f"{kind.__name__} was not raised")


async def outcome_of(work: Awaitable[T]) -> T | SlateError:
    """What ``work`` returned or the error of this package it raised."""
    try:
        return await work
    except SlateError as error:
        return error


async def keys_of(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    """All listed keys."""
    return [info.key async for info in store.list(prefix, start_after=start_after)]
