"""Rows of SSTs in the order of their sequence numbers, a range of them at a time, in bounded memory.

An SST is in the order of its keys, so whatever lies in a range of sequence numbers is looked for in every SST whose
numbers overlap it. What is found is kept until it fills the room; then its highest numbers go to disk. What has no
place there either is given up, and later rows above it are passed over: they are read again for a later range. So
memory and disk are bounded whatever the SSTs hold. After a flush each SST has a range of its own, which is read once;
SSTs that were compacted are read once for as much as has a place.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from slate_async.codec.arrays import binary_buffers
from slate_async.codec.columns import Columns, concat
from slate_async.engine.changes.order import in_order, last_cut
from slate_async.engine.changes.spill import ROOM_LIMIT, Spill
from slate_async.runtime.protocol import Runtime

logger = logging.getLogger(__name__)
MOST_OVER = 256 << 20
"""Rows may exceed the room by so many bytes, or by as much as the room, before the selection is cut back to it."""
SEEN_BYTES = 2 << 20
"""Rows are looked through so many bytes at a time, on a worker thread: few milliseconds of work."""


@dataclass(frozen=True, slots=True)
class SeqSource:
    """Rows with sequence numbers from ``min_seq`` to ``max_seq``, inclusive. ``open`` reads them, in any order; its
    iterator has an ``aclose``."""

    min_seq: int
    max_seq: int
    open: Callable[[], AsyncIterator[Columns]]


@dataclass(frozen=True, slots=True)
class Selected:
    """All rows of a range that ends at ``end``, in the order of their sequence numbers. ``None`` if there are none.

    rest: has the rows behind it, if they were kept"""

    rows: Columns | None
    end: int
    rest: Spill | None = None


async def select(
    sources: Sequence[SeqSource],
    after: int,
    until: int,
    sort_memory_bytes: int,
    sort_spill_bytes: int,
    runtime: Runtime,
) -> Selected:
    """The rows above ``after``, up to ``until`` or a place before it where the write time changes.

    They take ``sort_memory_bytes``, and twice that while they are looked for; more only if so many were written in one
    millisecond. What is found besides goes to disk, ``sort_spill_bytes`` of it. Raises what the sources raise."""
    room = sort_memory_bytes
    spill_limit = sort_spill_bytes
    while True:
        kept = _Kept(after, until, room, spill_limit, runtime)
        try:
            await _fill(kept, sources, after)
            found = await kept.finish()
        except OSError as error:
            if not spill_limit:
                raise
            logger.warning(
                "a change feed sorts without spill files, so it reads rows several times; the disk failed: %s", error
            )
            spill_limit = 0
            continue
        if found is not None:
            return found
        room *= 2  # all of it was written in one millisecond, and there is more


async def _fill(kept: _Kept, sources: Sequence[SeqSource], after: int) -> None:
    for source in sorted(sources, key=lambda source: source.min_seq):
        if source.max_seq <= after or source.min_seq > kept.last:
            continue
        if kept.full and kept.newest < source.min_seq:
            kept.last = source.min_seq - 1
            break
        async with aclosing(_closable(source.open())) as batches:
            async for batch in batches:
                await kept.add(batch)
        await kept.see()


def _closable(batches: AsyncIterator[Columns]) -> Any:
    return batches


class _Kept:
    """The rows above ``after`` and up to `last` that were found, of which the lowest stay in memory: the others
    are on disk, or given up, which lowers `last`."""

    def __init__(self, after: int, until: int, room: int, sort_spill_bytes: int, runtime: Runtime) -> None:
        self.last = self._until = until
        self.newest = after
        self._after = after
        self._room = room
        self._runtime = runtime
        self._spill = Spill(until, room, sort_spill_bytes, runtime) if sort_spill_bytes else None
        self._spilled = False
        self._parts: list[Columns] = []
        self._nbytes = 0
        self._limit = room + min(room, MOST_OVER)
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
            await self._runtime.offload.run(self._see)
        if self._nbytes > self._limit:
            await self._make_room()
            low = max(self._room, self._nbytes)  # rows that share a number stay, whatever they take
            self._limit = low + min(low, MOST_OVER)

    def _see(self) -> None:
        rows = concat(self._unseen)
        self._unseen, self._unseen_bytes = [], 0
        found = (rows.seqs > self._after) & (rows.seqs <= self.last)
        if not found.any():
            return
        part = rows if found.all() else rows.take(np.flatnonzero(found))
        self._parts.append(part)
        self._nbytes += part.nbytes
        self.newest = max(self.newest, int(part.seqs.max()))

    async def _make_room(self) -> None:
        """Put the highest sequence numbers on disk, or give them up, so that the rest has room; at least one stays."""
        rest = await self._runtime.offload.run(self._shrink)
        if rest is None:
            return
        if self._spill is None:
            self.last = self.newest = int(self._parts[0].seqs[-1])
            return
        await self._spill.add(rest)
        self._spilled = True
        self.last = min(self.last, self._spill.until)

    def _shrink(self) -> Columns | None:
        """Let the lowest sequence numbers that have room stay, in order; the others, in order."""
        rows = in_order(concat(self._parts))
        fitting = max(1, int(np.searchsorted(np.cumsum(_sizes(rows)), self._room, side="right")))
        stop = int(np.searchsorted(rows.seqs, rows.seqs[fitting - 1], side="right")) if len(rows) else 0
        if stop >= len(rows):
            return None
        low = np.arange(stop)
        self._parts = [rows.take(low)]  # a copy, so that the others do not stay with them
        self._nbytes = self._parts[0].nbytes
        return rows.slice(stop, len(rows))

    async def finish(self) -> Selected | None:
        """What was found; ``None`` if a place to cut is needed and there is none."""
        if not self._parts:
            return Selected(None, self.last)
        if self._nbytes > self._room:
            await self._make_room()
        rows = await self._runtime.offload.run(lambda: in_order(concat(self._parts)))
        if self._spill is not None and self._spilled:
            self._spill.begin(self._after, self.last, rows, whole=self.last == self._until)
            found = await self._spill.next()
            return None if self._spill.after == self._after else Selected(found, self._spill.after, self._spill)
        if self.last == self._until:
            return Selected(rows, self.last)
        stop = last_cut(rows)
        if stop:
            return Selected(rows.slice(0, stop), int(rows.seqs[stop - 1]))
        return Selected(rows, self.last) if self._room >= ROOM_LIMIT else None


def _sizes(rows: Columns) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of each row."""
    keys, _ = binary_buffers(rows.keys)
    values, _ = binary_buffers(rows.values)
    return np.diff(keys).astype(np.int64) + np.diff(values) + 32
