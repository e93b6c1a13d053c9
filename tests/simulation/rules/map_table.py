"""What indexes of maps rest on, each with the way to break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slate_async.arguments import Duration
from slate_async.database.maps.catalogue import Catalogue
from slate_async.database.maps.indexed_rows import Entries, IndexedRows
from slate_async.database.plain_writes import PlainWritesByMap
from slate_async.database.transaction import Transaction
from slate_async.types import PUT
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.maps.scenarios import MAPS

CALM = MAPS[1]
_admit = IndexedRows.admit


async def replaced_unseen(self: IndexedRows[Any], row: bytes, entries: Mapping[str, bytes | None]) -> list[bytes]:
    """Nobody looks at the row that is replaced."""
    return []


async def unjudged(self: IndexedRows[Any]) -> Catalogue:
    """What the catalogue said when the transaction began is not judged."""
    found = await _admit(self)
    self._tx._tracked.points.pop(self._kind.layout.catalogue, None)
    return found


async def not_unique(self: IndexedRows[Any], index: Any, entry: bytes, row: bytes) -> None:
    """Whose a unique entry is does not matter."""


async def apart(self: IndexedRows[Any], row: bytes, data: bytes, entries: Entries, ttl: Duration | None) -> None:
    """New entries are written before the transaction of their row."""
    await self.admit()
    outdated = await self._outdated(row, entries)
    tx = self._tx
    for name, entry in entries.items():
        if entry is not None:
            if self._kind.indexes[name].unique:
                await self._check_unique(self._kind.indexes[name], entry, row)
            await tx._sequencer.row(entry, row, PUT, None)
    Transaction.put(tx, self._kind.layout.rows + row, data, ttl=ttl)
    for entry in outdated:
        Transaction.delete(tx, entry)


async def never_end(self: PlainWritesByMap, prefix: bytes) -> None:
    """Plain writes go on beside an index."""


def _switch(name: str, broken: str, *patches: Patch, within: int, stage: Any = CALM) -> Switch:
    return Switch(f"index-{name}", "indexes", broken, patches, within=within, stage=stage)


MAP_SWITCHES: Sequence[Switch] = (
    _switch(
        "replaced",
        "a write does not look at the row that it replaces",
        Patch(IndexedRows, "_outdated", replaced_unseen),
        within=20,
    ),
    _switch(
        "catalogue",
        "a commit is not judged by the catalogue that it read",
        Patch(IndexedRows, "admit", unjudged),
        within=200,
    ),
    _switch(
        "unique",
        "a write does not look whose a unique entry is",
        Patch(IndexedRows, "_check_unique", not_unique),
        within=20,
    ),
    _switch(
        "apart",
        "entries are not written in the transaction of their rows",
        Patch(IndexedRows, "put", apart),
        within=20,
    ),
    _switch(
        "plain",
        "plain writes go on once a map has an index",
        Patch(PlainWritesByMap, "end", never_end),
        within=200,
    ),
)
