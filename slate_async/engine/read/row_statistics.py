"""What the rows of a view are like, counted column by column: every version that is stored, and which of them live.

A size falls into the bucket of its bit length: bucket 0 holds 0, bucket ``b`` the numbers from ``2 ** (b - 1)`` to
``2 ** b - 1``.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import numbers_of
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.read_point import ReadPoint
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.ordering import repeated_keys
from slate_async.types import DELETE, MAX_KEY_BYTES, MAX_VALUE_BYTES

KEY_BUCKETS = MAX_KEY_BYTES.bit_length() + 1
VALUE_BUCKETS = MAX_VALUE_BYTES.bit_length() + 1
TTL_BUCKETS = 34
"""The last one holds whatever lives for longer than a century."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowStatistics:
    """Statistics of the rows of a range, as of one read point.

    versions: all that SSTs hold, until a compaction drops the older ones; of rows in memory the newest of each key
    keys: distinct ones among them
    tombstones: versions that only say that their key was deleted
    live: rows that a reader gets; ``expiring`` of them have an expiry time
    expired: keys whose newest version is a put whose time is over
    key_bytes, value_bytes: of the live rows
    key_sizes, value_sizes: live rows by the bytes of key and value; buckets as above
    ttls: live rows that expire, by the whole seconds between their making and their expiry; buckets as above
    """

    versions: int
    keys: int
    tombstones: int
    live: int
    expiring: int
    expired: int
    key_bytes: int
    value_bytes: int
    key_sizes: tuple[int, ...]
    value_sizes: tuple[int, ...]
    ttls: tuple[int, ...]

    @property
    def tombstone_share(self) -> float:
        """Part of the versions that are tombstones."""
        return self.tombstones / self.versions if self.versions else 0.0


async def row_statistics(point: ReadPoint, span: KeyRange, yield_budget: YieldBudget) -> RowStatistics:
    """Of what ``point`` shows of ``span``. Raises what reading raises."""
    counter = RowCounter(point.max_seq, point.now_ms)
    pin = point.view.pin()
    try:
        async with aclosing(point.view.versions(span, point.max_seq)) as rounds:
            async for found in rounds:
                counter.add(found.all())
                if yield_budget.exhausted():
                    await yield_budget.yield_now()
    finally:
        del pin
    return counter.statistics()


class RowCounter:
    """Counts rows, ordered by key and then newest first, batch after batch."""

    def __init__(self, max_seq: int, now_ms: int) -> None:
        """``max_seq``: rows above it are not there; ``now_ms`` judges expiry."""
        self._max_seq = max_seq
        self._now_ms = now_ms
        self._last_key: bytes | None = None
        self._versions = self._keys = self._tombstones = self._live = self._expiring = self._expired = 0
        self._key_bytes = self._value_bytes = 0
        self._key_sizes = np.zeros(KEY_BUCKETS, np.int64)
        self._value_sizes = np.zeros(VALUE_BUCKETS, np.int64)
        self._ttls = np.zeros(TTL_BUCKETS, np.int64)

    def add(self, rows: Columns) -> None:
        """The next rows, one or more."""
        wanted = rows.seqs <= self._max_seq  # and once: a row may be in the log and in L0
        wanted[1:] &= ~(repeated_keys(rows.keys)[1:] & (rows.seqs[1:] == rows.seqs[:-1]))
        if not wanted.all():
            rows = rows.take(np.flatnonzero(wanted))
        if not len(rows):
            return
        newest = ~repeated_keys(rows.keys)
        newest[0] = rows.keys[0].as_py() != self._last_key
        self._last_key = rows.keys[len(rows) - 1].as_py()
        deleted = rows.kinds == DELETE
        puts = newest & ~deleted
        expires = np.full(len(rows), NO_EXPIRY) if rows.expire_ms is None else rows.expire_ms
        alive = puts & (expires > self._now_ms)
        self._versions += len(rows)
        self._keys += _count(newest)
        self._tombstones += _count(deleted)
        self._expired += _count(puts) - _count(alive)
        self._add_live(rows, alive, expires)

    def _add_live(self, rows: Columns, alive: npt.NDArray[np.bool_], expires: npt.NDArray[np.int64]) -> None:
        key_sizes, value_sizes = _lengths(rows.keys)[alive], _value_sizes(rows)[alive]
        ends = alive & (expires != NO_EXPIRY)
        self._live += _count(alive)
        self._expiring += _count(ends)
        self._key_bytes += int(key_sizes.sum())
        self._value_bytes += int(value_sizes.sum())
        self._key_sizes += histogram(key_sizes, KEY_BUCKETS)
        self._value_sizes += histogram(value_sizes, VALUE_BUCKETS)
        self._ttls += histogram((expires[ends] - rows.create_ms[ends]) // 1000, TTL_BUCKETS)

    def statistics(self) -> RowStatistics:
        """Of everything added."""
        return RowStatistics(
            self._versions,
            self._keys,
            self._tombstones,
            self._live,
            self._expiring,
            self._expired,
            self._key_bytes,
            self._value_bytes,
            tuple(self._key_sizes.tolist()),
            tuple(self._value_sizes.tolist()),
            tuple(self._ttls.tolist()),
        )


def histogram(numbers: npt.NDArray[np.int64], buckets: int) -> Counts:
    """How many of ``numbers`` fall into each bucket; what is beyond the last one counts there, the negative as 0."""
    _, bit_lengths = np.frexp(np.maximum(numbers, 0).astype(np.float64))
    return np.bincount(np.minimum(bit_lengths, buckets - 1), minlength=buckets).astype(np.int64)


def _lengths(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return numbers_of(pc.binary_length(column)).astype(np.int64)


def _value_sizes(rows: Columns) -> npt.NDArray[np.int64]:
    return _lengths(rows.values) if rows.late is None else np.array([rows.late.nbytes])


def _count(mask: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))
