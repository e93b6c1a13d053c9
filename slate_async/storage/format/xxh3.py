"""XXH3 with 64 bits, seed 0, of many short keys at once: the arithmetic of the reference, a column at a time.

Keys that all have one length, `MIN_VECTOR_BYTES` to `MAX_VECTOR_BYTES`, are read as words where they lie, without an
object for each; others go to the library one by one. Source: ``XXH3_64bits`` of xxHash 0.8 (Yann Collet).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from slate_async.codec.arrays import binary_buffers

MIN_VECTOR_BYTES = 4
MAX_VECTOR_BYTES = 64
"""Longer keys take as long either way."""

_STEP_ROWS = 4096
"""Keys hashed together: few enough that what is computed for them stays in the processor's cache."""
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
)
_PRIME = 0x9E37_79B1_85EB_CA87
_MIX_4_TO_8 = np.uint64(0x9FB2_1C65_1E98_DF25)
_MIX = np.uint64(0x1656_6791_9E37_79F9)
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)

_DIGEST = xxhash.xxh3_64_intdigest

Words = npt.NDArray[np.uint64]


def xxh3_64_each(keys: pa.BinaryArray) -> Words:
    """``xxhash.xxh3_64_intdigest`` of each of ``keys``; of short ones in a fraction of the time."""
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _STEP_ROWS):
        part = keys.slice(start, _STEP_ROWS)
        offsets, data = binary_buffers(part)
        length = int(offsets[1]) - int(offsets[0])
        if MIN_VECTOR_BYTES <= length <= MAX_VECTOR_BYTES and bool((np.diff(offsets) == length).all()):
            found = _of_equal(_Keys(data, int(offsets[0]), len(part), length))
        else:
            found = np.fromiter(map(_DIGEST, part.to_pylist()), np.uint64, len(part))
        hashes[start : start + len(part)] = found
    return hashes


class _Keys(NamedTuple):
    """``rows`` keys of ``length`` bytes each, one after another in ``data`` from ``start`` on."""

    data: memoryview
    start: int
    rows: int
    length: int

    def word(self, at: int, kind: str = "<u8") -> npt.NDArray[Any]:
        """Of each key the word that begins ``at`` bytes behind its start, or before its end if negative."""
        first = self.start + (at if at >= 0 else self.length + at)
        return np.ndarray(self.rows, kind, self.data, first, (self.length,))


def _of_equal(keys: _Keys) -> Words:
    if keys.length <= 8:
        return _of_4_to_8(keys)
    if keys.length <= 16:
        return _of_9_to_16(keys)
    sums = _mixed(keys, 0, 0)
    sums += np.uint64(keys.length * _PRIME % 2**64)
    sums += _mixed(keys, -16, 16)
    if keys.length > 32:
        sums += _mixed(keys, 16, 32)
        sums += _mixed(keys, -32, 48)
    return _avalanche(sums)


def _of_4_to_8(keys: _Keys) -> Words:
    first, last = (keys.word(at, "<u4").astype(np.uint64) for at in (0, -4))
    hashes: Words = last + (first << _HALF)
    hashes ^= _secret(8) ^ _secret(16)
    hashes ^= _rotated(hashes, 49) ^ _rotated(hashes, 24)
    hashes *= _MIX_4_TO_8
    hashes ^= (hashes >> np.uint64(35)) + np.uint64(keys.length)
    hashes *= _MIX_4_TO_8
    hashes ^= hashes >> np.uint64(28)
    return hashes


def _of_9_to_16(keys: _Keys) -> Words:
    low = keys.word(0) ^ (_secret(24) ^ _secret(32))
    high = keys.word(-8) ^ (_secret(40) ^ _secret(48))
    folded = _folded(low, high)
    folded += low.byteswap()
    folded += high
    folded += np.uint64(keys.length)
    return _avalanche(folded)


def _mixed(keys: _Keys, at: int, secret_at: int) -> Words:
    return _folded(keys.word(at) ^ _secret(secret_at), keys.word(at + 8) ^ _secret(secret_at + 8))


def _folded(a: Words, b: Words) -> Words:
    """The upper half of each product of 128 bits, xor the lower: long multiplication by halves."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    cross = a_low * b_low
    cross >>= _HALF
    inner = a_high * b_low
    cross += inner & _LOW
    inner >>= _HALF
    cross += a_low * b_high
    cross >>= _HALF
    cross += inner
    cross += a_high * b_high
    cross ^= a * b
    return cross


def _avalanche(hashes: Words) -> Words:
    hashes ^= hashes >> np.uint64(37)
    hashes *= _MIX
    hashes ^= hashes >> _HALF
    return hashes


def _rotated(words: Words, bits: int) -> Words:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _secret(at: int) -> np.uint64:
    """The word of the default secret ``at`` bytes behind its start."""
    return np.uint64(struct.unpack_from("<Q", _SECRET, at)[0])
