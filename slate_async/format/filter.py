"""A Bloom filter over key hashes: says "certainly absent" or "maybe there".

Layout (``docs/format/filter.md``)::

    filter kind u16 (1) | probes u16 | log2 of the bits u32 | keys u64 | bits

Probe ``i`` of hash ``h`` is bit ``(low + i * step) mod bits`` with ``low`` the lower 32 bits of ``h`` and ``step`` the
upper 32 with the lowest bit set (double hashing, Kirsch and Mitzenmacher 2006). The number of bits is a power of
two, so ``mod`` is a mask.
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
from slate_async.format.xxh3 import xxh3_64_each
from slate_async.objectstore.protocol import Buffer

KIND_BLOOM = 1
MAX_BITS_PER_KEY = 64
MAX_LOG2_BITS = 32

_HEAD = struct.Struct("<HHIQ")
_MIN_LOG2_BITS = 6
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
    return _HEAD.size + (1 << _log2_bits(keys, bits_per_key)) // 8


def _log2_bits(keys: int, bits_per_key: int) -> int:
    return min(MAX_LOG2_BITS, max(_MIN_LOG2_BITS, (keys * bits_per_key - 1).bit_length()))


def build_filter(hashes: npt.NDArray[np.uint64], bits_per_key: int) -> bytes:
    """A filter over ``hashes`` with at least ``bits_per_key`` bits for each (rounded up to a power of two in all);
    empty bytes when ``bits_per_key`` is 0 or there are no hashes. Raises `InvalidError` out of 0 to 64."""
    if not 0 <= bits_per_key <= MAX_BITS_PER_KEY:
        raise InvalidError(f"filter_bits_per_key must be 0 to {MAX_BITS_PER_KEY}, not {bits_per_key}")
    keys = len(hashes)
    if not keys or not bits_per_key:
        return b""
    log2_bits = _log2_bits(keys, bits_per_key)
    bits = 1 << log2_bits
    probes = max(1, min(_MAX_PROBES, round(math.log(2) * bits_per_key)))
    mask = np.uint64(bits - 1)
    marks = np.zeros(bits, np.bool_)
    for start in range(0, keys, _MARK_ROWS):
        part = hashes[start : start + _MARK_ROWS]
        at = part & _LOW
        step = (part >> _HALF) | np.uint64(1)
        for _ in range(probes):
            marks[(at & mask).view(np.int64)] = True
            at += step
    return _HEAD.pack(KIND_BLOOM, probes, log2_bits, keys) + np.packbits(marks, bitorder="little").tobytes()


@dataclass(frozen=True, slots=True)
class Filter:
    """A decoded filter. ``bits`` holds bit ``i`` at byte ``i // 8``, lowest bit first."""

    bits: bytes
    mask: int
    probes: int
    keys: int

    def may_contain(self, hashed: int) -> bool:
        """False if no key with that `key_hash` was put in."""
        bits, mask = self.bits, self.mask
        at, step = hashed & 0xFFFF_FFFF, hashed >> 32 | 1
        for _ in range(self.probes):
            bit = at & mask
            if not bits[bit >> 3] >> (bit & 7) & 1:
                return False
            at += step
        return True

    def may_contain_each(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """`may_contain` of each of ``hashes``."""
        bits, mask = np.frombuffer(self.bits, np.uint8), np.uint64(self.mask)
        at = hashes & _LOW
        step = (hashes >> _HALF) | np.uint64(1)
        found = np.ones(len(hashes), np.bool_)
        for _ in range(self.probes):
            bit = at & mask
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
    kind, probes, log2_bits, keys = _HEAD.unpack_from(data)
    if kind != KIND_BLOOM:
        return None
    fits = _MIN_LOG2_BITS <= log2_bits <= MAX_LOG2_BITS and len(data) == _HEAD.size + (1 << log2_bits) // 8
    if not fits or not 1 <= probes <= _MAX_PROBES:
        raise CorruptionError("the filter's length does not match", object_name=object_name, offset=offset)
    return Filter(bytes(memoryview(data)[_HEAD.size :]), (1 << log2_bits) - 1, probes, keys)
