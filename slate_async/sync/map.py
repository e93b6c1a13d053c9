"""`Map`: rows of a database as objects: keys are tuples, values are models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from slate_async.arguments import Duration
from slate_async.database.maps import map as asynchronous
from slate_async.database.maps.map import PAGE_ROWS, Page
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.write_handle import WriteHandle

K = TypeVar("K")
V = TypeVar("V")


class Map(Generic[K, V]):
    """Made by `Db.map`. Methods and errors are those of `slate_async.Map`."""

    def __init__(self, loop: LoopThread, made: asynchronous.Map[K, V]) -> None:
        self._loop = loop
        self._map = made
        self.name = made.name

    name: str
    """As it was given."""

    def get(self, key: K, *, durable: bool = False) -> V | None:
        """The value of ``key``, or ``None``."""
        return self._loop.run(self._map.get, key, durable=durable)

    def get_many(self, keys: Sequence[K], *, durable: bool = False) -> list[V | None]:
        """The values of ``keys`` in their order, all of one read point."""
        return self._loop.run(self._map.get_many, keys, durable=durable)

    def put(
        self, key: K, value: V, *, ttl: Duration | None = None, await_durable: bool = True, if_absent: bool = False
    ) -> WriteHandle:
        """Set ``key`` to ``value``; with ``if_absent`` only if the key is not there, else `ConflictError`."""
        made = self._loop.run(self._map.put, key, value, ttl=ttl, await_durable=await_durable, if_absent=if_absent)
        return WriteHandle(self._loop, made)

    def delete(self, key: K, *, await_durable: bool = True) -> WriteHandle:
        """Remove ``key``; no error if it is not there."""
        return WriteHandle(self._loop, self._loop.run(self._map.delete, key, await_durable=await_durable))

    def update(
        self,
        key: K,
        function: Callable[[V | None], V | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> V | None:
        """Set ``key`` to what ``function`` makes of its value; ``None`` deletes it. Returns what it made. ``function``
        is called in the loop's thread, and may be called again."""
        return self._loop.run(self._map.update, key, function, ttl=ttl, await_durable=await_durable)

    def page(
        self,
        *,
        after: str | None = None,
        limit: int = PAGE_ROWS,
        prefix: tuple[Any, ...] = (),
        reverse: bool = False,
        durable: bool = False,
    ) -> Page[K, V]:
        """The next ``limit`` rows, at most 10,000, whose keys begin with the parts ``prefix``. ``after``: `Page.next`
        of the page before."""
        return self._loop.run(self._map.page, after=after, limit=limit, prefix=prefix, reverse=reverse, durable=durable)

    def __repr__(self) -> str:
        return repr(self._map).replace("<", "<sync ", 1)
