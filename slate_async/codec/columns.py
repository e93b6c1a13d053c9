"""`Columns`: the one in-memory shape of many rows, shared by blocks, log segments, memtables, merging and scans.

A row is key, value, sequence number, kind, expiry time and creation time; a `Columns` holds ``n`` of them as
arrays, wrapped around stored bytes without a copy where possible. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import number_array
from slate_async.errors import InternalError

NO_EXPIRY = np.iinfo(np.int64).max
"""``expire_ms`` of a row that never expires."""


class LateValue(Protocol):
    """The value of one row, which is read when somebody wants it."""

    @property
    def nbytes(self) -> int:
        """Its length."""

    async def complete(self, row: Columns) -> Columns:
        """``row``, whose value this is, with it. Raises what reading raises."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """``n`` rows. Sorted `Columns` are ordered by key ascending, then sequence number descending.

    keys, values: ``pa.BinaryArray`` of length n, no nulls (a tombstone's value is empty)
    seqs:      uint64[n]
    kinds:     uint8[n]   (`slate_async.types.PUT`, ``DELETE``, ``MERGE``)
    expire_ms: int64[n] milliseconds since the epoch, `NO_EXPIRY` for never; ``None`` = no row expires
    create_ms: int64[n] milliseconds since the epoch
    seen_from: readers of this sequence number and above see every row; ``None`` if some see less, or nobody looked.
               So the keys are distinct, and every row is a put that never expires
    late:      of a single row: its value, in place of which ``values`` has an empty one
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    seqs: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    expire_ms: npt.NDArray[np.int64] | None
    create_ms: npt.NDArray[np.int64]
    seen_from: int | None = None
    late: LateValue | None = None

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def nbytes(self) -> int:
        """Bytes the rows occupy in memory, offsets and fixed columns included; those of a late value, too."""
        fixed = self.seqs.nbytes + self.kinds.nbytes + self.create_ms.nbytes
        if self.late is not None:
            fixed += self.late.nbytes
        expire = 0 if self.expire_ms is None else self.expire_ms.nbytes
        return binary_nbytes(self.keys) + binary_nbytes(self.values) + fixed + expire

    def slice(self, start: int, stop: int) -> Columns:
        """Rows ``start`` to ``stop`` (exclusive), without a copy."""
        return Columns(
            self.keys.slice(start, stop - start),
            self.values.slice(start, stop - start),
            self.seqs[start:stop],
            self.kinds[start:stop],
            None if self.expire_ms is None else self.expire_ms[start:stop],
            self.create_ms[start:stop],
            self.seen_from,
            self.late if start < stop else None,
        )

    def take(self, indices: npt.NDArray[np.int64]) -> Columns:
        """The rows at ``indices``, in that order, copied."""
        chosen = number_array(indices)
        return Columns(
            self.keys.take(chosen),
            self.values.take(chosen),
            self.seqs[indices],
            self.kinds[indices],
            None if self.expire_ms is None else self.expire_ms[indices],
            self.create_ms[indices],
            None,
            self.late if len(indices) else None,
        )


def binary_nbytes(array: pa.BinaryArray) -> int:
    """Bytes of the elements and their offsets."""
    return content_nbytes(array) + 4 * (len(array) + 1) if len(array) else 0


def content_nbytes(array: pa.BinaryArray) -> int:
    """Bytes of the elements, from two of the offsets: many times faster than ``array.nbytes``."""
    rows = len(array)
    if not rows:
        return 0
    offsets = memoryview(array.buffers()[1]).cast("i")
    start = array.offset
    return int(offsets[start + rows] - offsets[start])


def concat(parts: list[Columns]) -> Columns:
    """All rows of ``parts`` one after another. ``parts`` must not be empty, and the values together must stay
    below 2 GiB (Arrow's 32-bit offsets)."""
    if len(parts) == 1:
        return parts[0]
    if any(part.late is not None for part in parts):
        raise InternalError("a row whose value is late has to stay alone")
    expire = None
    if any(p.expire_ms is not None for p in parts):
        expire = np.concatenate(
            [np.full(len(p), NO_EXPIRY, np.int64) if p.expire_ms is None else p.expire_ms for p in parts]
        )
    return Columns(
        pa.concat_arrays([p.keys for p in parts]),
        pa.concat_arrays([p.values for p in parts]),
        np.concatenate([p.seqs for p in parts]),
        np.concatenate([p.kinds for p in parts]),
        expire,
        np.concatenate([p.create_ms for p in parts]),
    )
