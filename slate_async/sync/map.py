"""`Map`, `MapView`, `MapTransaction` and `IndexReads`: rows of a database as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from slate_async.arguments import Duration
from slate_async.codec.tuple_key import KeyPart
from slate_async.database.maps import by_index as asynchronous_index
from slate_async.database.maps import map as asynchronous
from slate_async.database.maps import within as asynchronous_within
from slate_async.database.maps.build import BuildProgress
from slate_async.database.maps.page import PAGE_ROWS, Page
from slate_async.database.maps.reads import MapReads as AsynchronousReads
from slate_async.database.maps.within import MapBatch
from slate_async.engine.write.batch import WriteBatch
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.snapshot import Snapshot
from slate_async.sync.transaction import Transaction
from slate_async.sync.write_handle import WriteHandle

K = TypeVar("K")
V = TypeVar("V")


class IndexReads(Generic[K, V]):
    """Made by `Map.by`. Methods and errors are those of `slate_async.IndexReads`."""

    def __init__(self, loop: LoopThread, reads: asynchronous_index.IndexReads[K, V]) -> None:
        self._loop = loop
        self._reads = reads

    def get(self, *parts: KeyPart, durable: bool = False) -> V | None:
        """The value of the row that has ``parts`` in this unique index, or ``None``."""
        return self._loop.run(self._reads.get, *parts, durable=durable)

    def key(self, *parts: KeyPart, durable: bool = False) -> K | None:
        """The key of the row that has ``parts`` in this unique index, or ``None``."""
        return self._loop.run(self._reads.key, *parts, durable=durable)

    def page(
        self,
        *,
        after: str | None = None,
        limit: int = PAGE_ROWS,
        prefix: tuple[KeyPart, ...] = (),
        reverse: bool = False,
        durable: bool = False,
    ) -> Page[K, V]:
        """The next ``limit`` rows, at most 10,000, in the order of the index, whose parts there begin with
        ``prefix``."""
        return self._loop.run(
            self._reads.page, after=after, limit=limit, prefix=prefix, reverse=reverse, durable=durable
        )

    def __repr__(self) -> str:
        return repr(self._reads).replace("<", "<sync ", 1)


class MapReads(Generic[K, V]):
    """What a map offers alike on a database, a reader, a snapshot and in a transaction."""

    def __init__(self, loop: LoopThread, seen: AsynchronousReads[K, V]) -> None:
        self._loop = loop
        self._seen = seen
        self.name = seen.name

    name: str
    """As it was given."""

    def get(self, key: K, *, durable: bool = False) -> V | None:
        """The value of ``key``, or ``None``."""
        return self._loop.run(self._seen.get, key, durable=durable)

    def get_many(self, keys: Iterable[K], *, durable: bool = False) -> list[V | None]:
        """The values of ``keys`` in their order, all of one read point."""
        return self._loop.run(self._seen.get_many, keys, durable=durable)

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
        return self._loop.run(
            self._seen.page, after=after, limit=limit, prefix=prefix, reverse=reverse, durable=durable
        )

    def by(self, index: str) -> IndexReads[K, V]:
        """Its rows as the index finds them."""
        return IndexReads(self._loop, self._seen.by(index))

    def __repr__(self) -> str:
        return repr(self._seen).replace("<", "<sync ", 1)


class MapView(MapReads[K, V]):
    """A map that is only read: of a `DbReader`, or within a snapshot."""

    def __init__(self, loop: LoopThread, view: asynchronous_within.MapView[K, V]) -> None:
        super().__init__(loop, view)
        self._view = view

    def within(self, snapshot: Snapshot) -> MapView[K, V]:
        """The map as ``snapshot`` has it, which is one of the same reader."""
        return MapView(self._loop, self._view.within(snapshot._snapshot))


class MapTransaction(MapReads[K, V]):
    """A map in a transaction: made by `Map.within`. Reads are the transaction's, and see its own writes."""

    def __init__(self, loop: LoopThread, made: asynchronous_within.MapTransaction[K, V]) -> None:
        super().__init__(loop, made)
        self._made = made

    def put(self, key: K, value: V, *, ttl: Duration | None = None, if_absent: bool = False) -> None:
        """Set ``key`` when the transaction commits. Raises `UniqueError`."""
        self._loop.run(self._made.put, key, value, ttl=ttl, if_absent=if_absent)

    def delete(self, key: K) -> None:
        """Remove ``key`` when the transaction commits; no error if it is not there."""
        self._loop.run(self._made.delete, key)

    def update(self, key: K, function: Callable[[V | None], V | None], *, ttl: Duration | None = None) -> V | None:
        """Set ``key`` to what ``function`` makes of its value when the transaction commits; ``None`` deletes it."""
        return self._loop.run(self._made.update, key, function, ttl=ttl)


class Map(MapReads[K, V]):
    """Made by `Db.map`. Methods and errors are those of `slate_async.Map`."""

    def __init__(self, loop: LoopThread, made: asynchronous.Map[K, V]) -> None:
        super().__init__(loop, made)
        self._map = made

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

    def touch(self, key: K, *, ttl: Duration | None = None, await_durable: bool = True) -> bool:
        """Let the row of ``key`` live for ``ttl`` from now on, or for the default; whether it is there."""
        return self._loop.run(self._map.touch, key, ttl=ttl, await_durable=await_durable)

    @overload
    def within(self, place: Transaction) -> MapTransaction[K, V]: ...
    @overload
    def within(self, place: WriteBatch) -> MapBatch[K, V]: ...
    @overload
    def within(self, place: Snapshot) -> MapView[K, V]: ...
    def within(
        self, place: Transaction | WriteBatch | Snapshot
    ) -> MapTransaction[K, V] | MapBatch[K, V] | MapView[K, V]:
        """The map in a transaction, a batch or a snapshot of its database."""
        if isinstance(place, Transaction):
            return MapTransaction(self._loop, self._map.within(place._transaction))
        if isinstance(place, Snapshot):
            return MapView(self._loop, self._map.within(place._snapshot))
        return self._map.within(place)

    def build(self, *, progress: Callable[[BuildProgress], object] | None = None) -> int:
        """Build the indexes that are declared and not built; how many rows that took. ``progress`` is called in the
        loop's thread."""
        return self._loop.run(self._map.build, progress=progress)

    def drop_index(self, name: str) -> int:
        """Drop an index that is stored; how many entries it had."""
        return self._loop.run(self._map.drop_index, name)
