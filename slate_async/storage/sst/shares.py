"""`ReadShares`: what one read of a scan may hold once it is decoded, so that scans stay within the memory for decoding.

What a scan has decoded it holds until its consumer has passed it, for as long as that takes. So reads do not wait for
one another's memory, which could be for ever, but are the smaller the more scans are under way. What is too large by
itself they do not hold: `storage.sst.late`.
"""

from __future__ import annotations

from weakref import WeakSet

from slate_async.codec.header import HEADER_BYTES
from slate_async.runtime.memory_budget import Lent, MemoryBudget
from slate_async.storage.format.sst import SstMeta

MOST_BYTES = 16 << 20
LEAST_BYTES = 256 << 10
"""Smaller reads would take more requests than memory is worth."""
READS_HELD = 4
"""Of one scan: the one that is consumed, some ahead of it, and one that is being cut."""


class ReadShares:
    """Belongs to one event loop. ``budget``: the memory that is shared."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._scans: WeakSet[object] = WeakSet()

    def lend(self, lent: Lent) -> None:
        """Let what was decoded stay for as long as nobody needs its room; see `MemoryBudget.lend`."""
        self._budget.lend(lent)

    def begin(self, scan: object) -> None:
        """``scan`` reads from now on, until `end` or until it is dropped."""
        self._scans.add(scan)

    def end(self, scan: object) -> None:
        """``scan`` holds nothing any more. Idempotent."""
        self._scans.discard(scan)

    @property
    def nbytes(self) -> int:
        """What several blocks may hold that are decoded together now; one alone may hold more."""
        return max(LEAST_BYTES, min(MOST_BYTES, self._room))

    @property
    def _room(self) -> int:
        return self._budget.capacity_bytes // (READS_HELD * max(1, len(self._scans)))

    def ahead(self, meta: SstMeta, most: int) -> int:
        """How many reads of that SST may be ahead of its consumer: ``most``, or none if its blocks are so large that a
        scan has no memory for more than the one it needs."""
        block_bytes = meta.stats.raw_block_bytes // max(1, len(meta.index))
        return most if block_bytes <= max(LEAST_BYTES, self._room) else 0

    def stored(self, meta: SstMeta) -> int:
        """About as many stored bytes of that SST become so many."""
        blocks = meta.footer.meta_offset - HEADER_BYTES
        return max(1, self.nbytes * blocks // max(1, meta.stats.raw_block_bytes))
