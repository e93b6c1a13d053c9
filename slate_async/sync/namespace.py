"""`Namespace` and `NamespaceView`: a part of a database that looks like one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration
from slate_async.database import transact
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.namespaces import namespace as asynchronous
from slate_async.database.namespaces import reads as asynchronous_reads
from slate_async.database.transaction import Isolation
from slate_async.engine.changes.options import Initial
from slate_async.engine.read.row_statistics import RowStatistics
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.transactions.condition import PutConditions
from slate_async.engine.watch.options import OnLag, WatchFrom
from slate_async.engine.write.batch import WriteBatch
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.map import Map, MapView
from slate_async.sync.readable import Reads
from slate_async.sync.snapshot import Snapshot
from slate_async.sync.transaction import Transaction, repeated
from slate_async.sync.watch import Watch
from slate_async.sync.write_handle import UpdateHandle, WriteHandle

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class NamespaceReads(Reads):
    """What a namespace offers alike for the writer and for a reader."""

    def __init__(self, loop: LoopThread, namespace: asynchronous_reads.NamespaceReads[Any]) -> None:
        self._loop = loop
        self._reads = self._seen = namespace

    @property
    def prefix(self) -> bytes:
        """What stands before its keys in the database."""
        return self._seen.prefix

    def watch(
        self,
        *,
        prefix: BytesLike | None = None,
        from_seq: WatchFrom = "now",
        initial: Initial = "error",
        on_lag: OnLag = "feed",
    ) -> Watch:
        """Changes of the namespace as they become durable."""
        made = self._loop.call(self._seen.watch, prefix=prefix, from_seq=from_seq, initial=initial, on_lag=on_lag)
        return Watch(self._loop, made)

    def stats(self) -> RowStatistics:
        """`row_statistics` of all that is in the namespace, those below it included."""
        return self._loop.run(self._seen.stats)

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of everything written so far (with ``durable``: acknowledged so far)."""
        made = self._loop.call(self._seen.snapshot, durable=durable, include_expired=include_expired)
        return Snapshot(self._loop, made)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """The namespace as it was when ``seq`` was the database's newest sequence number, or at ``time``."""
        return Snapshot(self._loop, self._loop.call(self._seen.as_of, seq=seq, time=time))

    def __repr__(self) -> str:
        return repr(self._seen).replace("<", "<sync ", 1)


class NamespaceView(NamespaceReads):
    """A namespace as a reader sees it. Made by `DbReader.namespace`."""

    def __init__(self, loop: LoopThread, namespace: asynchronous_reads.NamespaceView) -> None:
        super().__init__(loop, namespace)
        self._view = namespace

    def namespace(self, name: str) -> NamespaceView:
        """The namespace ``name`` in this one."""
        return NamespaceView(self._loop, self._view.namespace(name))

    def map(
        self, name: str, *, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]] = ()
    ) -> MapView[K, V]:
        """The typed map ``name`` in this namespace."""
        return MapView(self._loop, self._view.map(name, key=key, value=value, indexes=indexes))


class Namespace(NamespaceReads):
    """Made by `Db.namespace`. Methods and errors are those of `slate_async.Namespace`."""

    def __init__(self, loop: LoopThread, namespace: asynchronous.Namespace) -> None:
        super().__init__(loop, namespace)
        self._namespace = namespace

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The namespace ``name`` in this one. Without ``default_ttl`` that of this one counts."""
        return Namespace(self._loop, self._namespace.namespace(name, default_ttl=default_ttl))

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> WriteHandle:
        """Set ``key`` to ``value``. Without ``ttl`` the default of the namespace counts, then that of the database.

        conditions: ``if_absent``, ``if_seq`` or ``if_value``; if it does not hold, `ConflictError`"""
        made = self._loop.run(self._namespace.put, key, value, ttl=ttl, await_durable=await_durable, **conditions)
        return WriteHandle(self._loop, made)

    def delete(
        self,
        key: BytesLike,
        *,
        await_durable: bool = True,
        if_seq: int | None = None,
        if_value: BytesLike | None = None,
    ) -> WriteHandle:
        """Remove ``key``; no error if it is not there, but with a condition."""
        made = self._loop.run(
            self._namespace.delete, key, await_durable=await_durable, if_seq=if_seq, if_value=if_value
        )
        return WriteHandle(self._loop, made)

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> UpdateHandle:
        """Set ``key`` to what ``function`` makes of its value; ``None`` deletes it."""
        made = self._loop.run(self._namespace.update, key, function, ttl=ttl, await_durable=await_durable)
        return UpdateHandle(self._loop, made)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> WriteHandle:
        """Merge ``operand`` into ``key`` without reading it, by the database's merge operator."""
        made = self._loop.run(self._namespace.merge, key, operand, ttl=ttl, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def increment(
        self,
        key: BytesLike,
        by: int = 1,
        *,
        ttl: Duration | None = None,
        token: BytesLike | None = None,
        token_ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> int:
        """Add ``by`` to the number in ``key``; the new number. Repeated with the same ``token``, it counts once."""
        call = partial(self._namespace.increment, ttl=ttl, token=token, token_ttl=token_ttl)
        return self._loop.run(call, key, by, await_durable=await_durable)

    def touch(self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True) -> UpdateHandle:
        """Let the row of ``key`` live for ``ttl`` from now on, or for the default."""
        made = self._loop.run(self._namespace.touch, key, ttl=ttl, await_durable=await_durable)
        return UpdateHandle(self._loop, made)

    def delete_range(
        self, start: BytesLike | None, end: BytesLike | None, *, await_durable: bool = True
    ) -> WriteHandle:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive); ``None`` is unbounded."""
        made = self._loop.run(self._namespace.delete_range, start, end, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def delete_prefix(self, prefix: BytesLike, *, await_durable: bool = True) -> WriteHandle:
        """Remove all keys that begin with ``prefix``."""
        made = self._loop.run(self._namespace.delete_prefix, prefix, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> WriteHandle:
        """Apply the rows of ``batch`` atomically."""
        return WriteHandle(self._loop, self._loop.run(self._namespace.write, batch, await_durable=await_durable))

    def map(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V] | ValueCodec[V],
        indexes: Iterable[Index[V]] = (),
        default_ttl: Duration | None = None,
    ) -> Map[K, V]:
        """The typed map called ``name``."""
        return Map(
            self._loop, self._namespace.map(name, key=key, value=value, indexes=indexes, default_ttl=default_ttl)
        )

    def transaction(self, *, isolation: Isolation = "serializable", await_durable: bool = True) -> Transaction:
        """A transaction that begins now, with the keys of the namespace."""
        made = self._loop.call(self._namespace.transaction, isolation=isolation, await_durable=await_durable)
        return Transaction(self._loop, made)

    def transact(
        self,
        function: Callable[[Transaction], T],
        *,
        retries: int = transact.RETRIES,
        isolation: Isolation = "serializable",
        await_durable: bool = True,
    ) -> T:
        """Run ``function``, in this thread, with a transaction of the namespace and commit that; on a conflict
        again."""
        return repeated(self._loop, self._namespace.transact, function, retries, isolation, await_durable)

    def clear(self) -> int:
        """Delete all that is in the namespace at this call, namespaces and maps in it included; how many rows."""
        return self._loop.run(self._namespace.clear)
