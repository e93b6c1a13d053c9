"""A cache of blocks, their lookup tables, and the indexes and filters of SSTs, bounded in bytes together.

Ordering rule: everything here is synchronous and belongs to one event loop; the databases of one process share a
cache on that loop. Invariant: the charged bytes never exceed the capacity when a call returns, but for one index that
does by itself; a block greater than the capacity is never kept.

What is made of blocks saves time, a block saves a request: so it may fill what blocks leave free, but when room is
needed it goes before them as long as it takes more than its share, or as long as some of it is retired. Giving memory
back takes time, too: what is retired all at once goes bit by bit, when room is needed or something else is kept.

To read an index (with its filter) again takes as long as dozens of blocks, so all together may fill `INDEX_SHARE` of
the capacity before blocks do, and beside them one goes for every `BLOCKS_PER_INDEX` blocks at most, if nobody used it.
Without a capacity readers keep their indexes themselves, and nothing counts them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from slate_async.errors import InvalidError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.storage.sst.clock_ring import Kept, Ring
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.storage.sst.shares import ReadShares

DECODE_BYTES = 256 << 20
LOOKUP_SHARE = 2
"""Lookups may hold the capacity divided by this when blocks want room."""
INDEX_SHARE = 0.75
"""So much of the capacity indexes may hold."""
BLOCKS_PER_INDEX = 64
"""After so many evicted blocks the clock hand of the indexes moves by one."""


class Lookup(Kept, Hashable, Protocol):
    """Something made of blocks, known by its identity."""

    @property
    def retired(self) -> bool:
        """Whether it will hardly be used any more. Changes once, together with `BlockCache.retire`."""

    def drop(self) -> None:
        """The cache has let it go: it must not be used any more."""


class KeptIndex(Kept, Hashable, Protocol):
    """An owner of an index and a filter in memory, compared by identity. ``nbytes`` is what they occupy; it changes
    only while the cache does not keep it."""

    def drop_index(self) -> None:
        """There is no room for them any more."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """hits, misses, evictions: counts of blocks since the start; bytes: what is kept now, of it blocks: the number of
    blocks, index_bytes: the bytes of indexes and filters; index_evictions: how many of these were evicted."""

    hits: int
    misses: int
    evictions: int
    bytes: int
    blocks: int
    index_bytes: int
    index_evictions: int


class BlockCache:
    """Keeps the blocks used last, nearly. ``capacity_bytes`` 0 keeps none.

    A block is known by its owner (bytes that identify one SST's content) and its number in the SST."""

    def __init__(self, capacity_bytes: int, decode_bytes: int = DECODE_BYTES) -> None:
        if capacity_bytes < 0:
            raise InvalidError(f"a cache capacity cannot be negative: {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self.decoding = MemoryBudget(decode_bytes)
        """Memory for what is being decoded, before it is kept or used."""
        self.shares = ReadShares(self.decoding)
        self._blocks: Ring[tuple[bytes, int], LoadedBlock] = Ring()
        self._lookups: Ring[Lookup, Lookup] = Ring()
        self._indexes: Ring[KeptIndex, KeptIndex] = Ring()
        self._index_room = int(capacity_bytes * INDEX_SHARE)
        self._index_evictions = 0
        self._blocks_since = 0
        self._retired_bytes = 0
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    # blocks

    def get(self, owner: bytes, number: int, *, count_miss: bool = True) -> LoadedBlock | None:
        """The block, now used, or ``None``. With ``count_miss`` off a miss is not counted, for a caller that will ask
        again."""
        block = self._blocks.things.get((owner, number))
        if block is None:
            self._misses += count_miss
            return None
        self._hits += 1
        block.used = True
        return block

    def miss(self) -> None:
        """Count a miss that a `get` with ``count_miss=False`` left out."""
        self._misses += 1

    def put(self, owner: bytes, number: int, block: LoadedBlock) -> None:
        """Keep ``block``, evicting what was not used."""
        name = (owner, number)
        self._blocks.remove(name)
        if block.nbytes > self.capacity_bytes:
            return
        self._blocks.add(name, block)
        self._shrink()

    # indexes

    def keep_index(self, index: KeptIndex) -> None:
        """Keep ``index``, now used, until there is need for its room; for good where the cache has no capacity."""
        if not self.capacity_bytes:
            return
        self._indexes.remove(index)
        while self._indexes.things and self._indexes.nbytes + index.nbytes > self._index_room:
            self._drop_index(self._indexes.evict()[1])
        index.used = True
        self._indexes.add(index, index)
        self._shrink()

    def _drop_index(self, index: KeptIndex) -> None:
        self._index_evictions += 1
        index.drop_index()

    # lookups

    def keep(self, lookup: Lookup) -> None:
        """Keep ``lookup`` until there is need for its room. It may be dropped before this returns."""
        if lookup.nbytes > self.capacity_bytes // LOOKUP_SHARE:
            lookup.drop()
            return
        self._lookups.add(lookup, lookup)
        self._retired_bytes += lookup.nbytes * lookup.retired
        if self._retired_bytes and len(self._lookups.things) > 1:
            self._evict_lookup()
        self._shrink()

    def retire(self, nbytes: int) -> None:
        """Lookups of so many bytes have retired."""
        self._retired_bytes += nbytes

    def forget(self, lookup: Lookup) -> None:
        """``lookup`` is not used any more. Idempotent."""
        if self._lookups.remove(lookup) is not None:
            self._retired_bytes -= lookup.nbytes * lookup.retired

    def stats(self) -> CacheStats:
        """Counters and size."""
        indexes = self._indexes.nbytes
        return CacheStats(
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            bytes=self._blocks.nbytes + self._lookups.nbytes + indexes,
            blocks=len(self._blocks.things),
            index_bytes=indexes,
            index_evictions=self._index_evictions,
        )

    def _shrink(self) -> None:
        blocks, lookups, capacity = self._blocks, self._lookups, self.capacity_bytes
        while blocks.nbytes + lookups.nbytes + min(self._indexes.nbytes, self._index_room) > capacity:
            if lookups.things and (
                self._retired_bytes or lookups.nbytes > capacity // LOOKUP_SHARE or not blocks.things
            ):
                self._evict_lookup()
            else:
                blocks.evict()
                self._evictions += 1
                self._blocks_since += 1
                if self._blocks_since >= BLOCKS_PER_INDEX and len(self._indexes.things) > 1:
                    self._blocks_since = 0
                    idle = self._indexes.step()
                    if idle is not None:
                        self._drop_index(idle)

    def _evict_lookup(self) -> None:
        lookup, _ = self._lookups.evict()
        self._retired_bytes -= lookup.nbytes * lookup.retired
        lookup.drop()
