"""A Bloom filter over key hashes: says "certainly absent" or "maybe there".

Layout (``docs/format/filter.md``)::

    filter kind u16 (1) | probes u16 | log2 of the bits u32 | keys u64 | bits
    filter kind u16 (2) | probes u16 | words of 64 bits u32 | keys u64 | bits

Probe ``i`` of hash ``h`` is bit ``(low + i * step) mod bits`` with ``low`` the lower 32 bits of ``h`` and ``step`` the
upper 32 with the lowest bit set (double hashing, Kirsch and Mitzenmacher 2006). The number of bits of kind 1 is a power
of two, so ``mod`` is a mask. That spends up to twice the bits asked for, so large filters are of kind 2: probe ``i`` is
bit ``((low + i * step) mod 2**32) * bits div 2**32`` (Lemire, Fast Random Integer Generation in an Interval, 2019).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format.xxh3 import xxh3_64_each
from slate_async.types import Buffer

KIND_BLOOM = 1
KIND_BLOOM_EXACT = 2
MAX_BITS_PER_KEY = 64
MAX_LOG2_BITS = 32
EXACT_BITS = 1 << 19
"""Filters of kind 1 have no more bits: what the rounding wastes of these, 32 KiB at most, is not worth a slow look."""

_HEAD = struct.Struct("<HHIQ")
_MIN_LOG2_BITS = 6
_WORD_BITS = 64
_MAX_PROBES = 12
_MARK_ROWS = 8192
"""Keys marked together: few enough that what is computed for them stays in the processor's cache."""
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


def key_hash(key: bytes) -> int:
    """The 64-bit hash (XXH3) of a key every filter uses; compute it once per lookup."""
    return int(xxhash.xxh3_64_intdigest(key))


def key_hashes(keys: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """`key_hash` of each of ``keys``."""
    return xxh3_64_each(keys)


def filter_bytes(keys: int, bits_per_key: int) -> int:
    """How long `build_filter` makes the filter of so many ``keys``, 1 or more."""
    return _HEAD.size + _bits(keys, bits_per_key) // 8


def _bits(keys: int, bits_per_key: int) -> int:
    """A power of two, or, beyond `EXACT_BITS`, whole words."""
    wanted = keys * bits_per_key
    rounded: int = 1 << max(_MIN_LOG2_BITS, (wanted - 1).bit_length())
    if rounded <= EXACT_BITS:
        return rounded
    return min(1 << MAX_LOG2_BITS, -(-wanted // _WORD_BITS) * _WORD_BITS)


def build_filter(hashes: npt.NDArray[np.uint64], bits_per_key: int) -> bytes:
    """A filter over ``hashes`` with ``bits_per_key`` bits for each, of a small one rounded up to a power of two;
    empty bytes when ``bits_per_key`` is 0 or there are no hashes. Raises `InvalidError` out of 0 to 64."""
    if not 0 <= bits_per_key <= MAX_BITS_PER_KEY:
        raise InvalidError(f"filter_bits_per_key must be 0 to {MAX_BITS_PER_KEY}, not {bits_per_key}")
    keys = len(hashes)
    if not keys or not bits_per_key:
        return b""
    bits = _bits(keys, bits_per_key)
    probes = max(1, min(_MAX_PROBES, round(math.log(2) * bits_per_key)))
    kind, size = (KIND_BLOOM, bits.bit_length() - 1) if bits <= EXACT_BITS else (KIND_BLOOM_EXACT, bits // _WORD_BITS)
    marks = np.zeros(bits, np.bool_)
    for start in range(0, keys, _MARK_ROWS):
        part = hashes[start : start + _MARK_ROWS]
        at = part & _LOW
        step = (part >> _HALF) | np.uint64(1)
        for _ in range(probes):
            marks[_place(at, kind, bits).view(np.int64)] = True
            at += step
    return _HEAD.pack(kind, probes, size, keys) + np.packbits(marks, bitorder="little").tobytes()


def _place(at: npt.NDArray[np.uint64], kind: int, bits: int) -> npt.NDArray[np.uint64]:
    """Which of ``bits`` bits each of ``at`` means."""
    if kind == KIND_BLOOM:
        return at & np.uint64(bits - 1)
    return (at & _LOW) * np.uint64(bits) >> _HALF


@dataclass(frozen=True, slots=True)
class Filter:
    """A decoded filter. ``bits`` holds bit ``i`` at byte ``i // 8``, lowest bit first. ``mask`` is 0 for kind 2."""

    bits: bytes
    mask: int
    probes: int
    keys: int

    def may_contain(self, hashed: int) -> bool:
        """False if no key with that `key_hash` was put in."""
        bits, mask = self.bits, self.mask
        at, step = hashed & 0xFFFF_FFFF, hashed >> 32 | 1
        if not mask:
            size = 8 * len(bits)
            for _ in range(self.probes):
                bit = (at & 0xFFFF_FFFF) * size >> 32
                if not bits[bit >> 3] >> (bit & 7) & 1:
                    return False
                at += step
            return True
        for _ in range(self.probes):
            bit = at & mask
            if not bits[bit >> 3] >> (bit & 7) & 1:
                return False
            at += step
        return True

    def may_contain_each(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """`may_contain` of each of ``hashes``."""
        bits = np.frombuffer(self.bits, np.uint8)
        kind = KIND_BLOOM if self.mask else KIND_BLOOM_EXACT
        at = hashes & _LOW
        step = (hashes >> _HALF) | np.uint64(1)
        found = np.ones(len(hashes), np.bool_)
        for _ in range(self.probes):
            bit = _place(at, kind, 8 * len(bits))
            found &= (bits[bit >> np.uint64(3)] >> (bit & np.uint64(7)).astype(np.uint8) & 1).astype(np.bool_)
            at = at + step
        return found


def decode_filter(data: Buffer, *, object_name: str, offset: int = 0) -> Filter | None:
    """The filter in ``data`` (checksummed by its container), copied out of it; ``None`` for empty bytes or a kind
    this release does not know, which only costs speed. Raises `CorruptionError`."""
    if not len(data):
        return None
    if len(data) < _HEAD.size:
        raise CorruptionError("the filter is too short", object_name=object_name, offset=offset)
    kind, probes, size, keys = _HEAD.unpack_from(data)
    if kind == KIND_BLOOM:
        fits = _MIN_LOG2_BITS <= size <= MAX_LOG2_BITS and len(data) == _HEAD.size + (1 << size) // 8
    elif kind == KIND_BLOOM_EXACT:
        fits = 0 < size <= (1 << MAX_LOG2_BITS) // _WORD_BITS and len(data) == _HEAD.size + size * (_WORD_BITS // 8)
    else:
        return None
    if not fits or not 1 <= probes <= _MAX_PROBES:
        raise CorruptionError("the filter's length does not match", object_name=object_name, offset=offset)
    return Filter(bytes(memoryview(data)[_HEAD.size :]), (1 << size) - 1 if kind == KIND_BLOOM else 0, probes, keys)
