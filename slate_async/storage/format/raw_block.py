"""`RawBlock`: the rows of a block where they lie in its raw bytes, for reads of few of them.

Raw bytes, little-endian, every column 8-byte aligned, so Arrow and numpy wrap it without a copy::

    rows u32 | flags u32 | base seq u64 | base create ms i64 | key bytes u32 | value bytes u32 | kind u8 | zero 7
    | key offsets u32[n+1] | value offsets u32[n+1] | seqs u64[n]? | expire ms i64[n]? | create ms i64[n]?
    | kinds u8[n]? | key bytes | value bytes

A point read looks at a handful of rows, and a short scan at some dozens: neither is worth Arrow arrays, which take
several times as long to make. `RawBlock.columns` makes them for callers that read on.

Invariant: every offset, kind and length was checked, so nothing downstream reads outside its buffers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise, repeat
from operator import sub
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, MERGE, Buffer, RowHit

RAW_HEADER_BYTES = 40
SEQ_DENSE = 1
HAS_EXPIRE = 2
HAS_CREATE = 4
HAS_KINDS = 8
KNOWN_FLAGS = SEQ_DENSE | HAS_EXPIRE | HAS_CREATE | HAS_KINDS
RAW_HEADER = struct.Struct("<IIQqIIB7s")
ZERO7 = bytes(7)

FEW_ROWS = 256
"""Up to so many rows plain Python checks and converts them faster than numpy, whose calls take a microsecond each."""
MOST_COPIED_BYTES = 128 << 10
"""More is not copied in one go to be cut."""
NOT_MEASURED = -1
"""A width that nobody has asked for."""

_Number = TypeVar("_Number", bound=np.generic)
_BINARY = pa.binary()


class BadBlockError(Exception):
    """The raw bytes of a block do not fit together; becomes `CorruptionError` at the edge."""


class RawBlock:
    """``rows`` rows in ``data``, whose raw bytes are the first ``raw_bytes`` of it. Raises `BadBlockError`.

    Keys and values are slices of ``data``: bytes if that is."""

    __slots__ = (
        "_base_create",
        "_base_seq",
        "_create",
        "_expire",
        "_key_at",
        "_key_offsets",
        "_key_width",
        "_kind",
        "_kinds",
        "_seq_step",
        "_seqs",
        "_value_at",
        "_value_offsets",
        "_value_width",
        "data",
        "raw_bytes",
        "rows",
    )

    def __init__(self, data: Buffer, raw_bytes: int, *, checked: bool = False) -> None:
        """``checked``: somebody did what makes the invariant true, `slate_async.storage.format.block_parts` say."""
        rows, flags, base_seq, base_create, key_bytes, value_bytes, kind, zero = RAW_HEADER.unpack_from(data)
        if not rows or flags & ~KNOWN_FLAGS or zero != ZERO7:
            raise BadBlockError(f"a block of {rows} rows with flags {flags:#x} is not readable here")
        if base_seq > MAX_SEQ - rows:
            raise BadBlockError("a sequence number is out of range")
        wide = 4 * (rows + 1)
        key_offsets_at = RAW_HEADER_BYTES
        value_offsets_at = at = key_offsets_at + wide + (-wide % 8)
        at += wide + (-wide % 8)
        fixed_at = at
        at += 8 * rows * ((not flags & SEQ_DENSE) + (flags & HAS_EXPIRE > 0) + (flags & HAS_CREATE > 0))
        if flags & HAS_KINDS:
            at += rows + (-rows % 8)
        self._key_at = at
        self._value_at = at = at + key_bytes + (-key_bytes % 8)
        end = at + value_bytes + (-value_bytes % 8)
        if end != raw_bytes:
            raise BadBlockError(f"block columns do not {'fit' if end > raw_bytes else 'fill'} its length")
        self.data: bytes = data  # type: ignore[assignment]  # only code that cuts columns may have another buffer
        self.raw_bytes = raw_bytes
        self.rows = rows
        view = memoryview(data)
        self._key_offsets = view[key_offsets_at : key_offsets_at + wide].cast("I")
        self._value_offsets = view[value_offsets_at : value_offsets_at + wide].cast("I")
        self._seqs: memoryview[int] | None = None
        self._expire: memoryview[int] | None = None
        self._create: memoryview[int] | None = None
        self._kinds: memoryview[int] | None = None
        self._base_seq, self._seq_step, self._base_create, self._kind = base_seq, 1, base_create, kind
        if flags != SEQ_DENSE:
            self._cut_fixed(view, flags, fixed_at)
        self._key_width = self._value_width = NOT_MEASURED
        if checked:
            return
        self._check_fixed()
        self._value_width = _check_offsets(self._value_offsets, rows, value_bytes)
        self._key_width = _check_offsets(self._key_offsets, rows, key_bytes, keys=True)

    def _cut_fixed(self, view: memoryview, flags: int, at: int) -> None:
        """The columns that are there of those of fixed width, which begin at ``at``."""
        rows = self.rows
        if not flags & SEQ_DENSE:
            self._seqs = view[at : at + 8 * rows].cast("Q")
            at += 8 * rows
        if flags & HAS_EXPIRE:
            self._expire = view[at : at + 8 * rows].cast("q")
            at += 8 * rows
        if flags & HAS_CREATE:
            self._create = view[at : at + 8 * rows].cast("q")
            at += 8 * rows
        if flags & HAS_KINDS:
            self._kinds = view[at : at + rows]

    def _check_fixed(self) -> None:
        if self._seqs is not None and not bytes(self._seqs.cast("B")[7::8]).isascii():  # MAX_SEQ has 63 bits
            raise BadBlockError("a sequence number is out of range")
        highest = self._kind if self._kinds is None else max(bytes(self._kinds))
        if highest > MERGE:
            raise BadBlockError(f"row kind {highest} is not known to this release")

    def renumber(self, seq: int, create_ms: int) -> None:
        """Every row is numbered ``seq`` and was created at ``create_ms``, whatever is stored."""
        self._seqs = self._create = None
        self._base_seq, self._seq_step, self._base_create = seq, 0, create_ms

    # single rows

    def lower_bound(self, key: bytes) -> int:
        """The first row whose key is ``key`` or greater; ``rows`` if there is none."""
        offsets, data, base = self._key_offsets, self.data, self._key_at
        low, high = 0, self.rows
        while low < high:
            middle = (low + high) // 2
            if data[base + offsets[middle] : base + offsets[middle + 1]] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def key(self, row: int) -> bytes:
        """The key of ``row``."""
        offsets, base = self._key_offsets, self._key_at
        return self.data[base + offsets[row] : base + offsets[row + 1]]

    def seq(self, row: int) -> int:
        """The sequence number of ``row``."""
        return self._base_seq + row * self._seq_step if self._seqs is None else self._seqs[row]

    def hit(self, row: int) -> RowHit:
        """What a point read returns for ``row``."""
        offsets, base = self._value_offsets, self._value_at
        return RowHit(
            self.data[base + offsets[row] : base + offsets[row + 1]],
            self._base_seq + row * self._seq_step if self._seqs is None else self._seqs[row],
            self._kind if self._kinds is None else self._kinds[row],
            NO_EXPIRY if self._expire is None else self._expire[row],
            self._base_create if self._create is None else self._create[row],
        )

    # several rows, from ``low`` up to ``stop`` (exclusive), of which there may be fewer

    def keys(self, low: int, stop: int) -> list[bytes]:
        """Their keys."""
        if self._key_width < 0:
            self._key_width = _width_of(self._key_offsets, self.rows)
        return _cut(self.data, self._key_at, self._key_offsets, self._key_width, low, min(stop, self.rows))

    def values(self, low: int, stop: int) -> list[bytes]:
        """Their values."""
        if self._value_width < 0:
            self._value_width = _width_of(self._value_offsets, self.rows)
        return _cut(self.data, self._value_at, self._value_offsets, self._value_width, low, min(stop, self.rows))

    def seqs(self, low: int, stop: int) -> list[int]:
        """Their sequence numbers."""
        stop = min(stop, self.rows)
        if self._seqs is not None:
            return self._seqs[low:stop].tolist()
        if not self._seq_step:
            return [self._base_seq] * (stop - low)
        return list(range(self._base_seq + low, self._base_seq + stop))

    def hits(self, low: int, stop: int) -> list[RowHit]:
        """All of each."""
        values = self.values(low, stop)
        count = len(values)
        parts = (
            values,
            self.seqs(low, stop),
            repeat(self._kind, count) if self._kinds is None else self._kinds[low:stop].tolist(),
            repeat(NO_EXPIRY, count) if self._expire is None else self._expire[low:stop].tolist(),
            repeat(self._base_create, count) if self._create is None else self._create[low:stop].tolist(),
        )
        return [tuple.__new__(RowHit, fields) for fields in zip(*parts, strict=True)]

    # all rows

    @property
    def plain(self) -> bool:
        """Whether each is a put that never expires, as far as its columns say without a look at each row."""
        return not self._kind and self._kinds is None and self._expire is None

    @property
    def newest(self) -> int:
        """The highest sequence number."""
        return self.seq(self.rows - 1) if self._seqs is None else int(np.frombuffer(self._seqs, np.uint64).max())

    def columns(self, seen_from: int | None = None) -> Columns:
        """The rows as views of ``data``. ``seen_from``: see `Columns`."""
        data, rows = self.data, self.rows
        buffer, width = pa.py_buffer(data), 4 * (rows + 1)
        keys, values = self._key_offsets, self._value_offsets
        value_offsets_at = RAW_HEADER_BYTES + width + (-width % 8)
        parts = (
            (RAW_HEADER_BYTES, self._key_at, keys[rows]),
            (value_offsets_at, self._value_at, values[rows]),
        )
        key_column, value_column = (
            pa.Array.from_buffers(
                _BINARY, rows, [None, buffer.slice(offsets_at, width), buffer.slice(bytes_at, length)], 0
            )
            for offsets_at, bytes_at, length in parts
        )
        return Columns(
            key_column,
            value_column,
            self._seq_column(),
            _filled(rows, self._kind, np.uint8) if self._kinds is None else np.frombuffer(self._kinds, np.uint8),
            None if self._expire is None else np.frombuffer(self._expire, np.int64),
            _filled(rows, self._base_create, np.int64)
            if self._create is None
            else np.frombuffer(self._create, np.int64),
            seen_from,
        )

    def _seq_column(self) -> npt.NDArray[np.uint64]:
        if self._seqs is not None:
            return np.frombuffer(self._seqs, np.uint64)
        if not self._seq_step:
            return _filled(self.rows, self._base_seq, np.uint64)
        dense = np.arange(self._base_seq, self._base_seq + self.rows, dtype=np.uint64)
        dense.flags.writeable = False
        return dense


def _filled(rows: int, value: int, kind: type[_Number]) -> npt.NDArray[_Number]:
    array = np.full(rows, value, kind)
    array.flags.writeable = False
    return array


def _cut(data: bytes, base: int, offsets: memoryview[int], width: int, low: int, stop: int) -> list[bytes]:
    """Items ``low`` to ``stop`` (exclusive), each between two neighbours of ``offsets``, which count from ``base``.
    ``width``: of each, if they are known to be of one length, else 0.

    In a loop of the interpreter's own, which takes a third of the time: those of one length with one call, others from
    a copy, as long as that is small."""
    if low >= stop:
        return []
    if width:
        if stop - low <= FEW_ROWS:
            return list(_pieces(width, stop - low).unpack_from(data, base + low * width))
        return [
            item
            for (item,) in _pieces(width, 1).iter_unpack(memoryview(data)[base + low * width : base + stop * width])
        ]
    cuts = offsets[low : stop + 1].tolist()
    first, end = cuts[0], cuts[-1]
    if end - first > MOST_COPIED_BYTES:
        return [data[base + start : base + end] for start, end in pairwise(cuts)]
    near = data[base + first : base + end]
    if first:
        cuts = [cut - first for cut in cuts]
    return list(map(near.__getitem__, map(slice, cuts, cuts[1:])))


@lru_cache(512)
def _pieces(width: int, count: int) -> struct.Struct:
    return struct.Struct(f"{width}s" * count)


@lru_cache(512)
def _even(width: int, count: int) -> bytes:
    """The offsets of so many items of one length."""
    return np.asarray(range(0, width * (count + 1), width), np.uint32).tobytes()


def _width_of(offsets: memoryview[int], rows: int) -> int:
    """The length of all items between ``offsets``, which were checked, if they are of one length, else 0."""
    total = offsets[rows]
    width = total // rows
    if not width or width * rows != total:
        return 0
    return width if bytes(offsets) == np.arange(0, total + 1, width, dtype=np.uint32).tobytes() else 0


def _check_offsets(offsets: memoryview[int], rows: int, total: int, keys: bool = False) -> int:
    """Raise unless they rise from 0 to ``total``, those of ``keys`` as much each time as keys are long.

    Returns by how much each time, if that is the same, else 0; of many `NOT_MEASURED`."""
    if rows <= FEW_ROWS:
        width = total // rows
        if 0 < width <= MAX_KEY_BYTES and offsets.tobytes() == _even(width, rows) and width * rows == total:
            return width
        cuts: list[int] = offsets.tolist()
        rising = cuts == sorted(cuts)
    else:
        array = np.frombuffer(offsets, np.uint32)
        rising = not bool((array[1:] < array[:-1]).any())
    if offsets[0] or offsets[rows] != total or not rising:
        raise BadBlockError("block offsets are out of order or out of bounds")
    of_no_width = 0 if rows <= FEW_ROWS else NOT_MEASURED
    if not keys:
        return of_no_width
    if rows <= FEW_ROWS:
        lengths = list(map(sub, cuts[1:], cuts))
        sound = all(lengths) and max(lengths) <= MAX_KEY_BYTES
    else:
        steps = np.diff(array)
        sound = int(steps.min()) >= 1 and int(steps.max()) <= MAX_KEY_BYTES
    if not sound:
        raise BadBlockError("a key has a length no key has")
    return of_no_width
