"""The vectorised k-way merge of sorted sources.

A round takes from every source the rows before a *bound*, joins them and finds their order; values are copied in that
order once it is known which rows are wanted. The bound is the nearest of the sources' last buffered keys, exclusive:
rows of that very key stay behind, because older or newer versions of it may still come. So each round holds whole keys,
and every version of each. Rounds begin small, so that the first rows come soon, and grow.

Forward, rounds ascend; in reverse they come from the end, the rows inside each still ascending, and everything
said of "before" and "last" is mirrored. Streams are given newest first; between equal sequence numbers of one key
the newer stream wins.

Rows too large to be joined (Arrow's offsets end at 2 GiB), or whose values come late, come as rounds of one row each,
then also in reverse the newest version of a key first; only such rounds split a key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from slate_async.codec.arrays import mask_of
from slate_async.codec.columns import Columns, concat
from slate_async.runtime.gather import gather
from slate_async.storage.format.ordering import Mask, Order, order_of

ROUND_ROWS = 8192
ROUND_BYTES = 1 << 20
"""About how much one round takes, over all sources: less than a millisecond of work. A fifth of a millisecond goes to
a round whatever its size, so smaller ones cost more; of larger ones the processor's cache would not hold all."""

MAX_JOINED_BYTES = 1 << 30
"""Larger rounds are not joined: they only happen with huge values."""

LEAST_ROWS = 64
"""A source brings at least this many rows into a round, however many sources there are; the first round asks for no
more."""


FEW_ROWS = 16
"""So few rows may be large ones."""


def never_nowait() -> Columns | None:
    """The next batch without waiting of a stream that always waits: none."""
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One sorted source.

    local: it never waits for a store, so it needs no task of its own
    next_nowait: its next batch, if that takes no waiting
    """

    batches: AsyncIterator[Columns]
    local: bool = False
    next_nowait: Callable[[], Columns | None] = never_nowait


class Round(NamedTuple):
    """Joined rows, and where each belongs.

    order:     the row that stands at each place; ``None``: the rows stand where they belong
    repeats:   whether the row at a place has the key of the place before; ``None``: nobody looked
    seen_from: as in `Columns`, said of the first row of each key; only with an order
    """

    rows: Columns
    order: Order | None = None
    repeats: Mask | None = None
    seen_from: int | None = None

    def all(self) -> Columns:
        """Every row, in order."""
        return self.rows if self.order is None else self.rows.take(self.order)


class MergedRows(AsyncIterator[Round]):
    """All rows of ``streams``, every version, ordered by key ascending and sequence number descending.

    A step that was cancelled or failed leaves the merge unusable; `aclose` it.
    """

    def __init__(self, streams: Sequence[Stream], *, reverse: bool = False) -> None:
        rows = max(LEAST_ROWS, ROUND_ROWS // max(1, len(streams)))
        nbytes = ROUND_BYTES // max(1, len(streams))
        self._reverse = reverse
        self._cursors = [_Cursor(stream, reverse, rows, nbytes) for stream in streams]
        self._open = [stream.batches for stream in streams]
        self._single_rows: deque[Columns] = deque()

    async def __anext__(self) -> Round:
        if not self._single_rows:
            await self._fetch()
            self._cursors = [cursor for cursor in self._cursors if cursor.window]
            if not self._cursors:
                raise StopAsyncIteration
            found = self._join()
            if found is not None:
                return found
        return Round(self._single_rows.popleft())

    def _join(self) -> Round | None:
        """A round, or ``None`` and single rows."""
        edges = [cursor.edge for cursor in self._cursors if not cursor.finished]
        bound = None if not edges else max(edges) if self._reverse else min(edges)
        taken = [parts for parts in (cursor.take(bound) for cursor in self._cursors) if parts]
        joined = [part for parts in taken for part in parts]
        if len(joined) == 1:
            return Round(joined[0])
        if any(part.late is not None for part in joined):
            self._single_rows.extend(rows_apart(joined, self._reverse))
            return None
        most = len(joined) * max(cursor.heaviest for cursor in self._cursors)
        if most > MAX_JOINED_BYTES and sum(part.nbytes for part in joined) > MAX_JOINED_BYTES:
            self._single_rows.extend(rows_apart(joined, self._reverse))
            return None
        rows, seen_from = concat(joined), _seen_from(joined)
        if len(taken) == 1:
            return Round(replace(rows, seen_from=seen_from))
        order, repeats = order_of(rows)
        return Round(rows, order, repeats, seen_from)

    async def _fetch(self) -> None:
        waiting = [cursor for cursor in self._cursors if not cursor.fill_nowait()]
        for cursor in waiting:
            if cursor.stream.local:
                await cursor.fill()
        await gather([cursor.fill() for cursor in waiting if not cursor.stream.local])

    async def aclose(self) -> None:
        """Close the streams. Idempotent."""
        self._cursors = []
        while self._open:
            await close_stream(self._open.pop())


def _seen_from(parts: list[Columns]) -> int | None:
    newest = [part.seen_from for part in parts if part.seen_from is not None]
    return max(newest) if len(newest) == len(parts) else None


class _Cursor:
    """A stream and what is buffered of it.

    ``window`` is what rounds may take from, ``_ahead`` fetched batches cut to a round's size, both in the order
    they were fetched. ``heaviest``: the bytes of the largest batch so far.
    """

    __slots__ = (
        "_ahead",
        "_ended",
        "_held",
        "_most_bytes",
        "_most_rows",
        "_reverse",
        "_wanted",
        "heaviest",
        "stream",
        "window",
    )

    def __init__(self, stream: Stream, reverse: bool, most_rows: int, most_bytes: int) -> None:
        self.stream = stream
        self.window: deque[Columns] = deque()
        self._ahead: deque[Columns] = deque()
        self._ended = False
        self._reverse = reverse
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._held = 0
        self._wanted = LEAST_ROWS
        self.heaviest = 0

    @property
    def finished(self) -> bool:
        """Whether nothing will be added to the window."""
        return self._ended and not self._ahead

    @property
    def edge(self) -> bytes:
        """The key at the far end of the window: the last one, in reverse the first."""
        return key_at(self.window[-1], 0 if self._reverse else -1)

    def fill_nowait(self) -> bool:
        """Buffer what takes no waiting. Whether the window then holds a whole key and as many rows as are wanted of it,
        or all that is left."""
        window, ahead, next_nowait = self.window, self._ahead, self.stream.next_nowait
        while self._held < self._wanted or key_at(window[0], -1 if self._reverse else 0) == self.edge:
            if not ahead:
                if self._ended:
                    return True
                batch = next_nowait()
                if batch is None:
                    return False
                self._cut(batch)
            if ahead:
                part = ahead.popleft()
                window.append(part)
                self._held += len(part)
        return True

    async def fill(self) -> None:
        """Fetch until `fill_nowait` is content."""
        while not self.fill_nowait():
            try:
                self._cut(await anext(self.stream.batches))
            except StopAsyncIteration:
                self._ended = True

    def _cut(self, batch: Columns) -> None:
        """Put ``batch`` into `_ahead`, in pieces of a round's size."""
        total = len(batch)
        if not total:
            return
        nbytes = batch.nbytes
        self.heaviest = max(self.heaviest, nbytes)
        rows = max(1, min(self._most_rows, total * self._most_bytes // max(1, nbytes)))
        self._wanted = min(self._wanted, rows)
        if total <= rows:
            self._ahead.append(batch)
            return
        parts = [batch.slice(low, min(total, low + rows)) for low in range(0, total, rows)]
        self._ahead.extend(reversed(parts) if self._reverse else parts)

    def take(self, bound: bytes | None) -> list[Columns]:
        """Remove the rows before ``bound`` (all when ``None``) and return them in ascending order."""
        taken: list[Columns] = []
        window = self.window
        while window:
            part = window[0]
            rows, split = len(part), self._split(part, bound)
            low, high = (split, rows) if self._reverse else (0, split)
            self._held -= high - low
            if high - low == rows:
                taken.append(window.popleft())
                continue
            if low < high:
                taken.append(part.slice(low, high))
                window[0] = part.slice(0, low) if self._reverse else part.slice(high, rows)
            break
        self._wanted = min(2 * self._wanted, self._most_rows)
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


def edge_of(columns: Columns, row: int) -> Columns | bytes:
    """The key of one row, to be kept: of many rows the rows, because few scans ask for it; of few, which may be large,
    the key alone."""
    return columns if len(columns) >= FEW_ROWS else key_at(columns, row)


def edge_key(edge: Columns | bytes, row: int) -> bytes:
    """The key that `edge_of` kept for that ``row``."""
    return edge if isinstance(edge, bytes) else key_at(edge, row)


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
    return mask_of(pc.equal(keys[1:], keys[:-1]))


def rows_apart(parts: list[Columns], reverse: bool) -> list[Columns]:
    """Each row of ``parts`` by itself: keys in scan order, a key's versions newest first. Nothing is copied. None says
    from when on it is seen: the row before it may hide it."""
    places = [(key, part, row) for part in parts for row, key in enumerate(part.keys.to_pylist())]
    places.sort(key=lambda place: int(place[1].seqs[place[2]]), reverse=True)
    places.sort(key=lambda place: place[0], reverse=reverse)
    return [replace(part.slice(row, row + 1), seen_from=None) for _, part, row in places]


async def close_stream(stream: AsyncIterator[object]) -> None:
    """Close a stream that can be closed (an asynchronous generator, or one of our own)."""
    closing = getattr(stream, "aclose", None)
    if closing is not None:
        await closing()
