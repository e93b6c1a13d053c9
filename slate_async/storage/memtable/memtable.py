"""`Memtable`: the rows written since the last flush, as an append-only log of columns.

Columns: Python lists of keys and values; kinds and expiry times as `Marks` of the rows that are not *plain*, which is a
put that does not expire; creation times and sequence numbers, which seldom leave their course, as `Steps`. ``latest``
maps a key to its newest value. So a put is one dict store and two appends, a read of now is one look, and a log segment
is a slice.

Invariants: sequence numbers rise with the row number (gaps are fine); a row never changes once appended, but
`drop_after` may undo the newest ones for good; nothing is appended after `freeze`. Reads name the highest sequence
number they may see, so a reader that starts now never meets a row appended later. The rows of each key are gathered,
and the distinct keys put in order, only when somebody asks for an older version, all of a row, or a scan (see
`index_steps`, `order_steps`).

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import binary_array
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.errors import InternalError, InvalidError
from slate_async.runtime.untracked import untracked
from slate_async.storage.memtable.freeing import free
from slate_async.storage.memtable.marks import Marks
from slate_async.storage.memtable.order import SortedKeys
from slate_async.storage.memtable.remembered import Remembered, forget
from slate_async.storage.memtable.rows_by_key import NO_ROW, RowsByKey, values_at, values_of
from slate_async.storage.memtable.seen_from import with_seen_from
from slate_async.storage.memtable.spans import STEP_ROWS, pieces_of
from slate_async.storage.memtable.steps import Steps
from slate_async.types import MERGE, NEEDS_IO, PUT, NeedsIO, RangeDelete, RowHit, RowPage

ROW_OVERHEAD_BYTES = 224
"""What a row costs beside its key and value bytes: two bytes objects, their list slots, the dict entry, the packed
columns and the key's place in the sorted order (measured on CPython 3.11, rounded up). Not counted: about 100 bytes a
row of a table that is scanned or asked for older versions, for its `RowsByKey`."""

INDEX_STEP_ROWS = 2048
"""Rows whose keys are gathered in one step: 0.3 ms, 0.5 ms of keys that were there."""

FEW_ROWS = 12
ORDER_STEP_ROWS = 512
FIRST_BATCH_ROWS = 32
SCAN_STEP_ROWS = 1024
"""A scan's first batch; each later one is four times longer up to the step, which other work follows."""


class Memtable:
    """Append-only rows with versions. See the module docstring for the invariants."""

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_by_key",
        "_create",
        "_keys",
        "_marks",
        "_order",
        "_ordered_rows",
        "_values",
        "frozen",
        "last_seq",
        "latest",
        "limit",
        "nbytes",
        "seen",
    )

    def __init__(self) -> None:
        self._keys: list[bytes] = untracked([])
        self._values: list[bytes] = untracked([])
        self._marks = Marks()
        self._ahead = Steps()  # of a row's sequence number before its row number
        self._create = Steps()
        self.latest: dict[bytes, bytes | int] = {}
        """Of each key the value of its newest row, if that is a put that does not expire, else the row's number."""
        self._by_key = RowsByKey()
        self._order = SortedKeys()
        self._ordered_rows = 0
        self.frozen = False
        self.last_seq = 0
        """Sequence number of the newest row, 0 when empty."""
        self.nbytes = 0
        """Estimate of the memory held, in bytes: keys, values and `ROW_OVERHEAD_BYTES` per row."""
        self.limit = 0
        """`append_next` adds rows up to so many `nbytes`."""
        self.seen: Remembered[bytes] | None = None
        """With range deletes: newest values that readers found not to be hidden by them."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def first_seq(self) -> int:
        """Sequence number of the oldest row, 0 when empty."""
        return self._ahead.at(0) if self._keys else 0

    @property
    def expires(self) -> bool:
        """Whether any row of it expires."""
        return self._marks.expires

    @property
    def range_count(self) -> int:
        """How many of its rows delete a range of keys."""
        return len(self._marks.ranges)

    def range_deletes(self, first: int = 0) -> list[RangeDelete]:
        """Those rows from number ``first`` on, oldest first. Each is a tombstone of its range's first key, too."""
        hits = ((self._keys[row], self._hit(row)) for row in self._marks.ranges[first:])
        return [RangeDelete(hit.seq, key, hit.value, hit.create_ms) for key, hit in hits]

    def freeze(self) -> None:
        """No more appends from here on, and when nobody refers to it any more its rows go in steps. Idempotent."""
        if not self.frozen:
            held = (self._keys, self._values, self.latest, self._by_key, self._order)
            weakref.finalize(self, free, *held).atexit = False
        self.frozen = True
        self.limit = 0

    def append(self, key: bytes, value: bytes, kind: int, seq: int, expire_ms: int, create_ms: int) -> None:
        """Add one row. ``expire_ms`` is `NO_EXPIRY` for never; times are milliseconds since the epoch.

        Raises `InternalError` when frozen or when ``seq`` is not above `last_seq`.
        """
        if seq <= self.last_seq or self.frozen:
            self._refuse(seq)
        row, limit = len(self._keys), self.limit
        self._ahead.add(row, seq - row)
        self.last_seq = seq - 1
        self.limit = sys.maxsize
        self.appender()(key, value, kind, expire_ms, create_ms)
        self.limit = limit

    def appender(self) -> Callable[[bytes, bytes, int, int, int], int]:
        """`append_next`, until the next batch."""
        return self.append_next if self.seen is None else self.seen.forgetting(self.append_next)

    def append_next(self, key: bytes, value: bytes, kind: int, expire_ms: int, create_ms: int) -> int:
        """Add one row under the sequence number after `last_seq`, if it fits within `limit`: that number, or 0 if it
        does not. There must be a row already."""
        nbytes = self.nbytes + len(key) + len(value) + ROW_OVERHEAD_BYTES
        if nbytes > self.limit:
            return 0
        if kind or expire_ms != NO_EXPIRY:
            self._marks.add(len(self._keys), kind, expire_ms, value)
            self.latest[key] = len(self._keys)
        else:
            self.latest[key] = value
        if create_ms != self._create.last:
            self._create.add(len(self._keys), create_ms)
        self._keys.append(key)
        self._values.append(value)
        self.nbytes = nbytes
        self.last_seq = seq = self.last_seq + 1
        return seq

    def append_batch(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        kinds: bytes | bytearray,
        first_seq: int,
        expires: Sequence[int] | None,
        create_ms: int,
    ) -> None:
        """Add rows numbered ``first_seq``, ``first_seq + 1`` and so on, all created at ``create_ms``.

        ``expires`` gives each row's expiry (`NO_EXPIRY` for never), ``None`` when no row expires. Raises
        `InternalError` as `append` does, or when the columns differ in length.
        """
        count = len(keys)
        if not count:
            return
        self._extend(keys, values, kinds, (first_seq, first_seq + count - 1), expires)
        self._ahead.add(len(self._keys) - count, first_seq - len(self._keys) + count)
        self._create.add(len(self._keys) - count, create_ms)

    def extend(self, columns: Columns) -> None:
        """Add replayed rows with their own, strictly rising sequence numbers.

        Raises `InternalError` when frozen or when the numbers do not rise above `last_seq`.
        """
        if not len(columns):
            return
        if np.any(columns.seqs[1:] <= columns.seqs[:-1]):
            raise InternalError("replayed rows are not in the order of their sequence numbers")
        expires = None if columns.expire_ms is None else columns.expire_ms.tolist()
        first = len(self._keys)
        self._extend(
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            columns.kinds.tobytes(),
            (int(columns.seqs[0]), int(columns.seqs[-1])),
            expires,
        )
        self._ahead.extend(first, columns.seqs.astype(np.int64) - np.arange(first, len(self._keys)))
        self._create.extend(first, columns.create_ms)

    def _extend(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        kinds: bytes | bytearray,
        seqs: tuple[int, int],
        expires: Sequence[int] | None,
    ) -> None:
        count = len(keys)
        if seqs[0] <= self.last_seq or self.frozen:
            self._refuse(seqs[0])
        if len(values) != count or len(kinds) != count or (expires is not None and len(expires) != count):
            raise InternalError("the columns of a batch differ in length")
        row, ranges = len(self._keys), self.range_count
        if expires is None and kinds.count(PUT) == count:
            self.latest.update(zip(keys, values, strict=True))
        else:
            lives = repeat(NO_EXPIRY, count) if expires is None else expires
            self.latest.update(self._marks.added(row, keys, values, kinds, lives))
        self.seen = forget(self.seen, keys, self.range_count > ranges)
        self._keys.extend(keys)
        self._values.extend(values)
        self.last_seq = seqs[1]
        self.nbytes += sum(map(len, keys)) + sum(map(len, values)) + count * ROW_OVERHEAD_BYTES

    def _refuse(self, seq: int) -> None:
        if self.frozen:
            raise InternalError("append to a frozen memtable")
        raise InternalError(f"sequence number {seq} is not above {self.last_seq}")

    def drop_after(self, rows: int) -> None:
        """Undo every row after the first ``rows``, for all present and later reads, and freeze.

        Takes time for the rows that stay, so it is for what happens once in an outage."""
        self.freeze()
        if rows >= len(self._keys):
            return
        taken_back = slice(rows, len(self._keys))
        self.nbytes -= sum(map(len, self._keys[taken_back])) + sum(map(len, self._values[taken_back]))
        self.nbytes -= (len(self._keys) - rows) * ROW_OVERHEAD_BYTES
        if self.seen is not None:
            self.seen.clear()
        undone = dict.fromkeys(self._keys[taken_back])
        del self._keys[taken_back], self._values[taken_back]
        self._marks.ranges = [row for row in self._marks.ranges if row < rows]
        self.last_seq = rows - 1 + self._ahead.at(rows - 1) if rows else 0
        for key in undone:
            del self.latest[key]
        for row, key in enumerate(self._keys):
            if key in undone:
                self.latest[key] = self._latest_of(row)

    # point reads

    def find(self, key: bytes, max_seq: int) -> bytes | RowHit | NeedsIO | None:
        """The newest version of ``key`` with a sequence number of at most ``max_seq``: the value of a put that does not
        expire, else all of the row, tombstones included. `NEEDS_IO`: once `index_steps` have been taken."""
        found = self.latest.get(key)
        if found is None:
            return None
        if max_seq < self.last_seq:
            end = self.row_after(max_seq)
            if not self._indexes(end):
                return NEEDS_IO
            row = self._by_key.row(key, end)
            if row == NO_ROW:
                return None
            found = self._latest_of(row)
        return self._hit(found) if isinstance(found, int) else found

    def get(self, key: bytes, max_seq: int) -> RowHit | NeedsIO | None:
        """As `find`, always all of the row."""
        if key not in self.latest:
            return None
        end = self.row_after(max_seq)
        if not self._indexes(end):
            return NEEDS_IO
        row = self._by_key.row(key, end)
        return None if row == NO_ROW else self._hit(row)

    def chain(self, key: bytes, max_seq: int, most: int) -> list[RowHit] | NeedsIO:
        """What `get` finds, and behind an operand the older versions down to the newest that is none: found together,
        for each is behind the one that replaced it. `NEEDS_IO` also of more than ``most``."""
        if key not in self.latest:
            return []
        end = self.row_after(max_seq)
        if not self._indexes(end):
            return NEEDS_IO
        newest = self._by_key.row(key, end)
        rows = [] if newest == NO_ROW else self._by_key.chains([newest], self._marks.kinds, most)
        if len(rows) > most:
            return NEEDS_IO
        return [self._hit(row) for row in rows] if len(rows) < FEW_ROWS else self._hits(rows)

    def _hits(self, rows: list[int]) -> list[RowHit]:
        """As `_hit` of each, in half the time where they are many."""
        at, marks = np.array(rows, np.int64), self._marks
        expires = [NO_EXPIRY] * len(rows) if (found := marks.expiries_of(at)) is None else found.tolist()
        numbers = (column.tolist() for column in (at + self._ahead.of(at), marks.kinds_of(at), self._create.of(at)))
        return [*map(RowHit, values_at(self._values, rows), next(numbers), next(numbers), expires, next(numbers))]

    def _latest_of(self, row: int) -> bytes | int:
        """What ``latest`` says of a key whose newest row is ``row``."""
        return self._values[row] if self._marks.plain(row) else row

    def _hit(self, row: int) -> RowHit:
        seq = row + self._ahead.at(row)
        return RowHit(self._values[row], seq, self._marks.kind(row), self._marks.expiry(row), self._create.at(row))

    def _indexes(self, end: int) -> bool:
        """Whether the rows of each key are gathered for rows up to ``end``, as they are now if a step does it."""
        behind = end - self._by_key.rows
        if behind > INDEX_STEP_ROWS:
            return False
        if behind > 0:
            self._index_to(end)
        return True

    def _index_to(self, end: int) -> None:
        self._by_key.add(self._keys[self._by_key.rows : end])

    def index_steps(self, max_seq: int) -> Iterator[None]:
        """Gather the rows of each key for rows up to ``max_seq``, less than 1 ms a step; several callers' steps may
        interleave."""
        while self._by_key.rows < (end := self.row_after(max_seq)):
            self._index_to(min(end, self._by_key.rows + INDEX_STEP_ROWS))
            yield

    def row_after(self, seq: int) -> int:
        """How many rows have a sequence number of at most ``seq``: the first row after it."""
        rows = len(self._keys)
        return rows if seq >= self.last_seq else self._ahead.first_row_ahead_of(seq, rows)

    def keys_after(self, seq: int) -> Iterator[tuple[int, list[bytes]]]:
        """The keys of the rows above ``seq`` in write order, cut where numbers leave a gap; each piece with the number
        of its first row."""
        row, rows = self.row_after(seq), len(self._keys)
        while row < rows:
            ahead = self._ahead.at(row)
            stop = self._ahead.first_row_above(ahead, rows)
            yield row + ahead, self._keys[row:stop]
            row = stop

    def newest_keys(self, count: int) -> list[bytes] | None:
        """The keys of the ``count`` newest rows, if there are so many and their numbers are neighbours."""
        start = len(self._keys) - count
        return self._keys[start:] if start >= self._ahead.last_step else None

    def seq_written_by(self, time_ms: int) -> int:
        """The sequence number of the newest row created at ``time_ms`` or before, 0 if there is none."""
        row = min(self._create.first_row_above(time_ms, len(self._keys)), len(self._keys)) - 1
        return row + self._ahead.at(row) if row >= 0 else 0

    def written_ms(self, row: int) -> int:
        """When row number ``row`` was created, milliseconds."""
        return self._create.at(row)

    def time_of(self, seq: int) -> int:
        """When the newest row up to ``seq``, which must not be below `first_seq`, was created, milliseconds."""
        return self._create.at(self.row_after(seq) - 1)

    # conversion

    def slices(self, start: int, stop: int) -> Iterator[Columns]:
        """Rows ``start`` to ``stop`` (exclusive) in write order; each step builds one piece in less than 1 ms.

        Raises `InvalidError` at the first step for rows that are not there.
        """
        if not 0 <= start <= stop <= len(self._keys):
            raise InvalidError(f"rows {start} to {stop} of a memtable of {len(self._keys)}")
        for low in range(start, stop, STEP_ROWS):
            high = min(stop, low + STEP_ROWS)
            rows = np.arange(low, high, dtype=np.int64)
            yield from pieces_of(self._columns, rows, self._keys[low:high], self._values[low:high])

    def pieces(self, rows: Sequence[int], *, reverse: bool = False) -> Iterator[Columns]:
        """The rows numbered ``rows`` in that order, cut so that a piece holds about `STEP_BYTES` or one row.

        With ``reverse`` the pieces come from the end; the rows inside one keep their order. No rows make one empty
        piece.
        """
        keys, values = [self._keys[row] for row in rows], [self._values[row] for row in rows]
        yield from pieces_of(self._columns, np.array(rows, np.int64), keys, values, reverse)

    def _columns(self, rows: npt.NDArray[np.int64], keys: pa.BinaryArray, values: pa.BinaryArray) -> Columns:
        return Columns(
            keys,
            values,
            (rows + self._ahead.of(rows)).view(np.uint64),
            self._marks.kinds_of(rows),
            self._marks.expiries_of(rows),
            self._create.of(rows),
        )

    def key_array(self, start: int, stop: int) -> pa.LargeBinaryArray:
        """The keys of rows ``start`` to ``stop`` (exclusive), with 64-bit offsets so that any number concatenates."""
        return binary_array(self._keys[start:stop], pa.large_binary())

    # scans

    def order_steps(self, max_seq: int) -> Iterator[None]:
        """Put the keys of rows up to ``max_seq`` in order, about 1 ms a step; several callers' steps may interleave."""
        while self._ordered_rows < self.row_after(max_seq):
            self._order_more()
            yield

    def _order_more(self) -> None:
        start = self._ordered_rows
        stop = min(len(self._keys), start + ORDER_STEP_ROWS)
        if self._by_key.rows < stop:
            self._index_to(stop)
        self._order.add(self._by_key.firsts(self._keys[start:stop], start))
        self._ordered_rows = stop

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: int = 0,
    ) -> RowPage | None:
        """The first keys of ``[start, end)`` in scan order, at most ``count`` of them, as a reader up to ``max_seq``
        sees them at ``now_ms``, with values or ``whole`` rows; none only if there are none. ``None`` when that takes
        longer than a look."""
        wanted = self.row_after(max_seq)
        if wanted - self._ordered_rows > ORDER_STEP_ROWS:
            return None
        if self._ordered_rows < wanted:
            self._order_more()
        keys = self._order.descending(start, end, count) if reverse else self._order.ascending(start, end, count)
        ended = len(keys) < count
        if reverse:
            keys.reverse()
        if max_seq >= self.last_seq and self._ordered_rows <= len(self._keys):  # none of those keys was undone
            found = values_of(self.latest, keys)
        else:
            rows = self._by_key.each(keys, wanted)
            if keys and not rows and not ended:
                return None
            if len(rows) < len(keys):
                keys = [self._keys[row] for row in rows]
            found = [self._values[row] for row in rows] if self._marks.none else [self._latest_of(row) for row in rows]
        if whole:
            pairs: list[tuple[bytes, Any]] = [
                (key, self._hit(row)) for key, row in zip(keys, self._by_key.each(keys, wanted), strict=True)
            ]
        else:
            pairs = list(zip(keys, found, strict=True))
        if self._marks.none or int not in set(map(type, found)):
            return pairs, False, ended
        for number, entry in enumerate(found):
            if isinstance(entry, bytes):
                continue
            kind = self._marks.kind(entry)
            if kind >= MERGE:
                return None
            if kind != PUT or self._marks.expiry(entry) <= now_ms:
                pairs[number] = (keys[number], None)
            elif not whole:
                pairs[number] = (keys[number], self._values[entry])
        return pairs, True, ended

    def scan(self, start: bytes | None, end: bytes | None, max_seq: int, reverse: bool = False) -> Iterator[Columns]:
        """For each key of ``[start, end)`` its newest version up to ``max_seq``, tombstones included; of an operand
        also the older ones, down to the newest that is none.

        Batches have at most `SCAN_STEP_ROWS` rows, ascending by key inside; in reverse they come from the end. An empty
        one says that only newer keys were met and bounds a step's work. Rows appended while the scan is under way
        do not show. Whatever `order_steps` has left is ordered first.
        """
        for _ in self.order_steps(max_seq):
            pass
        count = FIRST_BATCH_ROWS
        order = self._order
        while True:
            keys = order.descending(start, end, count) if reverse else order.ascending(start, end, count)
            if not keys:
                return
            rows = self._by_key.each(keys, self.row_after(max_seq))
            if self._marks.operands:
                rows = self._by_key.chains(rows, self._marks.kinds)
            yield from map(with_seen_from, self.pieces(rows, reverse=reverse))
            if reverse:
                end = keys[0]
            else:
                start = keys[-1] + b"\0"
            count = min(4 * count, SCAN_STEP_ROWS)
