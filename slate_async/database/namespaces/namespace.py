"""`Namespace`: a part of a database that looks like one: the keys below a prefix of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration, key_bytes, life_ms
from slate_async.database.maps.index import Index
from slate_async.database.maps.map import Map, MapHome
from slate_async.database.maps.map_type import map_type
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.namespaces.clearing import ScansAndWrites, delete_rows
from slate_async.database.namespaces.prefix import MAP, NAMESPACE, prefix_of, whole
from slate_async.database.namespaces.reads import NamespaceReads, OpenWatch
from slate_async.database.namespaces.transaction import NamespaceTransaction
from slate_async.database.transact import RETRIES, Transact, UpdateHandle
from slate_async.database.transaction import Isolation, Transaction
from slate_async.engine.transactions.condition import DeleteConditions, PutConditions
from slate_async.engine.write.batch import WriteBatch, deletion, prefixed
from slate_async.engine.write.commit_group import WriteHandle
from slate_async.engine.write.range_rows import range_of_prefix
from slate_async.engine.write.reads import WriterReads
from slate_async.errors import InvalidError

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Writes(ScansAndWrites, Protocol):
    """The writes of a database, as `slate_async.Db` has them."""

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> Coroutine[Any, Any, WriteHandle]:
        """See `slate_async.Db.put`."""

    def delete(
        self, key: BytesLike, *, await_durable: bool = True, **conditions: Unpack[DeleteConditions]
    ) -> Coroutine[Any, Any, WriteHandle]:
        """See `slate_async.Db.delete`."""

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """See `slate_async.Db.update`."""

    def touch(
        self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """See `slate_async.Db.touch`."""

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, WriteHandle]:
        """See `slate_async.Db.merge`."""

    def increment(
        self,
        key: BytesLike,
        by: int = 1,
        *,
        ttl: Duration | None = None,
        token: BytesLike | None = None,
        token_ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """See `slate_async.Db.increment`."""


class Namespace(NamespaceReads[WriterReads]):
    """Made by `Db.namespace`. Methods, arguments and errors are those of `Db`; keys are those of the namespace.

    It lives as long as the database's handle, and costs nothing: there may be any number, and several of one name. The
    ``key`` of a `ConflictError` is the database's, with the `prefix`."""

    def __init__(
        self,
        writes: Writes,
        reads: WriterReads,
        transact: Transact,
        open_watch: OpenWatch,
        prefix: bytes,
        default_ttl: Duration | None,
    ) -> None:
        if default_ttl is not None:
            life_ms(default_ttl)
        self._writes = writes
        self._reads = reads
        self._transact = transact
        self._open_watch = open_watch
        self._prefix = prefix
        self._default_ttl = default_ttl
        self._make = partial(NamespaceTransaction, prefix=prefix, default_ttl=default_ttl)

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The namespace ``name`` in this one. Without ``default_ttl`` that of this one counts."""
        prefix = self._prefix + prefix_of(NAMESPACE, name)
        inherited = self._default_ttl if default_ttl is None else default_ttl
        return Namespace(self._writes, self._reads, self._transact, self._open_watch, prefix, inherited)

    def map(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V] | ValueCodec[V],
        indexes: Iterable[Index[V]] = (),
        default_ttl: Duration | None = None,
    ) -> Map[K, V]:
        """The typed map ``name`` in this namespace: see `Db.map`."""
        kind = map_type(name, self._prefix + prefix_of(MAP, name), key, value, indexes)
        inherited = self._default_ttl if default_ttl is None else default_ttl
        return Map(kind, MapHome(self._writes, self._reads, self._transact), inherited)

    def _ttl(self, ttl: Duration | None) -> Duration | None:
        return self._default_ttl if ttl is None else ttl

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Set ``key`` to ``value``. Without ``ttl`` the default of the namespace counts, then that of the database.

        conditions: ``if_absent``, ``if_seq`` or ``if_value``; if it does not hold, `ConflictError`"""
        own = self._prefix + key_bytes(key)
        return self._writes.put(own, value, ttl=self._ttl(ttl), await_durable=await_durable, **conditions)

    def delete(
        self, key: BytesLike, *, await_durable: bool = True, **conditions: Unpack[DeleteConditions]
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Remove ``key``; no error if it is not there, but with a condition."""
        own = self._prefix + key_bytes(key)
        return self._writes.delete(own, await_durable=await_durable, **conditions)

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """Set ``key`` to what ``function`` makes of its value; ``None`` deletes it. As `Db.update`."""
        own = self._prefix + key_bytes(key)
        return self._writes.update(own, function, ttl=self._ttl(ttl), await_durable=await_durable)

    def touch(
        self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """Let the row of ``key`` live for ``ttl`` from now on, or for the default. As `Db.touch`."""
        own = self._prefix + key_bytes(key)
        return self._writes.touch(own, ttl=self._ttl(ttl), await_durable=await_durable)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Merge ``operand`` into ``key``. As `Db.merge`."""
        own = self._prefix + key_bytes(key)
        return self._writes.merge(own, operand, ttl=self._ttl(ttl), await_durable=await_durable)

    def increment(
        self,
        key: BytesLike,
        by: int = 1,
        *,
        ttl: Duration | None = None,
        token: BytesLike | None = None,
        token_ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """Add ``by`` to the number in ``key``; ``token`` is a key of the namespace. As `Db.increment`."""
        own = self._prefix + key_bytes(key)
        known = None if token is None else self._prefix + key_bytes(token)
        lives = {"ttl": self._ttl(ttl), "token_ttl": token_ttl if token is None else self._ttl(token_ttl)}
        return self._writes.increment(own, by, token=known, await_durable=await_durable, **lives)

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Apply the rows ``batch`` has at this call atomically."""
        if not isinstance(batch, WriteBatch):
            raise InvalidError(f"write takes a WriteBatch, not {type(batch).__name__}", outcome="not_applied")
        return self._writes.write(prefixed(batch, self._prefix, self._default_ttl), await_durable=await_durable)

    def delete_range(
        self, start: BytesLike | None, end: BytesLike | None, *, await_durable: bool = True
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive); ``None`` is unbounded. As
        `Db.delete_range`."""
        return self.write(deletion(start, end), await_durable=await_durable)

    def delete_prefix(self, prefix: BytesLike, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Remove all keys that begin with ``prefix``. As `Db.delete_prefix`."""
        return self.write(deletion(*range_of_prefix(prefix)), await_durable=await_durable)

    def transaction(self, *, isolation: Isolation = "serializable", await_durable: bool = True) -> Transaction:
        """A transaction that begins now, with the keys of the namespace. As `Db.transaction`.

        One that spans namespaces is the database's, with their `prefix` before keys."""
        return self._transact.begin(isolation, await_durable, self._make)

    def transact(
        self,
        function: Callable[[Transaction], Awaitable[T]],
        *,
        retries: int = RETRIES,
        isolation: Isolation = "serializable",
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, T]:
        """Run ``function`` with a transaction of the namespace and commit that; on a conflict again. As
        `Db.transact`."""
        return self._transact.transact(function, retries, isolation, await_durable, self._make)

    def clear(self, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Delete all that is in the namespace, namespaces and maps in it included, in one step: as `delete_range` of
        all of it.

        A database without a write-ahead log has no range deletes. There the rows that are there at this call are
        deleted in batches: others see the namespace become emptier, and a row that is written meanwhile stays or goes.
        After an error call it again"""
        if self._reads.writer.state.manifest.wal_enabled:
            return self.delete_range(None, None, await_durable=await_durable)
        return self._clear_by_key(await_durable)

    async def _clear_by_key(self, await_durable: bool) -> WriteHandle:
        handle = await delete_rows(self._writes, whole(self._prefix))
        if await_durable:
            await handle.durable()
        return handle

    def __repr__(self) -> str:
        return f"<Namespace {self._prefix!r}>"
