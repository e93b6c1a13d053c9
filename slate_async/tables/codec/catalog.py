"""A version of a catalog as bytes. Specified in ``docs/format/table-catalog.md``."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from slate_async.codec.envelope import decoding
from slate_async.codec.records import Conversion, Shape
from slate_async.tables.codec.envelope import ENVELOPE, Kind
from slate_async.tables.core.catalog import CatalogHead, TableEntry
from slate_async.types import Buffer


def encode_catalog(head: CatalogHead) -> bytes:
    """``head`` in its envelope."""
    return ENVELOPE.seal(Kind.CATALOG, _shape().pack(head))


def decode_catalog(data: Buffer, version: int, *, object_name: str) -> CatalogHead:
    """What `encode_catalog` was given, which is version ``version``. Raises `CorruptionError` for damaged bytes or
    another version, `InvalidError` for a format newer than this release."""
    body = ENVELOPE.unseal(data, Kind.CATALOG, object_name=object_name)
    with decoding(object_name):
        head = _shape().unpack(body)
        if head.version != version:
            raise ValueError(f"it is version {head.version}, not {version}")
    return head


def _pack_tables(tables: dict[str, TableEntry]) -> dict[str, Any]:
    return {name: [entry.uuid.bytes, entry.base] for name, entry in tables.items()}


def _unpack_tables(packed: dict[str, Any]) -> MappingProxyType[str, TableEntry]:
    return MappingProxyType({name: TableEntry(UUID(bytes=uuid), base) for name, (uuid, base) in packed.items()})


@cache
def _shape() -> Shape[CatalogHead]:
    return Shape(CatalogHead, own={"tables": Conversion(_pack_tables, _unpack_tables)})
