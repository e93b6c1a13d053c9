"""Stored blocks to rows, many neighbouring blocks as one `Columns`: for readers of everything.

They are checked together (`storage.format.block_parts`). Where a check fails the blocks are decoded one by one,
which names the one that is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.errors import InternalError
from slate_async.storage.format.block import decode_block, open_stored
from slate_async.storage.format.block_parts import BlockParts, StoredBlock, UnsoundError, offsets_of
from slate_async.types import Buffer

MAX_JOINED_BYTES = 64 << 20
"""Raw bytes that are joined at most; a larger block stays alone."""
LARGE_BYTES = 512 << 10


def decode_blocks(blocks: Sequence[StoredBlock], *, object_name: str) -> Iterator[Columns]:
    """The rows of ``blocks`` (1 or more) in their order, joined as far as `MAX_JOINED_BYTES` allow.

    Rows of a block that stays alone are views of it if it is not compressed. Raises as `decode_block`."""
    near: list[StoredBlock] = []
    raws: list[memoryview] = []
    nbytes = 0
    for block in blocks:
        raw = memoryview(open_stored(block.data, object_name, block.offset, block.crc))
        if near and nbytes + len(raw) > MAX_JOINED_BYTES:
            yield _decode(near, raws, object_name)
            near, raws, nbytes = [], [], 0
        near.append(block)
        raws.append(raw)
        nbytes += len(raw)
    yield _decode(near, raws, object_name)


def _decode(blocks: list[StoredBlock], raws: list[memoryview], object_name: str) -> Columns:
    if len(blocks) > 1:
        try:
            return _join(raws)
        except UnsoundError:
            pass
    for block in blocks:
        rows = decode_block(block.data, object_name=object_name, offset=block.offset, expected_crc=block.crc)
    if len(blocks) > 1:
        raise InternalError(f"{object_name}: blocks that are sound one by one are not together")
    return rows


def _join(raws: list[memoryview]) -> Columns:
    parts = BlockParts()
    for raw in raws:
        parts.add(raw)
    found = parts.check()
    return Columns(
        binary_of(offsets_of(found.key_lengths), parts.keys),
        binary_of(offsets_of(found.value_lengths), parts.values),
        found.seqs,
        found.kinds,
        None if parts.expire.absent else parts.expire.joined(found.rows),
        parts.create.joined(found.rows),
    )


def binary_of(offsets: npt.NDArray[np.int32], parts: Sequence[Buffer]) -> pa.BinaryArray:
    """The elements between ``offsets`` of the bytes of ``parts``, joined."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_joined(parts))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers, 0)


def _joined(parts: Sequence[Buffer]) -> bytes | npt.NDArray[np.uint8]:
    """``parts`` one after another. `bytes.join` keeps the interpreter while it copies what is not `bytes`; into fresh
    memory that takes milliseconds for some megabytes."""
    if sum(map(len, parts)) < LARGE_BYTES:
        return b"".join(parts)
    return np.concatenate([np.frombuffer(part, np.uint8) for part in parts if len(part)])
