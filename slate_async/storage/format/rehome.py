"""An object of one database as the same object of another: every id of its database replaced, every checksum made anew.

Purpose: the log objects a clone copies. Rows, positions, epochs and sizes stay as they are. What is not sound is never
given new checksums: the old ones are compared first.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from slate_async.codec.checksum import crc32c_of_parts
from slate_async.codec.header import ObjectKind, check_body, decode_header, encode_header
from slate_async.storage.format.sst import FOOTER_BYTES, encode_footer, read_footer
from slate_async.types import Buffer


def rehome(data: Buffer, *, object_name: str, owner: UUID, object_id: bytes, database_id: UUID) -> list[Buffer]:
    """The buffers of the whole object ``data``, which is ``object_id`` of database ``owner``, as ``database_id``'s.

    Raises `CorruptionError` if it is not that object, or not sound; `InvalidError` for a newer format."""
    header = decode_header(data, object_name=object_name, database_id=owner, object_id=object_id)
    body = check_body(header, data, object_name=object_name)
    parts: list[Buffer] = [body] if len(body) else []
    if header.kind is ObjectKind.SST:
        footer = read_footer(body, size=len(data), object_name=object_name, database_id=owner, object_id=object_id)
        parts = [body[:-FOOTER_BYTES], encode_footer(replace(footer, database_id=database_id))]
    moved = replace(header, database_id=database_id, body_crc=crc32c_of_parts(parts))
    return [encode_header(moved), *parts]
