"""`Db`: a database as its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration
from slate_async.database import db as asynchronous
from slate_async.database import transact
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.status import Status
from slate_async.database.transaction import Isolation
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.transactions.condition import PutConditions
from slate_async.engine.write.batch import WriteBatch
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.checkpoints import Checkpoints
from slate_async.sync.map import Map
from slate_async.sync.namespace import Namespace
from slate_async.sync.open_database import OpenDatabase
from slate_async.sync.transaction import Transaction, repeated
from slate_async.sync.write_handle import UpdateHandle, WriteHandle

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Db(OpenDatabase[asynchronous.Db]):
    """Made by `slate_async.sync.open`, never directly. Methods and errors are those of `slate_async.Db`."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""

    def __init__(self, loop: LoopThread, db: asynchronous.Db) -> None:
        super().__init__(loop, db)
        self.checkpoints = Checkpoints(loop, db.checkpoints)

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
        conditions: ``if_absent``, ``if_seq`` or ``if_value``; if it does not hold, `ConflictError`"""
        made = self._loop.run(
            self._handle.put,
            key,
            value,
            ttl=ttl,
            await_durable=await_durable,
            **conditions,
        )
        return WriteHandle(self._loop, made)

    def delete(
        self,
        key: BytesLike,
        *,
        await_durable: bool = True,
        if_seq: int | None = None,
        if_value: BytesLike | None = None,
    ) -> WriteHandle:
        """Remove ``key``; no error if it is not there, but with a condition. Otherwise as `put`."""
        made = self._loop.run(self._handle.delete, key, await_durable=await_durable, if_seq=if_seq, if_value=if_value)
        return WriteHandle(self._loop, made)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> WriteHandle:
        """Merge ``operand`` into ``key`` without reading it, by the database's merge operator."""
        made = self._loop.run(self._handle.merge, key, operand, ttl=ttl, await_durable=await_durable)
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
        made = self._loop.run(self._handle.update, key, function, ttl=ttl, await_durable=await_durable)
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
        call = partial(self._handle.increment, ttl=ttl, token=token, token_ttl=token_ttl)
        return self._loop.run(call, key, by, await_durable=await_durable)

    def touch(self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True) -> UpdateHandle:
        """Let the row of ``key`` live for ``ttl`` from now on; without, for the setting ``default_ttl_ms``."""
        made = self._loop.run(self._handle.touch, key, ttl=ttl, await_durable=await_durable)
        return UpdateHandle(self._loop, made)

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The part of the database called ``name``: the same calls for keys below a prefix."""
        return Namespace(self._loop, self._handle.namespace(name, default_ttl=default_ttl))

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
        return Map(self._loop, self._handle.map(name, key=key, value=value, indexes=indexes, default_ttl=default_ttl))

    def transaction(self, *, isolation: Isolation = "serializable", await_durable: bool = True) -> Transaction:
        """A transaction that begins now. Use ``with``: the end of the block commits, an error gives up."""
        made = self._loop.call(self._handle.transaction, isolation=isolation, await_durable=await_durable)
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
        return repeated(self._loop, self._handle.transact, function, retries, isolation, await_durable)

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> WriteHandle:
        """Apply the rows of ``batch`` atomically."""
        return WriteHandle(self._loop, self._loop.run(self._handle.write, batch, await_durable=await_durable))

    def delete_range(
        self, start: BytesLike | None, end: BytesLike | None, *, await_durable: bool = True
    ) -> WriteHandle:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive); ``None`` is unbounded."""
        made = self._loop.run(self._handle.delete_range, start, end, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def delete_prefix(self, prefix: BytesLike, *, await_durable: bool = True) -> WriteHandle:
        """Remove all keys that begin with ``prefix``."""
        made = self._loop.run(self._handle.delete_prefix, prefix, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def flush(self, *, l0: bool = False) -> None:
        """Make everything written so far durable. ``l0=True`` also moves it out of the log into an L0 SST."""
        self._loop.run(self._handle.flush, l0=l0)

    def compact(
        self,
        *,
        full: bool = False,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        level: int | None = None,
        progress: EventSink | None = None,
    ) -> int:
        """Flush to L0 and compact now; how many compactions and moves that took. ``progress`` is called in the loop's
        thread."""
        return self._loop.run(self._handle.compact, full=full, start=start, end=end, level=level, progress=progress)

    def confirm(self) -> None:
        """Check that this is still the database's writer right now."""
        self._loop.run(self._handle.confirm)

    def status(self) -> Status:
        """The database's state now. Works after closing, too."""
        return self._loop.call(self._handle.status)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
