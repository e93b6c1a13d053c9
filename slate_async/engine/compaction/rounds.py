"""The merge of sorted sources for a compaction, some megabytes at a time.

A round takes from every source the rows before a *bound* and finds their order; nobody copies a value before it is
known which rows stay. The bound is the nearest of the keys that lie `Rounds.nbytes` ahead in the sources, exclusive:
rows of that very key stay behind, because other versions of it may still come. So a round holds whole keys, and every
version of each. Sources are given newest first; between equal sequence numbers of one key the newer source wins.

Rows too large to be joined (Arrow's offsets end at 2 GiB), or whose values come late, come one by one; only such rounds
split a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from slate_async.codec.columns import Columns, concat
from slate_async.engine.read.merge import close_stream, first_row_from, key_at, rows_apart
from slate_async.runtime.concurrent import map_bounded
from slate_async.storage.format.ordering import Mask, order_of, repeated_keys

MAX_JOINED_BYTES = 1 << 30
"""Larger rounds are not joined: they only happen with huge values."""

FILLED_AT_ONCE = 64
"""Sources that are read at a time. Beginning a read takes a quarter of a millisecond of the event loop's thread."""

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Joined rows and where each belongs.

    order: row numbers by key ascending and sequence number descending; ``None``: the rows lie in that order
    repeats: bool[n], in that order: whether a row has the key of the one before it in this round
    """

    rows: Columns
    order: npt.NDArray[np.int64] | None
    repeats: Mask

    def key(self, place: int) -> bytes:
        """The key at one place of the order; negative places count from the end."""
        return key_at(self.rows, place if self.order is None else int(self.order[place]))

    def in_order(self, column: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """A column of the rows, in their order."""
        return column if self.order is None else column[self.order]

    def take(self, kept: Mask) -> Columns:
        """The rows at the places that are ``kept``, in order."""
        if self.order is None:
            return self.rows if kept.all() else self.rows.take(np.flatnonzero(kept))
        return self.rows.take(self.order[kept])


class Rounds:
    """All rows of sorted ``sources``, in rounds of about ``nbytes`` together.

    A `fill` or `step` that was cancelled or failed leaves it unusable; `aclose` it."""

    def __init__(self, sources: Sequence[AsyncIterator[Columns]], *, nbytes: int) -> None:
        share = nbytes // max(1, len(sources))
        self._open = list(sources)
        self._sources = [_Source(batches, share) for batches in sources]
        self._single_rows: deque[Columns] = deque()

    async def fill(self) -> bool:
        """Fetch what the next round needs. Whether there is a next round."""
        if self._single_rows:
            return True
        waiting = [source for source in self._sources if not source.ready]
        await map_bounded(_Source.fill, waiting, FILLED_AT_ONCE, staggered=True)
        self._sources = [source for source in self._sources if source.window]
        return bool(self._sources)

    def step(self) -> Round:
        """One round, right after `fill` found that there is one. Waits for nothing, so it may run in another thread."""
        if not self._single_rows:
            bound = min((edge for source in self._sources if (edge := source.edge()) is not None), default=None)
            taken = [parts for source in self._sources if (parts := source.take(bound))]
            joined = [part for parts in taken for part in parts]
            if len(joined) == 1 or not _stay_apart(joined):
                rows = concat(joined)
                return as_round(rows) if len(taken) == 1 else Round(rows, *order_of(rows))
            self._single_rows.extend(rows_apart(joined, reverse=False))
        return as_round(self._single_rows.popleft())

    async def aclose(self) -> None:
        """Close the sources. Idempotent."""
        self._sources = []
        while self._open:
            await close_stream(self._open.pop())


def _stay_apart(parts: Sequence[Columns]) -> bool:
    return any(part.late is not None for part in parts) or sum(part.nbytes for part in parts) > MAX_JOINED_BYTES


class _Source:
    """A sorted source and what was fetched of it. ``window`` is in order and holds no empty batch."""

    __slots__ = ("_batches", "_ended", "_held", "_share", "window")

    def __init__(self, batches: AsyncIterator[Columns], share: int) -> None:
        self.window: deque[Columns] = deque()
        self._batches = batches
        self._share = share
        self._held = 0
        self._ended = False

    @property
    def ready(self) -> bool:
        """Whether the window holds a whole key and its share of a round, or all that is left."""
        return self._ended or (self._held >= self._share and not self._one_key)

    @property
    def _one_key(self) -> bool:
        return not self.window or key_at(self.window[0], 0) == key_at(self.window[-1], -1)

    async def fill(self) -> None:
        """Fetch until `ready`."""
        while not self.ready:
            try:
                rows = await anext(self._batches)
            except StopAsyncIteration:
                self._ended = True
                return
            if len(rows):
                self.window.append(rows)
                self._held += rows.nbytes

    def edge(self) -> bytes | None:
        """A key behind the first one and about a share ahead; ``None`` if all that is left may be taken."""
        if self._ended and (self._held <= self._share or self._one_key):
            return None
        first, ahead = key_at(self.window[0], 0), self._share
        for part in self.window:
            nbytes = part.nbytes
            if ahead < nbytes and (key := key_at(part, len(part) * ahead // nbytes)) != first:
                return key
            ahead = max(0, ahead - nbytes)
        return key_at(self.window[-1], -1)

    def take(self, bound: bytes | None) -> list[Columns]:
        """Remove the rows before ``bound``, all when ``None``."""
        taken: list[Columns] = []
        while self.window:
            part = self.window[0]
            stop = len(part) if bound is None else first_row_from(part, bound)
            if stop:
                taken.append(part.slice(0, stop))
            if stop < len(part):
                self.window[0] = part.slice(stop, len(part))
                break
            self.window.popleft()
        self._held = sum(part.nbytes for part in self.window)
        return taken


def as_round(rows: Columns) -> Round:
    """A round of rows that lie in their order, 1 or more."""
    return Round(rows, None, repeated_keys(rows.keys))
