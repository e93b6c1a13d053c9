"""`Writes`: what a database and a namespace offer alike to their writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration
from slate_async.database import db as asynchronous
from slate_async.database import transact
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.namespaces import namespace as asynchronous_namespace
from slate_async.database.transaction import Isolation
from slate_async.engine.transactions.condition import DeleteConditions, PutConditions
from slate_async.engine.write.batch import WriteBatch
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.map import Map
from slate_async.sync.transaction import Transaction, repeated
from slate_async.sync.write_handle import UpdateHandle, WriteHandle

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Writes:
    """Writes, typed maps and transactions on what the loop has open. Keys, and the default of ``ttl``, are those of
    the database or of the namespace. The class that inherits them sets both attributes."""

    _loop: LoopThread
    _writes: asynchronous.Db | asynchronous_namespace.Namespace

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> WriteHandle:
        """Set ``key`` to ``value``. Returns once that is durable, or visible in memory with ``await_durable=False``.
        Without ``ttl`` the default counts.

        conditions: ``if_absent``, ``if_seq`` or ``if_value``; if it does not hold, `ConflictError`"""
        made = self._loop.run(self._writes.put, key, value, ttl=ttl, await_durable=await_durable, **conditions)
        return WriteHandle(self._loop, made)

    def delete(
        self, key: BytesLike, *, await_durable: bool = True, **conditions: Unpack[DeleteConditions]
    ) -> WriteHandle:
        """Remove ``key``; no error if it is not there, but with a condition. Otherwise as `put`."""
        made = self._loop.run(self._writes.delete, key, await_durable=await_durable, **conditions)
        return WriteHandle(self._loop, made)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> WriteHandle:
        """Merge ``operand`` into ``key`` without reading it, by the database's merge operator."""
        made = self._loop.run(self._writes.merge, key, operand, ttl=ttl, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> UpdateHandle:
        """Set ``key`` to what ``function`` makes of its value; ``None`` deletes it. ``function`` is called in the
        loop's thread, and may be called again."""
        made = self._loop.run(self._writes.update, key, function, ttl=ttl, await_durable=await_durable)
        return UpdateHandle(self._loop, made)

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
        call = partial(self._writes.increment, ttl=ttl, token=token, token_ttl=token_ttl)
        return self._loop.run(call, key, by, await_durable=await_durable)

    def touch(self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True) -> UpdateHandle:
        """Let the row of ``key`` live for ``ttl`` from now on, or for the default."""
        made = self._loop.run(self._writes.touch, key, ttl=ttl, await_durable=await_durable)
        return UpdateHandle(self._loop, made)

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
        return Map(self._loop, self._writes.map(name, key=key, value=value, indexes=indexes, default_ttl=default_ttl))

    def transaction(self, *, isolation: Isolation = "serializable", await_durable: bool = True) -> Transaction:
        """A transaction that begins now. Use ``with``: the end of the block commits, an error gives up."""
        made = self._loop.call(self._writes.transaction, isolation=isolation, await_durable=await_durable)
        return Transaction(self._loop, made)

    def transact(
        self,
        function: Callable[[Transaction], T],
        *,
        retries: int = transact.RETRIES,
        isolation: Isolation = "serializable",
        await_durable: bool = True,
    ) -> T:
        """Run ``function``, in this thread, with a transaction and commit that; on a conflict again, up to ``retries``
        times. Returns what ``function`` returned."""
        return repeated(self._loop, self._writes.transact, function, retries, isolation, await_durable)

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> WriteHandle:
        """Apply the rows of ``batch`` atomically."""
        return WriteHandle(self._loop, self._loop.run(self._writes.write, batch, await_durable=await_durable))

    def delete_range(
        self, start: BytesLike | None, end: BytesLike | None, *, await_durable: bool = True
    ) -> WriteHandle:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive); ``None`` is unbounded."""
        made = self._loop.run(self._writes.delete_range, start, end, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def delete_prefix(self, prefix: BytesLike, *, await_durable: bool = True) -> WriteHandle:
        """Remove all keys that begin with ``prefix``."""
        made = self._loop.run(self._writes.delete_prefix, prefix, await_durable=await_durable)
        return WriteHandle(self._loop, made)
