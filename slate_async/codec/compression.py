"""Compression of block bytes: none, zstd, lz4. Safe to call from any thread.

The raw length is stored beside the compressed bytes and checked before anything is allocated, so damaged or
hostile bytes cannot make a reader allocate more than a block may hold.
"""

from __future__ import annotations

import threading
from enum import IntEnum

import zstandard

from slate_async.errors import InvalidError
from slate_async.types import Buffer

try:
    import lz4.block as _lz4
except ImportError:  # the extra is not installed; `_need_lz4` says so when it is asked for
    _lz4 = None

ZSTD_LEVEL = 1
VAIN_BLOCKS = 4
TRIES_APART = 8
_LZ4_MAX_INPUT = 0x7E00_0000


class Compression(IntEnum):
    """Codec of a stored block. The value is the codec id in the bytes."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2

    @classmethod
    def of(cls, name: str | Compression) -> Compression:
        """The codec called ``"none"``, ``"zstd"`` or ``"lz4"``; raises `InvalidError` for another name, or when
        the codec's package is missing."""
        if isinstance(name, Compression):
            chosen = name
        else:
            try:
                chosen = cls[name.upper()]
            except KeyError as error:
                raise InvalidError(f"unknown compression {name!r}; use none, zstd or lz4") from error
        if chosen is cls.LZ4:
            _need_lz4()
        return chosen


class DecompressionError(Exception):
    """The bytes are not what `compress` made, or not of the length claimed."""


class _PerThread(threading.local):
    """zstd contexts are costly to make and must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _PerThread()


def _need_lz4() -> None:
    if _lz4 is None:
        raise InvalidError('lz4 compression needs the lz4 package: pip install "slate-async[lz4]"')


def compress(raw: bytes, codec: Compression) -> bytes | None:
    """``raw`` compressed, or ``None`` when storing it as it is costs less than reading it back compressed:
    it does not shrink by a sixteenth, or the codec cannot take so many bytes."""
    if codec is Compression.ZSTD:
        packed: bytes = _contexts.compressor.compress(raw)
    elif codec is Compression.LZ4 and len(raw) <= _LZ4_MAX_INPUT:
        _need_lz4()
        packed = _lz4.compress(raw, store_size=False)
    else:
        return None
    return packed if len(packed) <= len(raw) - (len(raw) >> 4) else None


class Packer:
    """Compresses the blocks of one object in their order.

    After `VAIN_BLOCKS` that did not shrink only one in `TRIES_APART` is tried, until one does: to compress random bytes
    in vain is a quarter of a compaction's work. What is tried depends on the blocks before it alone."""

    __slots__ = ("_codec", "_untried", "_vain")

    def __init__(self, codec: str | Compression) -> None:
        self._codec = Compression.of(codec)
        self._vain = 0
        self._untried = 0

    def pack(self, parts: list[Buffer]) -> tuple[Compression, list[Buffer]]:
        """The next block, of which these are the ``parts``, as it is to be stored, and with which codec.

        Raises as `compress`."""
        if self._untried:
            self._untried -= 1
            return Compression.NONE, parts
        packed = None if self._codec is Compression.NONE else compress(b"".join(parts), self._codec)
        if packed is not None:
            self._vain = 0
            return self._codec, [packed]
        self._vain += 1
        if self._vain >= VAIN_BLOCKS:
            self._untried = TRIES_APART - 1
        return Compression.NONE, parts


def decompress(packed: Buffer, codec: Compression, raw_bytes: int) -> bytes:
    """The ``raw_bytes`` bytes ``packed`` was made of.

    Raises `DecompressionError` for bytes no compressor made, `InvalidError` when lz4 is not installed."""
    if codec is Compression.LZ4:
        _need_lz4()
        try:
            raw: bytes = _lz4.decompress(packed, uncompressed_size=raw_bytes)
        except _lz4.LZ4BlockError as error:
            raise DecompressionError(str(error)) from error
    else:
        try:
            if zstandard.frame_content_size(packed) != raw_bytes:
                raise DecompressionError("the compressed frame claims another length")
            raw = _contexts.decompressor.decompress(packed, max_output_size=raw_bytes)
        except zstandard.ZstdError as error:
            raise DecompressionError(str(error)) from error
    if len(raw) != raw_bytes:
        raise DecompressionError(f"{len(raw)} bytes came out, {raw_bytes} were expected")
    return raw
