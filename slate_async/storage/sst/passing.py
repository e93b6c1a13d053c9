"""What a call for many keys of an SST knows: how many they are, and the block that it read last.

It asks for its keys in their order, so it wants each block for a while and then never again. If all of its blocks are
more than the cache holds, none is kept there: they would push out one another, and what others want.
"""

from __future__ import annotations

from slate_async.storage.format.sst import SstMeta
from slate_async.storage.sst.loaded_block import LoadedBlock


class Passing:
    """Of one call and one SST. ``keys``: so many the call asks for, of all SSTs; ``block``: the one it read last that
    is not cached, by its ``number``."""

    __slots__ = ("block", "keys", "number")

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.number = -1
        self.block: LoadedBlock | None = None

    def fits(self, capacity_bytes: int, meta: SstMeta) -> bool:
        """Whether a cache of so many bytes holds a block for each key."""
        return self.keys * meta.stats.raw_block_bytes <= capacity_bytes * len(meta.index)
