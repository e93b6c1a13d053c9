"""The rows of a log segment, and what a log object has to be where it lies."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.codec.header import ObjectKind
from slate_async.errors import CorruptionError
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.log_segment import decode_segment, log_object_id
from slate_async.storage.log.protocol import LogObject

INLINE_SEGMENT_BYTES = 128 * 1024
"""A log segment of fewer bytes is encoded or decoded on the loop: that takes less than half a millisecond, where a
thread may wait for several until the loop lets it run."""


async def decode_rows(log_object: LogObject, database_id: UUID, offload: Offload, most_bytes: int) -> Columns:
    """The rows of a log segment, in write order. Raises `CorruptionError`, `ConfigError` if they take more than
    ``most_bytes``."""
    check_kind(log_object, ObjectKind.LOG_SEGMENT)
    if log_object.size < INLINE_SEGMENT_BYTES:
        return rows_of(log_object, database_id, most_bytes)
    return await offload.run(partial(rows_of, log_object, database_id, most_bytes))


def rows_of(log_object: LogObject, database_id: UUID, most_bytes: int) -> Columns:
    """As `decode_rows`, of an object that is known to be a log segment, without leaving the loop."""
    return decode_segment(
        log_object.data,
        object_name=log_object.key,
        database_id=database_id,
        log_id=log_object.id,
        most_bytes=most_bytes,
    )[1]


def new_rows(columns: Columns, last_seq: int) -> Columns:
    """The rows above ``last_seq``; log objects hold rows in ascending sequence order."""
    first = int(np.searchsorted(columns.seqs, last_seq, side="right"))
    return columns if first == 0 else columns.slice(first, len(columns))


def check_kind(log_object: LogObject, kind: ObjectKind) -> None:
    """Raise `CorruptionError` unless the object is of that kind, and at its own position."""
    if log_object.header.kind is not kind:
        raise CorruptionError(
            f"a {log_object.header.kind.name} where a {kind.name} belongs", object_name=log_object.key, offset=10
        )
    if log_object.header.object_id != log_object_id(log_object.id):
        raise CorruptionError("another log object's bytes", object_name=log_object.key)
