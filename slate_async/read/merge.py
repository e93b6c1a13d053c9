"""The vectorised k-way merge of sorted sources.

A round takes from every source the rows before a *bound*, joins them and sorts once. The bound is the nearest of
the sources' last buffered keys, exclusive: rows of that very key stay behind, because older or newer versions of
it may still come. So each emitted batch holds whole keys, in order, and every version of each.

Forward, batches ascend; in reverse they come from the end, the rows inside each still ascending, and everything
said of "before" and "last" is mirrored. Streams are given newest first; between equal sequence numbers of one key
the newer stream wins.

Rows too large to be joined (Arrow's offsets end at 2 GiB) come as batches of one row each, then also in reverse
the newest version of a key first; only such batches split a key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.format.columns import Columns, concat
from slate_async.read.together import together

ROUND_ROWS = 2048
ROUND_BYTES = 2 << 20
"""About how much one round sorts, over all sources: a millisecond of work."""

MAX_JOINED_BYTES = 1 << 30
"""Larger rounds are not joined: they only happen with huge values."""

LEAST_ROWS = 64
"""A source brings at least this many rows into a round, however many sources there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One sorted source. ``local`` ones never wait for a store, so they need no task of their own."""

    batches: AsyncIterator[Columns]
    local: bool = False


class MergedRows(AsyncIterator[Columns]):
    """All rows of ``streams``, every version, ordered by key ascending and sequence number descending.

    A step that was cancelled or failed leaves the merge unusable; `aclose` it.
    """

    def __init__(self, streams: Sequence[Stream], *, reverse: bool = False, gather_bytes: int = 0) -> None:
        """``gather_bytes``: a round waits for so much from all sources together. 0 gives the first rows soonest; for
        rounds that run off the loop some megabytes are worth a hand-over."""
        rows = max(LEAST_ROWS, ROUND_ROWS // max(1, len(streams)))
        nbytes = ROUND_BYTES // max(1, len(streams))
        gather = gather_bytes // max(1, len(streams))
        self._reverse = reverse
        self._cursors = [_Cursor(stream, reverse, rows, nbytes, gather) for stream in streams]
        self._open = [stream.batches for stream in streams]
        self._single_rows: deque[Columns] = deque()

    async def __anext__(self) -> Columns:
        if not await self.fill():
            raise StopAsyncIteration
        return self.step()

    async def fill(self) -> bool:
        """Fetch what the next round needs. Whether there is a next round."""
        if self._single_rows:
            return True
        await self._fetch()
        self._cursors = [cursor for cursor in self._cursors if cursor.window]
        return bool(self._cursors)

    def step(self) -> Columns:
        """One round, right after `fill` found that there is one. Waits for nothing, so it may run in another thread."""
        if self._single_rows:
            return self._single_rows.popleft()
        edges = [cursor.edge for cursor in self._cursors if not cursor.finished]
        bound = None if not edges else max(edges) if self._reverse else min(edges)
        taken = [parts for parts in (cursor.take(bound) for cursor in self._cursors) if parts]
        joined = [part for parts in taken for part in parts]
        if len(joined) == 1:
            return joined[0]
        if sum(part.nbytes for part in joined) > MAX_JOINED_BYTES:
            self._single_rows.extend(rows_apart(joined, self._reverse))
            return self._single_rows.popleft()
        rows = concat(joined)
        return rows if len(taken) == 1 else sort_rows(rows)

    async def _fetch(self) -> None:
        waiting = [cursor for cursor in self._cursors if not cursor.ready]
        remote = [cursor for cursor in waiting if not cursor.stream.local]
        for cursor in waiting:
            if cursor.stream.local:
                await cursor.fill()
        await together([cursor.fill() for cursor in remote])

    async def aclose(self) -> None:
        """Close the streams. Idempotent."""
        self._cursors = []
        while self._open:
            await close_stream(self._open.pop())


class _Cursor:
    """A stream and what is buffered of it.

    ``window`` is what rounds may take from, ``_ahead`` fetched batches cut to a round's size, both in the order
    they were fetched.
    """

    __slots__ = ("_ahead", "_ended", "_gather", "_held", "_nbytes", "_reverse", "_rows", "stream", "window")

    def __init__(self, stream: Stream, reverse: bool, rows: int, nbytes: int, gather: int) -> None:
        self.stream = stream
        self.window: list[Columns] = []
        self._ahead: deque[Columns] = deque()
        self._ended = False
        self._reverse = reverse
        self._rows = rows
        self._nbytes = nbytes
        self._gather = gather
        self._held = 0

    @property
    def finished(self) -> bool:
        """Whether nothing will be added to the window."""
        return self._ended and not self._ahead

    @property
    def edge(self) -> bytes:
        """The key at the far end of the window: the last one, in reverse the first."""
        return key_at(self.window[-1], 0 if self._reverse else -1)

    @property
    def ready(self) -> bool:
        """Whether the window holds a whole key and as many bytes as a round waits for, or all that is left."""
        if self.finished:
            return True
        return (
            bool(self.window)
            and self._held >= self._gather
            and key_at(self.window[0], -1 if self._reverse else 0) != self.edge
        )

    async def fill(self) -> None:
        """Fetch until `ready`."""
        while not self.ready:
            if not self._ahead:
                try:
                    self._cut(await anext(self.stream.batches))
                except StopAsyncIteration:
                    self._ended = True
                    continue
            if self._ahead:
                part = self._ahead.popleft()
                self.window.append(part)
                self._held += part.nbytes

    def _cut(self, batch: Columns) -> None:
        total = len(batch)
        if not total:
            return
        rows = max(1, min(self._rows, total * self._nbytes // max(1, batch.nbytes)))
        parts = [batch.slice(low, min(total, low + rows)) for low in range(0, total, rows)]
        self._ahead.extend(reversed(parts) if self._reverse else parts)

    def take(self, bound: bytes | None) -> list[Columns]:
        """Remove the rows before ``bound`` (all when ``None``) and return them in ascending order."""
        taken: list[Columns] = []
        while self.window:
            part = self.window[0]
            rows, split = len(part), self._split(part, bound)
            low, high = (split, rows) if self._reverse else (0, split)
            if low < high:
                taken.append(part.slice(low, high))
            if high - low < rows:
                self.window[0] = part.slice(0, low) if self._reverse else part.slice(high, rows)
                break
            del self.window[0]
        self._held = sum(part.nbytes for part in self.window)
        return taken[::-1] if self._reverse else taken

    def _split(self, part: Columns, bound: bytes | None) -> int:
        if bound is None:
            return 0 if self._reverse else len(part)
        if self._reverse:
            return first_row_after(part, bound)
        return first_row_from(part, bound)


def key_at(columns: Columns, row: int) -> bytes:
    """The key of one row; negative rows count from the end."""
    key: bytes = columns.keys[row].as_py()
    return key


def first_row_from(columns: Columns, key: bytes) -> int:
    """The first row of sorted ``columns`` whose key is ``key`` or above."""
    keys = columns.keys
    if len(keys) and keys[-1].as_py() < key:
        return len(keys)
    return bisect_left(range(len(keys)), key, key=lambda row: keys[row].as_py())


def first_row_after(columns: Columns, key: bytes) -> int:
    """The first row of sorted ``columns`` whose key is above ``key``."""
    keys = columns.keys
    if len(keys) and keys[0].as_py() > key:
        return 0
    return bisect_right(range(len(keys)), key, key=lambda row: keys[row].as_py())


def same_key_as_previous(columns: Columns) -> npt.NDArray[np.bool_]:
    """bool[n - 1]: whether row ``i + 1`` has the key of row ``i``."""
    keys = columns.keys
    same: npt.NDArray[np.bool_] = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return same


def sort_rows(columns: Columns) -> Columns:
    """``columns`` ordered by key ascending, sequence number descending; ties stay in their order.

    One stable sort by key suffices when sources were joined newest first; the order of sequence numbers is checked
    and, where sources overlap in age, sorted for.
    """
    order: npt.NDArray[np.int64] = pc.array_sort_indices(columns.keys).to_numpy().astype(np.int64)
    rows = columns.take(order)
    rising = rows.seqs[1:] > rows.seqs[:-1]
    if not np.any(rising & same_key_as_previous(rows)):
        return rows
    table = pa.table({"key": rows.keys, "seq": rows.seqs})
    order = pc.sort_indices(table, sort_keys=[("key", "ascending"), ("seq", "descending")]).to_numpy()
    return rows.take(order.astype(np.int64))


def rows_apart(parts: list[Columns], reverse: bool) -> list[Columns]:
    """Each row of ``parts`` by itself: keys in scan order, a key's versions newest first. Nothing is copied."""
    places = [(key, part, row) for part in parts for row, key in enumerate(part.keys.to_pylist())]
    places.sort(key=lambda place: int(place[1].seqs[place[2]]), reverse=True)
    places.sort(key=lambda place: place[0], reverse=reverse)
    return [part.slice(row, row + 1) for _, part, row in places]


async def close_stream(stream: AsyncIterator[Columns]) -> None:
    """Close a stream that can be closed (an asynchronous generator, or one of our own)."""
    closing = getattr(stream, "aclose", None)
    if closing is not None:
        await closing()
