"""A map in a transaction, in a batch, and as it was or is elsewhere: for reading alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from slate_async.arguments import Duration, life_ms
from slate_async.database.maps.indexed_rows import IndexedRows
from slate_async.database.maps.map_type import MapType
from slate_async.database.maps.reads import MapReads
from slate_async.database.maps.rows import RowReads, SourceRows, TransactionRows, one_point
from slate_async.database.snapshot import Snapshot
from slate_async.database.transaction import Transaction
from slate_async.database.transaction_space import TransactionSpace
from slate_async.engine.read.source import ReadSource, SnapshotReads
from slate_async.engine.write.batch import WriteBatch
from slate_async.errors import ConflictError, InvalidError

K = TypeVar("K")
V = TypeVar("V")


class MapView(MapReads[K, V]):
    """A map that is only read: of a `DbReader`, or within a snapshot. ``durable`` changes nothing there."""

    def __init__(self, kind: MapType[K, V], reads: ReadSource) -> None:
        super().__init__(kind)
        self._reads = reads
        self._rows = SourceRows(reads)

    @contextmanager
    def _one_point(self, durable: bool) -> Iterator[RowReads]:
        if isinstance(self._reads, SnapshotReads):
            yield self._rows
            return
        with one_point(self._reads, durable) as rows:
            yield rows

    def within(self, snapshot: Snapshot) -> MapView[K, V]:
        """The map as ``snapshot`` has it, which is one of the same reader."""
        return view_within(self._kind, self._reads, snapshot)


def view_within(kind: MapType[K, V], reads: ReadSource, snapshot: object) -> MapView[K, V]:
    """The map in a snapshot of ``reads``. Raises `InvalidError` for any other."""
    if not isinstance(snapshot, Snapshot) or snapshot._reads._source is not reads:
        raise InvalidError(f"map {kind.name!r} is read within a snapshot of its own database, not {snapshot!r}")
    return MapView(kind, snapshot._reads)


def check_space(kind: MapType[K, V], tx: Transaction, space: TransactionSpace) -> None:
    """Raise `InvalidError` unless ``tx`` is a transaction of the map's own database."""
    if tx._space is not space:
        raise InvalidError(f"the transaction is not one of the database of map {kind.name!r}", outcome="not_applied")


class MapTransaction(MapReads[K, V]):
    """A map in a transaction: made by `Map.within`. Reads are the transaction's, and see its own writes. Writes of rows
    are awaited, because they look at indexes. An error of one leaves nothing of it in the transaction."""

    def __init__(self, kind: MapType[K, V], tx: Transaction, default_ttl: Duration | None) -> None:
        super().__init__(kind)
        self._tx = tx
        self._default_ttl = default_ttl
        self._rows = TransactionRows(tx)
        self._made: IndexedRows[V] | None = None

    @contextmanager
    def _one_point(self, durable: bool) -> Iterator[RowReads]:
        yield self._rows

    @property
    def _writes(self) -> IndexedRows[V]:
        if self._made is None:
            self._made = IndexedRows(self._kind, self._tx, self._default_ttl)
        return self._made

    async def put(self, key: K, value: V, *, ttl: Duration | None = None, if_absent: bool = False) -> None:
        """Set ``key`` when the transaction commits. Raises `UniqueError`, and with ``if_absent`` `ConflictError` if the
        key is there."""
        kind = self._kind
        row, data = kind.keys.pack_to_write(key), kind.encoded(value)
        entries = kind.entries(row, data)
        if ttl is not None:
            life_ms(ttl)
        if if_absent and await self._writes.get(row) is not None:
            raise present(kind, row)
        await self._writes.put(row, data, entries, ttl)

    async def delete(self, key: K) -> None:
        """Remove ``key`` when the transaction commits; no error if it is not there."""
        await self._writes.delete(self._keys.pack_to_write(key))

    async def update(
        self, key: K, function: Callable[[V | None], V | None], *, ttl: Duration | None = None
    ) -> V | None:
        """Set ``key`` to what ``function`` makes of its value when the transaction commits; ``None`` deletes it.
        Returns what it made."""
        row = self._keys.pack_to_write(key)
        data = await self._rows.get(self._prefix + row, False)
        made = function(None if data is None else self._kind.decoded(data, key, "not_applied"))
        if made is None:
            await self.delete(key)
        else:
            await self.put(key, made, ttl=ttl)
        return made


def present(kind: MapType[K, V], row: bytes) -> ConflictError:
    """Of a write that wants a row not to be there."""
    return ConflictError(
        f"row {kind.keys.unpack(row)!r} of map {kind.name!r} is there already",
        outcome="not_applied",
        key=kind.layout.rows + row,
        reason="present",
    )


class MapBatch(Generic[K, V]):
    """A map in a `WriteBatch`: made by `Map.within`. Keys and values are checked and copied at the call; the batch is
    then written as a transaction, and raises what that does: a `UniqueError`, or a `ConflictError` after many others.
    """

    def __init__(
        self, kind: MapType[K, V], batch: WriteBatch, space: TransactionSpace, default_ttl: Duration | None
    ) -> None:
        self._kind = kind
        self._batch = batch
        self._space = space
        self._default_ttl = default_ttl

    def put(self, key: K, value: V, *, ttl: Duration | None = None) -> None:
        """Set ``key``."""
        kind = self._kind
        row, data = kind.keys.pack_to_write(key), kind.encoded(value)
        entries = kind.entries(row, data)
        if ttl is not None:
            life_ms(ttl)

        async def step(tx: object) -> None:
            await self._rows(tx).put(row, data, entries, ttl)

        self._batch._add_step(step, len(kind.layout.rows) + len(row) + len(data))

    def delete(self, key: K) -> None:
        """Remove ``key``; no error if it is not there."""
        row = self._kind.keys.pack_to_write(key)

        async def step(tx: object) -> None:
            await self._rows(tx).delete(row)

        self._batch._add_step(step, len(self._kind.layout.rows) + len(row))

    def _rows(self, tx: object) -> IndexedRows[V]:
        assert isinstance(tx, Transaction)
        check_space(self._kind, tx, self._space)
        return IndexedRows(self._kind, tx, self._default_ttl)

    def __repr__(self) -> str:
        return f"<MapBatch of map {self._kind.name!r} in {self._batch!r}>"
