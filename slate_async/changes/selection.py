"""Rows of SSTs in the order of their sequence numbers, a stretch of them at a time, in bounded memory.

An SST is in the order of its keys, so whatever lies in a stretch of sequence numbers is looked for in every SST whose
numbers overlap it. What is found is kept until it fills the room; then its highest numbers are given up, and later rows
above those are passed over. So memory is bounded whatever the SSTs hold. After a flush each SST has a stretch of its
own, which is read once; of SSTs that were compacted all that overlap are read for every stretch of ``room`` bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from slate_async.changes.order import last_cut
from slate_async.format.block import binary_buffers
from slate_async.format.columns import Columns, concat
from slate_async.runtime.protocol import Offload

ROOM_LIMIT = 1 << 30
"""Rows written together are kept together up to so many bytes; Arrow's 32-bit offsets end at twice that."""


SEEN_BYTES = 2 << 20
"""Rows are looked through so many bytes at a time, on a worker thread: few milliseconds of work."""


@dataclass(frozen=True, slots=True)
class SeqSource:
    """Rows with numbers from ``min_seq`` to ``max_seq``, inclusive. ``open`` reads them, in any order; its iterator has
    an ``aclose``."""

    min_seq: int
    max_seq: int
    open: Callable[[], AsyncIterator[Columns]]


@dataclass(frozen=True, slots=True)
class Selected:
    """All rows of a stretch that ends at ``end``, in the order of their numbers. ``None`` if there are none."""

    rows: Columns | None
    end: int


async def select(sources: Sequence[SeqSource], after: int, until: int, room_bytes: int, offload: Offload) -> Selected:
    """The rows above ``after``, up to ``until`` or a place before it where the write time changes.

    They take ``room_bytes``, and twice that while they are looked for; more only if so many were written in one
    millisecond. Raises what the sources raise."""
    room = room_bytes
    while True:
        kept = _Kept(after, until, room, offload)
        for source in sorted(sources, key=lambda one: one.min_seq):
            if source.max_seq <= after or source.min_seq > kept.until:
                continue
            if kept.full and kept.newest < source.min_seq:
                kept.until = source.min_seq - 1
                break
            async with aclosing(_closable(source.open())) as batches:
                async for batch in batches:
                    await kept.add(batch)
            await kept.see()
        found = await kept.finish()
        if found is not None:
            return found
        room *= 2  # all of it was written in one millisecond, and there is more


def _closable(batches: AsyncIterator[Columns]) -> Any:
    return batches


class _Kept:
    """The rows above ``after`` and up to ``until`` that were found, of which the lowest stay."""

    def __init__(self, after: int, until: int, room: int, offload: Offload) -> None:
        self.until = self._last = until
        self.newest = after
        self._after = after
        self._room = room
        self._offload = offload
        self._parts: list[Columns] = []
        self._nbytes = 0
        self._limit = 2 * room
        self._unseen: list[Columns] = []
        self._unseen_bytes = 0

    @property
    def full(self) -> bool:
        return self._nbytes >= self._room

    async def add(self, batch: Columns) -> None:
        """Look through ``batch``, or do so with later ones: many are small."""
        self._unseen.append(batch)
        self._unseen_bytes += batch.nbytes
        if self._unseen_bytes >= SEEN_BYTES:
            await self.see()

    async def see(self) -> None:
        """Look through what was added."""
        if self._unseen:
            await self._offload.run(self._see)

    def _see(self) -> None:
        rows = concat(self._unseen)
        self._unseen, self._unseen_bytes = [], 0
        found = (rows.seqs > self._after) & (rows.seqs <= self.until)
        if not found.any():
            return
        part = rows if found.all() else rows.take(np.flatnonzero(found))
        self._parts.append(part)
        self._nbytes += part.nbytes
        self.newest = max(self.newest, int(part.seqs.max()))
        if self._nbytes > self._limit:
            self._shrink()
            self._limit = 2 * max(self._room, self._nbytes)  # rows that share a number stay, whatever they take

    def _shrink(self) -> None:
        """Give up the highest numbers, so that the rest has room; at least one number stays."""
        seqs = np.concatenate([part.seqs for part in self._parts])
        sizes = np.concatenate([_sizes(part) for part in self._parts])
        order = np.argsort(seqs, kind="stable")
        fitting = int(np.searchsorted(np.cumsum(sizes[order]), self._room, side="right"))
        if fitting >= len(order):
            return
        self.until = int(seqs[order[max(0, fitting - 1)]])
        kept = [part.take(np.flatnonzero(part.seqs <= self.until)) for part in self._parts]
        self._parts = [part for part in kept if len(part)]
        self._nbytes = sum(part.nbytes for part in self._parts)
        self.newest = self.until

    async def finish(self) -> Selected | None:
        """What was found; ``None`` if a place to cut is needed and there is none."""
        if not self._parts:
            return Selected(None, self.until)
        if self._nbytes > self._room:
            await self._offload.run(self._shrink)
        rows = await self._offload.run(self._sorted)
        if self.until == self._last:
            return Selected(rows, self.until)
        stop = last_cut(rows)
        if stop:
            return Selected(rows.slice(0, stop), int(rows.seqs[stop - 1]))
        return Selected(rows, self.until) if self._room >= ROOM_LIMIT else None

    def _sorted(self) -> Columns:
        rows = concat(self._parts)
        order = np.argsort(rows.seqs, kind="stable")
        return rows.take(order)


def _sizes(rows: Columns) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of each row."""
    keys, _ = binary_buffers(rows.keys)
    values, _ = binary_buffers(rows.values)
    return np.diff(keys).astype(np.int64) + np.diff(values) + 32
