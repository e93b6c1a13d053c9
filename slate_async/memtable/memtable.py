"""`Memtable`: the rows written since the last flush, as an append-only log of columns.

Columns: Python lists of keys and values, packed arrays of kinds and expiry times; creation times and sequence numbers
seldom leave their course and are kept as `Steps`. ``_newest`` maps a key to the row of its newest version and
``_older`` a row that replaced another to the one it replaced, so a put is one dict store and a few appends, and a log
segment is a slice.

Invariants: sequence numbers rise with the row number (gaps are fine); a row never changes once appended; nothing
is appended after `freeze`. Reads name the highest sequence number they may see, so a reader that starts now never
meets a row appended later. The distinct keys are put in order only when somebody scans (see `order_steps`).

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.errors import InternalError, InvalidError
from slate_async.format.columns import NO_EXPIRY, Columns
from slate_async.memtable.order import SortedKeys
from slate_async.memtable.spans import spans
from slate_async.memtable.steps import Steps
from slate_async.types import MERGE, PUT, RowHit, Stretch

ROW_OVERHEAD_BYTES = 224
"""What a row costs beside its key and value bytes: two bytes objects, their list slots, the dict entry with its row
number, the packed columns and the key's place in the sorted order (measured on CPython 3.11, rounded up)."""

STEP_ROWS = 4096
"""With `STEP_BYTES` the bounds of one conversion step, about a millisecond of work."""

ORDER_STEP_ROWS = 512
FIRST_BATCH_ROWS = 32
SCAN_STEP_ROWS = 1024
"""A scan's first batch; each later one is four times longer up to the step, which other work follows."""

NO_ROW = -1


class Memtable:
    """Append-only rows with versions. See the module docstring for the invariants."""

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_create",
        "_expire",
        "_keys",
        "_kinds",
        "_newest",
        "_older",
        "_order",
        "_ordered_rows",
        "_values",
        "frozen",
        "last_seq",
        "limit",
        "nbytes",
    )

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._kinds = bytearray()
        self._ahead = Steps()  # of a row's sequence number before its row number
        self._create = Steps()
        self._expire: array[int] | None = None
        self._newest: dict[bytes, int] = {}
        self._older: dict[int, int] = {}
        self._order = SortedKeys()
        self._ordered_rows = 0
        self.frozen = False
        self.last_seq = 0
        """Sequence number of the newest row, 0 when empty."""
        self.nbytes = 0
        """Estimate of the memory held, in bytes: keys, values and `ROW_OVERHEAD_BYTES` per row."""
        self.limit = 0
        """`append_next` adds rows up to so many `nbytes`."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def first_seq(self) -> int:
        """Sequence number of the oldest row, 0 when empty."""
        return self._ahead.at(0) if self._keys else 0

    @property
    def expires(self) -> bool:
        """Whether any row of it expires."""
        return self._expire is not None

    def freeze(self) -> None:
        """No more appends from here on. Idempotent."""
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
        self.append_next(key, value, kind, expire_ms, create_ms)
        self.limit = limit

    def append_next(self, key: bytes, value: bytes, kind: int, expire_ms: int, create_ms: int) -> int:
        """Add one row under the sequence number after `last_seq`, if it fits within `limit`: that number, or 0 if it
        does not. There must be a row already."""
        nbytes = self.nbytes + len(key) + len(value) + ROW_OVERHEAD_BYTES
        if nbytes > self.limit:
            return 0
        if expire_ms != NO_EXPIRY or self._expire is not None:
            self._expiries().append(expire_ms)
        keys = self._keys
        row = len(keys)
        replaced = self._newest.setdefault(key, row)
        if replaced != row:
            self._older[row] = replaced
            self._newest[key] = row
        keys.append(key)
        self._values.append(value)
        self._kinds.append(kind)
        if create_ms != self._create.last:
            self._create.add(row, create_ms)
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
        if expires is not None or self._expire is not None:
            self._expiries().extend(repeat(NO_EXPIRY, count) if expires is None else expires)
        row = len(self._keys)
        newest = self._newest
        rows = list(range(row, row + count))
        found = list(map(newest.setdefault, keys, rows))
        if found != rows:
            for number, key, version in zip(rows, keys, found, strict=True):
                if version != number:
                    self._older[number] = newest[key]
                    newest[key] = number
        self._keys.extend(keys)
        self._values.extend(values)
        self._kinds.extend(kinds)
        self.last_seq = seqs[1]
        self.nbytes += sum(map(len, keys)) + sum(map(len, values)) + count * ROW_OVERHEAD_BYTES

    def _expiries(self) -> array[int]:
        if self._expire is None:
            self._expire = array("q", [NO_EXPIRY]) * len(self._keys)
        return self._expire

    def _refuse(self, seq: int) -> None:
        if self.frozen:
            raise InternalError("append to a frozen memtable")
        raise InternalError(f"sequence number {seq} is not above {self.last_seq}")

    def find(self, key: bytes, max_seq: int) -> bytes | RowHit | None:
        """The newest version of ``key`` with a sequence number of at most ``max_seq``: the value of a put that does not
        expire, else all of the row, tombstones included."""
        row = self._newest.get(key, NO_ROW)
        if max_seq < self.last_seq:
            row = self._visible_row(row, max_seq)
        if row < 0:
            return None
        if self._kinds[row] or self._expire is not None:
            return self._hit(row)
        return self._values[row]

    def get(self, key: bytes, max_seq: int) -> RowHit | None:
        """As `find`, always all of the row."""
        row = self._newest.get(key, NO_ROW)
        if max_seq < self.last_seq:
            row = self._visible_row(row, max_seq)
        return None if row < 0 else self._hit(row)

    def _visible_row(self, row: int, max_seq: int) -> int:
        """``row`` or the newest older version of its key that a reader up to ``max_seq`` sees; below 0 for none."""
        end = self.row_after(max_seq)
        while row >= end:
            row = self._older.get(row, NO_ROW)
        return row

    def _hit(self, row: int) -> RowHit:
        expire_ms = NO_EXPIRY if self._expire is None else self._expire[row]
        seq = row + self._ahead.at(row)
        return RowHit(self._values[row], seq, self._kinds[row], expire_ms, self._create.at(row))

    def row_after(self, seq: int) -> int:
        """How many rows have a sequence number of at most ``seq``: the first row after it."""
        rows = len(self._keys)
        return rows if seq >= self.last_seq else self._ahead.first_row_ahead_of(seq, rows)

    def seq_written_by(self, time_ms: int) -> int:
        """The sequence number of the newest row created at ``time_ms`` or before, 0 if there is none."""
        row = self._create.first_row_above(time_ms, len(self._keys)) - 1
        return row + self._ahead.at(row) if row >= 0 else 0

    def time_of(self, seq: int) -> int:
        """When the newest row up to ``seq``, which must not be below `first_seq`, was created, milliseconds."""
        return self._create.at(self.row_after(seq) - 1)

    # conversion

    def slices(self, start: int, stop: int) -> Iterator[Columns]:
        """Rows ``start`` to ``stop`` (exclusive) in write order; each step builds one piece in about 1 ms.

        Raises `InvalidError` at the first step for rows that are not there.
        """
        if not 0 <= start <= stop <= len(self._keys):
            raise InvalidError(f"rows {start} to {stop} of a memtable of {len(self._keys)}")
        for low in range(start, stop, STEP_ROWS):
            high = min(stop, low + STEP_ROWS)
            rows = np.arange(low, high, dtype=np.int64)
            keys, values = self._keys[low:high], self._values[low:high]
            for begin, end in spans(keys, values):
                yield self._columns(rows[begin:end], keys[begin:end], values[begin:end])

    def pieces(self, rows: Sequence[int], *, reverse: bool = False) -> Iterator[Columns]:
        """The rows numbered ``rows`` in that order, cut so that a piece holds about `STEP_BYTES` or one row.

        With ``reverse`` the pieces come from the end; the rows inside one keep their order. No rows make one empty
        piece.
        """
        keys, values = [self._keys[row] for row in rows], [self._values[row] for row in rows]
        chosen = np.array(rows, np.int64)
        cuts = spans(keys, values)
        for low, high in reversed(cuts) if reverse else cuts:
            yield self._columns(chosen[low:high], keys[low:high], values[low:high])

    def _columns(self, rows: npt.NDArray[np.int64], keys: list[bytes], values: list[bytes]) -> Columns:
        return Columns(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            (rows + self._ahead.of(rows)).view(np.uint64),
            np.frombuffer(self._kinds, np.uint8)[rows],
            None if self._expire is None else np.frombuffer(self._expire, np.int64)[rows],
            self._create.of(rows),
        )

    def key_array(self, start: int, stop: int) -> pa.LargeBinaryArray:
        """The keys of rows ``start`` to ``stop`` (exclusive), with 64-bit offsets so that any number concatenates."""
        return pa.array(self._keys[start:stop], pa.large_binary())

    # scans

    def order_steps(self, max_seq: int) -> Iterator[None]:
        """Put the keys of rows up to ``max_seq`` in order, about 1 ms a step; several callers' steps may interleave."""
        while self._ordered_rows < self.row_after(max_seq):
            self._order_more()
            yield

    def _order_more(self) -> None:
        start = self._ordered_rows
        stop = min(len(self._keys), start + ORDER_STEP_ROWS)
        keys, older = self._keys[start:stop], self._older
        self._order.add([key for row, key in enumerate(keys, start) if row not in older] if older else keys)
        self._ordered_rows = stop

    def first_rows(
        self, start: bytes | None, end: bytes | None, count: int, max_seq: int, now_ms: int
    ) -> Stretch | None:
        """The first keys of ``[start, end)``, at most ``count`` of them, as a reader up to ``max_seq`` sees them at
        ``now_ms``; none only if there are none. ``None`` when that takes longer than a look."""
        wanted = self.row_after(max_seq)
        if wanted - self._ordered_rows > ORDER_STEP_ROWS:
            return None
        if self._ordered_rows < wanted:
            self._order_more()
        keys = self._order.ascending(start, end, count)
        ended = len(keys) < count
        if max_seq >= self.last_seq:
            rows = [self._newest[key] for key in keys]
        else:
            rows = self._visible(keys, max_seq)
            if keys and not rows and not ended:
                return None
            keys = [self._keys[row] for row in rows]
        values: list[bytes | None] = [self._values[row] for row in rows]
        kinds = self._kinds
        if self._expire is None and not any(map(kinds.__getitem__, rows)):
            return keys, values, False, ended
        for number, row in enumerate(rows):
            if kinds[row] >= MERGE:
                return None
            if kinds[row] != PUT or (self._expire is not None and self._expire[row] <= now_ms):
                values[number] = None
        return keys, values, True, ended

    def scan(self, start: bytes | None, end: bytes | None, max_seq: int, reverse: bool = False) -> Iterator[Columns]:
        """For each key of ``[start, end)`` its newest version up to ``max_seq``, tombstones included.

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
            yield from map(_judged, self.pieces(self._visible(keys, max_seq), reverse=reverse))
            if reverse:
                end = keys[0]
            else:
                start = keys[-1] + b"\0"
            count = min(4 * count, SCAN_STEP_ROWS)

    def _visible(self, keys: list[bytes], max_seq: int) -> list[int]:
        newest = self._newest
        if max_seq >= self.last_seq:
            return [newest[key] for key in keys]
        end, older = self.row_after(max_seq), self._older
        rows: list[int] = []
        for key in keys:
            row = newest[key]
            while row >= end:
                row = older.get(row, NO_ROW)
            if row >= 0:
                rows.append(row)
        return rows


def _judged(newest: Columns) -> Columns:
    """``newest``, one version of each key, with what can be said of `Columns.seen_from`."""
    if newest.expire_ms is not None or not len(newest) or np.any(newest.kinds != PUT):
        return newest
    return replace(newest, seen_from=int(newest.seqs.max()))
