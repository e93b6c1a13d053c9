"""Building an index beside writers, and dropping one: in steps, each a transaction.

Writers give the rows that they write their entries from the registration on. A step gives the next rows theirs, and
notes the last of them under a key of its own, so a build that is called again goes on there. The last step has read
that no row follows, and makes the index ``ready`` in the same commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from slate_async.database.maps.catalogue import Catalogue, StoredIndex, encoded
from slate_async.database.maps.index import IndexEntries, name_bytes
from slate_async.database.maps.indexed_rows import FOREVER, IndexedRows
from slate_async.database.maps.layout import END
from slate_async.database.maps.map_type import MapType
from slate_async.database.maps.rows import TransactionRows
from slate_async.database.transact import RETRIES, Transact
from slate_async.database.transaction import Transaction
from slate_async.errors import NotFoundError

T = TypeVar("T")
V = TypeVar("V")
STEP_ROWS = 256
STEP_BYTES = 1 << 20
"""Rows, or bytes of values, of one step."""
LONGER_S = 60.0
"""An entry of a row that expires may outlive it so long: entries without a row are not shown."""


@dataclass(frozen=True)
class BuildProgress:
    """How far a build is."""

    index: str
    """The index that is being built."""
    rows: int
    """Rows of the map that this call has looked at for it."""


class Building(Generic[V]):
    """Changes of the indexes of one map. Everything is durable when a call returns."""

    def __init__(self, kind: MapType[Any, V], transact: Transact) -> None:
        self._kind = kind
        self._transact = transact

    async def build(self, progress: Callable[[BuildProgress], object]) -> int:
        """See `Map.build`."""
        stored = await self._run(lambda tx: IndexedRows(self._kind, tx, None).admit())
        total = 0
        for name, index in self._kind.indexes.items():
            if stored[name].state == "building":
                total += await self._build_one(index, progress)
        return total

    async def _build_one(self, index: IndexEntries[V], progress: Callable[[BuildProgress], object]) -> int:
        rows = 0
        while True:
            taken, more = await self._run(lambda tx: self._step(tx, index))
            rows += taken
            progress(BuildProgress(index.name, rows))
            if not more:
                return rows

    async def _step(self, tx: Transaction, index: IndexEntries[V]) -> tuple[int, bool]:
        """How many rows it took, and whether more may follow."""
        kind, writes = self._kind, IndexedRows(self._kind, tx, None)
        stored = await writes.admit()
        if stored[index.name].state != "building":  # another build has ended
            return 0, False
        prefix = kind.layout.rows
        position = await Transaction.get(tx, index.progress)
        start = prefix if position is None else prefix + position + b"\0"
        taken, nbytes, last = 0, 0, b""
        async with aclosing(Transaction.scan(tx, start, prefix + END)) as scan:
            async for key, value in scan:
                taken, nbytes, last = taken + 1, nbytes + len(value), key[len(prefix) :]
                decoded = kind.decoded_row(last, value, "not_applied")
                await writes.add(index, last, decoded, await _life_s(tx, key))
                if taken == STEP_ROWS or nbytes >= STEP_BYTES:
                    Transaction.put(tx, index.progress, last, ttl=FOREVER)
                    return taken, True
        writes.keep(stored | {index.name: StoredIndex(index.unique, index.version, "ready")})
        if position is not None:
            Transaction.delete(tx, index.progress)
        return taken, False

    async def drop(self, name: str) -> int:
        """See `Map.drop_index`."""
        await self._run(lambda tx: self._begin_drop(tx, name))
        deleted = 0
        while taken := await self._run(lambda tx: self._drop_step(tx, name)):
            deleted += taken
        return deleted

    async def _begin_drop(self, tx: Transaction, name: str) -> None:
        kind, key = self._kind, name_bytes(name)
        stored: Catalogue = dict(kind.catalogue_of(await Transaction.get(tx, kind.layout.catalogue)))
        found = stored.get(name)
        if found is None:
            raise NotFoundError(f"map {kind.name!r} has no index {name!r}", outcome="not_applied")
        stored[name] = StoredIndex(found.unique, found.version, "dropping")
        Transaction.put(tx, kind.layout.catalogue, encoded(stored), ttl=FOREVER)
        Transaction.delete(tx, kind.layout.progress(key))

    async def _drop_step(self, tx: Transaction, name: str) -> int:
        """How many entries it deleted. A step that finds none takes the index out of the catalogue.

        An index that another call has dropped may be registered anew: its entries stay."""
        kind = self._kind
        stored: Catalogue = dict(kind.catalogue_of(await Transaction.get(tx, kind.layout.catalogue)))
        if name not in stored or stored[name].state != "dropping":
            return 0
        prefix = kind.layout.entries(name_bytes(name))
        found = await TransactionRows(tx).pairs(prefix, prefix + END, False, STEP_ROWS, False)
        for key, _ in found:
            Transaction.delete(tx, key)
        if not found:
            del stored[name]
            if stored:
                Transaction.put(tx, kind.layout.catalogue, encoded(stored), ttl=FOREVER)
            else:
                Transaction.delete(tx, kind.layout.catalogue)
        return len(found)

    async def _run(self, step: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._transact.transact(step, RETRIES, "serializable", True)


async def _life_s(tx: Transaction, key: bytes) -> float | None:
    """How long the entry of the row ``key`` has to live; ``None``: for ever."""
    if not tx._view.may_expire:
        return None
    row = await Transaction.get_row(tx, key)
    if row is None or row.expire_time is None:
        return None
    return max(0.0, row.expire_time - tx._point().now_ms / 1000) + LONGER_S
