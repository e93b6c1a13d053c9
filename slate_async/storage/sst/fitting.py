"""Reading blocks of which nobody knows beforehand how much they hold: as many of them as may be decoded at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from slate_async.errors import CorruptionError
from slate_async.storage.format.block import stored_raw_bytes
from slate_async.storage.format.block_parts import StoredBlock
from slate_async.storage.format.index import Index
from slate_async.storage.format.sst import SstMeta

T = TypeVar("T")


class TooLargeError(Exception):
    """Blocks that were read hold more than the ``most_bytes`` that may be decoded together. ``sizes``: what each of
    them holds, by its number; of others, which are decoded already, nothing is said."""

    def __init__(self, sizes: Mapping[int, int], most_bytes: int) -> None:
        super().__init__(f"{len(sizes)} blocks hold {sum(sizes.values())} bytes")
        self.sizes = sizes
        self.most_bytes = most_bytes


async def load_fitting(load: Callable[[list[int]], Awaitable[T]], numbers: list[int]) -> tuple[T, list[int]]:
    """What ``load`` gives for the first of the blocks ``numbers``, one at least, and the numbers that are left.

    Those that do not fit are read again, which costs little: many bytes of few are highly compressed. What may be
    decoded may become less meanwhile, for others read, too; a single block always fits."""
    count = len(numbers)
    while True:
        try:
            return await load(numbers[:count]), numbers[count:]
        except TooLargeError as error:
            count = _fitting(error, numbers[: count - 1])


def _fitting(error: TooLargeError, numbers: Sequence[int]) -> int:
    """How many of ``numbers`` fit by what ``error`` says, one at least."""
    nbytes = 0
    for at, number in enumerate(numbers):
        nbytes += error.sizes.get(number, 0)
        if at and nbytes > error.most_bytes:
            return at
    return len(numbers)


def raw_bytes_of(meta: SstMeta, numbers: Sequence[int], blocks: Sequence[StoredBlock], most_bytes: int) -> int:
    """What the ``blocks`` of these ``numbers`` hold once they are decoded, as they say themselves; one that says more
    than all may hold is damaged, and decoding will tell. Raises `TooLargeError` if several hold more than
    ``most_bytes``."""
    most = meta.stats.raw_block_bytes
    sizes = [min(stored_raw_bytes(block.data), most) for block in blocks]
    nbytes = sum(sizes)
    if len(sizes) > 1 and nbytes > most_bytes:
        raise TooLargeError(dict(zip(numbers, sizes, strict=True)), most_bytes)
    return min(nbytes, most)


def stored_blocks(index: Index, numbers: Sequence[int], data: bytes, base: int) -> list[StoredBlock]:
    """The blocks ``numbers`` in ``data``, which was read at byte ``base``."""
    view = memoryview(data)
    offsets, sizes, crcs = index.offsets, index.stored_bytes, index.crcs
    return [StoredBlock(view[offsets[n] - base : offsets[n] - base + sizes[n]], offsets[n], crcs[n]) for n in numbers]


def check_rows(rows: int, index: Index, number: int, object_name: str) -> None:
    """Raises `CorruptionError` unless the block has as many rows as ``index`` says."""
    if rows != index.rows[number]:
        raise CorruptionError("block and index differ in rows", object_name=object_name, offset=index.offsets[number])
