"""A link of a table's chain as bytes. Specified in ``docs/format/table-chain.md``."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import xxhash

from slate_async.errors import CorruptionError
from slate_async.tables.codec.envelope import ENVELOPE, Kind, decoding_arrow
from slate_async.tables.codec.parts import (
    pack_ids,
    pack_ref,
    pack_table,
    unpack_ids,
    unpack_ref,
    unpack_table,
)
from slate_async.tables.core.append_ids import IDS
from slate_async.tables.core.chain import BLOCK, DELETE_FILE, Link
from slate_async.tables.core.head import LinkRef
from slate_async.tables.core.names import parsed_base
from slate_async.types import Buffer

_STATISTIC: Final = re.compile(r"(nulls|low|high)\.[1-9][0-9]*")


class StoredLink(NamedTuple):
    """``link`` of the table ``table``; ``before``: the one before it, which a whole link does not need."""

    table: UUID
    before: LinkRef | None
    link: Link


def digest_of(data: Buffer) -> bytes:
    """XXH3-128 of a stored link, which the next one and the head know."""
    return xxhash.xxh3_128_digest(data)


def encode_link(stored: StoredLink) -> bytes:
    """In its envelope."""
    return ENVELOPE.seal(Kind.LINK, _body(stored))


def decode_link(data: Buffer, ref: LinkRef, table: UUID) -> StoredLink:
    """What `encode_link` was given, which ``ref`` names. Raises `CorruptionError` for anything else, `InvalidError` for
    a format newer than this release."""
    if len(data) != ref.size or digest_of(data) != ref.digest:
        raise CorruptionError(
            f"it has {len(data)} bytes, or others than the {ref.size} that were written", object_name=ref.key
        )
    body = ENVELOPE.unseal(data, Kind.LINK, object_name=ref.key)
    with decoding_arrow(ref.key):
        return _stored(body, table)


def encode_whole(of: str, stored: StoredLink) -> bytes:
    """``stored``, which stands beside the link ``of`` for its whole chain, in its envelope."""
    return ENVELOPE.seal(Kind.WHOLE, {**_body(stored), "of": of})


def decode_whole(data: Buffer, of: str, table: UUID, *, object_name: str) -> StoredLink:
    """What `encode_whole` was given. Raises as `decode_link`."""
    body = ENVELOPE.unseal(data, Kind.WHOLE, object_name=object_name)
    with decoding_arrow(object_name):
        if body.pop("of") != of:
            raise ValueError(f"it does not stand beside {of}")
        stored = _stored(body, table)
        if not stored.link.whole:
            raise ValueError("it is not whole")
    return stored


def _body(stored: StoredLink) -> dict[str, Any]:
    link = stored.link
    body: dict[str, Any] = {"table": stored.table.bytes, "whole": link.whole}
    if stored.before is not None and not link.whole:
        body["before"] = pack_ref(stored.before)
    if link.added.num_rows:
        body["added"] = pack_table(link.added)
    if len(link.removed):
        body["removed"] = link.removed.to_pylist()
    if len(link.deleted):
        body["deleted"] = pack_ids(link.deleted)
    if link.delete_files.num_rows:
        body["delete_files"] = pack_table(link.delete_files)
    if len(link.retired):
        body["retired"] = pack_ids(link.retired)
    if link.ids.num_rows:
        body["ids"] = pack_table(link.ids)
    return body


def _stored(body: dict[str, Any], table: UUID) -> StoredLink:
    if body.pop("table") != table.bytes:
        raise ValueError("it belongs to another table")
    whole, before = body["whole"], body.get("before")
    if not isinstance(whole, bool) or (whole and before is not None):
        raise ValueError("a whole link has none before it")
    parts: dict[str, Any] = {"whole": whole}
    for name in ("deleted", "retired"):
        if name in body:
            parts[name] = unpack_ids(body[name])
    if "removed" in body:
        parts["removed"] = pa.array(body["removed"], pa.string())
    if "added" in body:
        parts["added"] = _checked(unpack_table(body["added"]), BLOCK, statistics=True)
    if "delete_files" in body:
        parts["delete_files"] = _checked(unpack_table(body["delete_files"]), DELETE_FILE, statistics=False)
    if "ids" in body:
        parts["ids"] = unpack_table(body["ids"])
        if parts["ids"].schema != IDS or any(column.null_count for column in parts["ids"].columns):
            raise ValueError("those are no ids of appends")
    return StoredLink(table, None if before is None else unpack_ref(before), Link(**parts))


def _checked(table: pa.Table, columns: pa.Schema, *, statistics: bool) -> pa.Table:
    """``table``, which has ``columns``, none of them null, and then maybe statistics."""
    names = table.schema.names
    if pa.schema(list(table.schema)[: len(columns)]) != columns or len(set(names)) != len(names):
        raise ValueError(f"it has columns {names}")
    for name in columns.names:
        if table.column(name).null_count:
            raise ValueError(f"{name} is null")
    rest = names[len(columns) :]
    if not all(statistics and _STATISTIC.fullmatch(name) for name in rest):
        raise ValueError(f"it has columns {rest}")
    for key in table.column("key").to_pylist():
        if parsed_base(key) is None:
            raise ValueError(f"{key!r} is no name of an object")
    return table
