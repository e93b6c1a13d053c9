"""An LRU cache of decoded blocks, bounded in bytes.

Ordering rule: everything here is synchronous and belongs to one event loop; the databases of one process share a
cache on that loop. Invariant: the charged bytes never exceed the capacity when a call returns; a block greater than
the capacity is never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from slate_async.errors import InvalidError
from slate_async.sst.loaded_block import LoadedBlock


@dataclass(frozen=True, slots=True)
class CacheStats:
    """hits, misses, evictions: counts since the start; bytes, blocks: what is kept now."""

    hits: int
    misses: int
    evictions: int
    bytes: int
    blocks: int


class BlockCache:
    """Keeps the blocks used last. ``capacity_bytes`` 0 keeps none.

    A block is known by its owner (bytes that identify one SST's content) and its number in the SST."""

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise InvalidError(f"a cache capacity cannot be negative: {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._entries: OrderedDict[tuple[bytes, int], tuple[LoadedBlock, int]] = OrderedDict()
        self._owned: dict[bytes, dict[int, None]] = {}
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    def get(self, owner: bytes, number: int, *, count_miss: bool = True) -> LoadedBlock | None:
        """The block, now the one used last, or ``None``. With ``count_miss`` off a miss is not counted, for a
        caller that will ask again."""
        name = (owner, number)
        entry = self._entries.get(name)
        if entry is None:
            self._misses += count_miss
            return None
        self._hits += 1
        self._entries.move_to_end(name)
        block, charged = entry
        if block.nbytes != charged:
            self._entries[name] = (block, block.nbytes)
            self._bytes += block.nbytes - charged
            self._shrink()
        return block

    def put(self, owner: bytes, number: int, block: LoadedBlock) -> None:
        """Keep ``block``, evicting those unused longest."""
        name = (owner, number)
        if name in self._entries:
            self._remove(name)
        if block.nbytes > self.capacity_bytes:
            return
        self._entries[name] = (block, block.nbytes)
        self._owned.setdefault(owner, {})[number] = None
        self._bytes += block.nbytes
        self._shrink()

    def drop(self, owner: bytes) -> None:
        """Forget all blocks of one SST."""
        for number in list(self._owned.get(owner, ())):
            self._remove((owner, number))

    def stats(self) -> CacheStats:
        """Counters and size."""
        return CacheStats(self._hits, self._misses, self._evictions, self._bytes, len(self._entries))

    def _shrink(self) -> None:
        while self._bytes > self.capacity_bytes:
            self._remove(next(iter(self._entries)))
            self._evictions += 1

    def _remove(self, name: tuple[bytes, int]) -> None:
        _, charged = self._entries.pop(name)
        self._bytes -= charged
        numbers = self._owned[name[0]]
        del numbers[name[1]]
        if not numbers:
            del self._owned[name[0]]
