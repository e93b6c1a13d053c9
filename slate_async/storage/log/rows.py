"""The rows of a log segment, and what a log object has to be where it lies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pyarrow.compute as pc

from slate_async.codec.columns import Columns, concat, content_nbytes
from slate_async.codec.header import ObjectKind
from slate_async.errors import ConfigError, CorruptionError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.block import decode_block, stored_raw_bytes
from slate_async.storage.format.block_parts import StoredBlock
from slate_async.storage.format.log_segment import log_object_id, stored_blocks
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.memtable import ROW_OVERHEAD_BYTES
from slate_async.types import DELETE

INLINE_SEGMENT_BYTES = 128 * 1024
"""A log segment of fewer bytes is encoded or decoded on the loop: that takes less than half a millisecond, where a
thread may wait for several until the loop lets it run."""
INLINE_ROWS_BYTES = 1 << 20
"""Rows that take more are decoded in a thread, however few bytes are stored of them."""
ADMITTED_BYTES = 128 << 10
"""Rows that take more are decoded once there is memory for them."""


@asynccontextmanager
async def decoded_rows(log_object: LogObject, offload: Offload, decoding: MemoryBudget) -> AsyncIterator[Columns]:
    """The rows of a log segment, in write order. What they take is held of ``decoding`` while the context lasts, in
    which nobody waits for more of it. Raises `CorruptionError`, `ConfigError` if they take more than there may be."""
    blocks_of = partial(segment_blocks, log_object, decoding.capacity_bytes)
    blocks = blocks_of() if log_object.size < INLINE_SEGMENT_BYTES else await offload.run(blocks_of)
    nbytes = raw_bytes_of(blocks)
    decode = partial(rows_of, blocks, log_object.key)
    if nbytes <= ADMITTED_BYTES:
        yield decode()
        return
    joined = 1 if len(blocks) == 1 else 2  # several are copied into one
    async with decoding.hold(joined * nbytes):
        inline = nbytes <= INLINE_ROWS_BYTES and log_object.size < INLINE_SEGMENT_BYTES
        yield decode() if inline else await offload.run(decode)


def segment_blocks(log_object: LogObject, most_bytes: int) -> list[StoredBlock]:
    """The blocks of a log segment; its checksum holds, theirs were not looked at. Raises `CorruptionError`,
    `ConfigError` if their rows take more than ``most_bytes``."""
    check_kind(log_object, ObjectKind.LOG_SEGMENT)
    return stored_blocks(log_object.data, log_object.header, object_name=log_object.key, most_bytes=most_bytes)


def raw_bytes_of(blocks: Sequence[StoredBlock]) -> int:
    """What the rows of ``blocks`` take, as they say themselves."""
    return sum(stored_raw_bytes(block.data) for block in blocks)


def rows_of(blocks: Sequence[StoredBlock], key: str) -> Columns:
    """The rows of the blocks of the log object ``key``. Raises `CorruptionError`."""
    return concat([decode_block(block.data, object_name=key, offset=block.offset) for block in blocks])


def new_rows(columns: Columns, last_seq: int) -> Columns:
    """The rows above ``last_seq``; log objects hold rows in ascending sequence order."""
    first = int(np.searchsorted(columns.seqs, last_seq, side="right"))
    return columns if first == 0 else columns.slice(first, len(columns))


def count_range_deletes(columns: Columns) -> int:
    """How many of the rows delete a range of keys."""
    deletes = np.flatnonzero(columns.kinds == DELETE)
    return int(np.count_nonzero(pc.binary_length(columns.values.take(deletes)).to_numpy(zero_copy_only=False)))


def check_room(log_object: LogObject, rows: Columns, held_bytes: int, most_bytes: int) -> int:
    """What ``rows``, those of ``log_object``, take in a memtable.

    Raises `ConfigError` if that and ``held_bytes``, of the memtables before, are more than ``most_bytes``."""
    nbytes = content_nbytes(rows.keys) + content_nbytes(rows.values) + len(rows) * ROW_OVERHEAD_BYTES
    if held_bytes + nbytes > most_bytes:
        raise ConfigError(
            f"{log_object.key}: its rows and those that are held of the log before it take more than {most_bytes}"
            " bytes, and replay_memory_bytes allows no more; raise it to twice the writer's max_unflushed_bytes, or"
            " further"
        )
    return nbytes


def check_kind(log_object: LogObject, kind: ObjectKind) -> None:
    """Raise `CorruptionError` unless the object is of that kind, and at its own position."""
    if log_object.header.kind is not kind:
        raise CorruptionError(
            f"is a {log_object.header.kind.name}, not a {kind.name}", object_name=log_object.key, offset=10
        )
    if log_object.header.object_id != log_object_id(log_object.id):
        raise CorruptionError("holds the bytes of another log object", object_name=log_object.key)
