"""A cache of decoded blocks, and of what is made of them to look keys up, bounded in bytes together.

Ordering rule: everything here is synchronous and belongs to one event loop; the databases of one process share a
cache on that loop. Invariant: the charged bytes never exceed the capacity when a call returns; a block greater than
the capacity is never kept.

What is made of blocks saves time, a block saves a request: so it may fill what blocks leave free, but when room is
needed it goes before them as long as it takes more than its share, or as long as some of it is retired. Giving memory
back takes time, too: what is retired all at once goes bit by bit, when room is needed or something else is kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from slate_async.errors import InvalidError
from slate_async.sst.loaded_block import LoadedBlock
from slate_async.sst.ring import Kept, Ring

LOOKUP_SHARE = 2
"""Lookups may hold the capacity divided by this when blocks want room."""


class Lookup(Kept, Hashable, Protocol):
    """Something made of blocks, known by its identity."""

    @property
    def retired(self) -> bool:
        """Whether it will hardly be used any more. Changes once, together with `BlockCache.retire`."""

    def drop(self) -> None:
        """The cache has let it go: it must not be used any more."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """hits, misses, evictions: counts of blocks since the start; bytes: what is kept now, blocks: of it the number of
    blocks."""

    hits: int
    misses: int
    evictions: int
    bytes: int
    blocks: int


class BlockCache:
    """Keeps the blocks used last, nearly. ``capacity_bytes`` 0 keeps none.

    A block is known by its owner (bytes that identify one SST's content) and its number in the SST."""

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise InvalidError(f"a cache capacity cannot be negative: {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._blocks: Ring[tuple[bytes, int], LoadedBlock] = Ring()
        self._lookups: Ring[Lookup, Lookup] = Ring()
        self._retired_bytes = 0
        self._owned: dict[bytes, dict[int, None]] = {}
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
        """Count a miss that `get` was told not to count."""
        self._misses += 1

    def put(self, owner: bytes, number: int, block: LoadedBlock) -> None:
        """Keep ``block``, evicting what was not used."""
        name = (owner, number)
        self._blocks.remove(name)
        if block.nbytes > self.capacity_bytes:
            self._disown(name)
            return
        self._blocks.add(name, block)
        self._owned.setdefault(owner, {})[number] = None
        self._shrink()

    def drop(self, owner: bytes) -> None:
        """Forget all blocks of one SST."""
        for number in self._owned.pop(owner, ()):
            self._blocks.remove((owner, number))

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
        held = self._blocks.nbytes + self._lookups.nbytes
        return CacheStats(self._hits, self._misses, self._evictions, held, len(self._blocks.things))

    def _shrink(self) -> None:
        blocks, lookups, capacity = self._blocks, self._lookups, self.capacity_bytes
        while blocks.nbytes + lookups.nbytes > capacity:
            if lookups.things and (self._retired_bytes or lookups.nbytes > capacity // LOOKUP_SHARE):
                self._evict_lookup()
            else:
                self._disown(blocks.evict()[0])
                self._evictions += 1

    def _evict_lookup(self) -> None:
        lookup, _ = self._lookups.evict()
        self._retired_bytes -= lookup.nbytes * lookup.retired
        lookup.drop()

    def _disown(self, name: tuple[bytes, int]) -> None:
        numbers = self._owned.get(name[0])
        if numbers is not None:
            numbers.pop(name[1], None)
            if not numbers:
                del self._owned[name[0]]
