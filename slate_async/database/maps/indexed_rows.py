"""Writes of rows of a map in a transaction, with all entries of its indexes.

| step | reads | writes |
|---|---|---|
| 1 | the catalogue, which has to name the indexes that are declared | those it lacks, as ``building`` |
| 2 | the row that is replaced, and for unique indexes the entries that come and go | nothing |
| 3 | nothing | the row and its new entries, with one time to live; the entries that go |

Invariant: at every sequence number from its registration on, an index has the entries of all rows that were written
since, and of those before as far as it is built. What step 1 and 2 read is judged by the commit, so a row that was
written meanwhile, or an index that was registered or dropped, is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from slate_async.arguments import Duration, key_bytes
from slate_async.database.maps.catalogue import Catalogue, StoredIndex, check, encoded
from slate_async.database.maps.errors import UniqueError
from slate_async.database.maps.index import IndexEntries
from slate_async.database.maps.layout import END
from slate_async.database.maps.map_type import MapType
from slate_async.database.maps.rows import TransactionRows
from slate_async.database.transaction import Transaction
from slate_async.errors import InvalidError

V = TypeVar("V")
FOREVER = float("inf")
Entries = dict[str, bytes | None]
"""Of a row, by index."""


class IndexedRows(Generic[V]):
    """Rows of one map in one transaction. Raises `InvalidError` unless that tracks what it reads."""

    def __init__(self, kind: MapType[Any, V], tx: Transaction, default_ttl: Duration | None) -> None:
        if not tx._serializable:
            raise InvalidError(
                f'map {kind.name!r} is written in transactions with isolation="serializable"', outcome="not_applied"
            )
        self._kind = kind
        self._tx = tx
        self._default_ttl = default_ttl
        self._stored: Catalogue | None = None

    async def admit(self) -> Catalogue:
        """The catalogue, once it is known that this map may be written as it is declared."""
        if self._stored is None:
            kind, tx = self._kind, self._tx
            stored = kind.catalogue_of(await Transaction.get(tx, kind.layout.catalogue))
            check(kind.name, kind.indexes, stored)
            missing = kind.indexes.keys() - stored.keys()
            if missing:
                await tx._space.plain_writes.end(kind.layout.prefix)
                rows = kind.layout.rows
                empty = not await TransactionRows(tx).pairs(rows, rows + END, False, 1, False)
                for name in missing:
                    index = kind.indexes[name]
                    stored[name] = StoredIndex(index.unique, index.version, "ready" if empty else "building")
                self.keep(stored)
            self._stored = stored
        return self._stored

    def keep(self, catalogue: Catalogue) -> None:
        """Store the catalogue."""
        Transaction.put(self._tx, self._kind.layout.catalogue, encoded(catalogue), ttl=FOREVER)

    async def get(self, row: bytes) -> bytes | None:
        """The value of the row with the packed key ``row``."""
        return await Transaction.get(self._tx, self._kind.layout.rows + row)

    async def put(self, row: bytes, data: bytes, entries: Entries, ttl: Duration | None) -> None:
        """Set the row. Raises `UniqueError`; after any error nothing of it is in the transaction."""
        await self.admit()
        outdated = await self._outdated(row, entries)
        for name, entry in entries.items():
            if entry is not None and self._kind.indexes[name].unique:
                await self._check_unique(self._kind.indexes[name], entry, row)
        life = self._default_ttl if ttl is None else ttl
        tx = self._tx
        for key in entries.values():
            if key is not None:
                key_bytes(key, tx._space.limits)
        Transaction.put(tx, self._kind.layout.rows + row, data, ttl=life)
        for entry in outdated:
            Transaction.delete(tx, entry)
        for entry in entries.values():
            if entry is not None:
                Transaction.put(tx, entry, row, ttl=life)

    async def delete(self, row: bytes) -> None:
        """Remove the row, if it is there."""
        await self.admit()
        outdated = await self._outdated(row, {})
        Transaction.delete(self._tx, self._kind.layout.rows + row)
        for entry in outdated:
            Transaction.delete(self._tx, entry)

    async def add(self, index: IndexEntries[V], row: bytes, value: V, ttl: float | None) -> None:
        """Give a row that is there its entry in ``index``. Raises `UniqueError`."""
        entry = index.entry_of(value, row)
        if entry is None:
            return
        if index.unique:
            await self._check_unique(index, entry, row)
        Transaction.put(self._tx, entry, row, ttl=FOREVER if ttl is None else ttl)

    async def _outdated(self, row: bytes, entries: Mapping[str, bytes | None]) -> list[bytes]:
        """The entries of the stored row that the row has no longer."""
        kind = self._kind
        if not kind.indexes:
            return []
        old = await self.get(row)
        if old is None:
            return []
        value = kind.decoded_row(row, old, "not_applied")
        outdated: list[bytes] = []
        for name, index in kind.indexes.items():
            entry = index.entry_of(value, row)
            if entry is None or entry == entries.get(name):
                continue
            # of a unique index that is being built it may be that of another row
            if not index.unique or await Transaction.get(self._tx, entry) == row:
                outdated.append(entry)
        return outdated

    async def _check_unique(self, index: IndexEntries[V], entry: bytes, row: bytes) -> None:
        holder = await Transaction.get(self._tx, entry)
        if holder is None or holder == row:
            return
        kind = self._kind
        data = await self.get(holder)
        if data is not None and index.entry_of(kind.decoded_row(holder, data, "not_applied"), holder) == entry:
            key = kind.keys.unpack(holder)
            raise UniqueError(kind.name, index.name, index.parts_of(entry), key, entry)
