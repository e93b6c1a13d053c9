"""Stored blocks to rows, many of them at once but each by itself: for a cache that a scan fills.

They are checked together (`storage.format.block_parts`), which also tells for next to nothing of which blocks every
reader sees every row. Where a check fails the blocks are decoded one by one, which names the one that is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.storage.format.block import open_block, open_stored
from slate_async.storage.format.block_parts import BlockParts, CheckedParts, StoredBlock, UnsoundError, offsets_of
from slate_async.storage.format.joined_blocks import MAX_JOINED_BYTES, binary_of
from slate_async.storage.format.ordering import repeated_keys
from slate_async.storage.format.raw_block import RawBlock
from slate_async.types import PUT


def open_each(blocks: Sequence[StoredBlock], *, object_name: str) -> list[tuple[RawBlock, int | None]]:
    """The rows of each of ``blocks`` (1 or more), and from when on all of them are seen (`seen_from_of`).

    No block's rows keep the bytes of another in memory. Raises as `decode_block`."""
    raws: list[bytes] = []
    nbytes = 0
    for block in blocks:
        raws.append(bytes(open_stored(block.data, object_name, block.offset, block.crc)))
        nbytes += len(raws[-1])
    if nbytes <= MAX_JOINED_BYTES:
        try:
            return _each(raws)
        except UnsoundError:
            pass
    return [_alone(block, object_name) for block in blocks]


def seen_from_of(rows: Columns) -> int | None:
    """From when on every row of ``rows`` is seen, if nothing else holds their keys; see `Columns.seen_from`."""
    if np.any(rows.kinds != PUT) or (rows.expire_ms is not None and np.any(rows.expire_ms != NO_EXPIRY)):
        return None
    if pc.any(pc.equal(rows.keys[1:], rows.keys[:-1])).as_py():
        return None
    return int(rows.seqs.max())


def _alone(block: StoredBlock, object_name: str) -> tuple[RawBlock, int | None]:
    stored = bytes(block.data)
    raw = open_block(stored, object_name=object_name, offset=block.offset, expected_crc=block.crc)
    return raw, seen_from_of(raw.columns())


def _each(raws: list[bytes]) -> list[tuple[RawBlock, int | None]]:
    parts = BlockParts()
    for raw in raws:
        parts.add(memoryview(raw))
    seen_from = _seen_from_of_each(parts, parts.check())
    return [(RawBlock(raw, len(raw), checked=True), seen) for raw, seen in zip(raws, seen_from, strict=True)]


def _seen_from_of_each(parts: BlockParts, checked: CheckedParts) -> list[int | None]:
    starts = np.cumsum(checked.rows) - checked.rows
    hides = repeated_keys(binary_of(offsets_of(checked.key_lengths), parts.keys))
    hides[starts] = False
    if not parts.kinds.absent or any(kind != PUT for kind in parts.kinds.uniform):
        hides |= checked.kinds != PUT
    if not parts.expire.absent:
        hides |= parts.expire.joined(checked.rows) != NO_EXPIRY
    newest: list[int] = np.maximum.reduceat(checked.seqs, starts).tolist()
    hidden: list[bool] = np.logical_or.reduceat(hides, starts).tolist()
    return [None if hides_some else seq for seq, hides_some in zip(newest, hidden, strict=True)]
