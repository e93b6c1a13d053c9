"""A version of a catalog as bytes. Specified in ``docs/format/table-catalog.md``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from slate_async.codec.envelope import decoding
from slate_async.codec.records import Conversion, Shape
from slate_async.errors import InvalidError
from slate_async.tables.codec.envelope import ENVELOPE, Kind
from slate_async.tables.core.catalog import CatalogHead, Database, TableEntry, Tombstone
from slate_async.types import Buffer

MAX_CATALOG_BYTES: Final = 350_000
"""What a register holds."""


def encode_catalog(head: CatalogHead) -> bytes:
    """``head`` in its envelope. Raises `InvalidError` for one that is too large."""
    data = ENVELOPE.seal(Kind.CATALOG, _shape().pack(head))
    if len(data) > MAX_CATALOG_BYTES:
        raise InvalidError(
            f"the catalog would have {len(data)} bytes, at most {MAX_CATALOG_BYTES} are stored: drop tables and vacuum"
            " it, or use another one",
            outcome="not_applied",
        )
    return data


def decode_catalog(data: Buffer, version: int, *, object_name: str) -> CatalogHead:
    """What `encode_catalog` was given, which is version ``version``. Raises `CorruptionError` for damaged bytes or
    another version, `InvalidError` for a format newer than this release."""
    body = ENVELOPE.unseal(data, Kind.CATALOG, object_name=object_name)
    with decoding(object_name):
        head = _shape().unpack(body)
        if head.version != version:
            raise ValueError(f"it is version {head.version}, not {version}")
    return head


def _pack_entry(entry: TableEntry) -> list[Any]:
    return [entry.uuid.bytes, entry.base, entry.drops]


def _unpack_entry(packed: list[Any]) -> TableEntry:
    uuid, base, drops = packed
    return TableEntry(UUID(bytes=uuid), base, drops)


def _pack_tables(tables: Mapping[str, TableEntry]) -> dict[str, Any]:
    return {name: _pack_entry(entry) for name, entry in tables.items()}


def _unpack_tables(packed: dict[str, Any]) -> Mapping[str, TableEntry]:
    return MappingProxyType({name: _unpack_entry(entry) for name, entry in packed.items()})


def _pack_dropped(dropped: Mapping[UUID, Tombstone]) -> list[Any]:
    return [
        [stone.database, stone.name, _pack_entry(stone.entry), stone.dropped_ms, stone.purging]
        for stone in dropped.values()
    ]


def _unpack_dropped(packed: list[Any]) -> Mapping[UUID, Tombstone]:
    stones = [
        Tombstone(database, name, _unpack_entry(entry), dropped_ms, purging)
        for database, name, entry, dropped_ms, purging in packed
    ]
    return MappingProxyType({stone.entry.uuid: stone for stone in stones})


@cache
def _shape() -> Shape[CatalogHead]:
    database = Shape[Database](Database, own={"tables": Conversion(_pack_tables, _unpack_tables)})

    def pack(databases: Mapping[str, Database]) -> dict[str, Any]:
        return {name: database.pack(held) for name, held in databases.items()}

    def unpack(packed: dict[str, Any]) -> Mapping[str, Database]:
        return MappingProxyType({name: database.unpack(held) for name, held in packed.items()})

    own = {"databases": Conversion(pack, unpack), "dropped": Conversion(_pack_dropped, _unpack_dropped)}
    return Shape(CatalogHead, own=own)
