"""Keys of several parts, as bytes that sort as the parts do: the tuple layer of FoundationDB, byte for byte.

Parts follow one another, each a tag and what belongs to it::

    00                          None
    01 bytes with 00 as 00 FF, then 00        bytes
    02 UTF-8 with 00 as 00 FF, then 00        str
    14                          0
    14 + n  n bytes             a positive int, big-endian, n as few as will do
    14 - n  n bytes             a negative int, as 256**n - 1 + number
    21 eight bytes              float: IEEE 754, big-endian; the sign bit inverted, of negative ones all bits
    26, 27                      False, True

`slate_async.codec.tuple_columns` does the same with columns. See docs/guide/key-design.md.
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

from slate_async.errors import InvalidError

KeyPart: TypeAlias = bytes | str | int | float | bool | None
"""One part of a composite key, for `encode_key` and from `decode_key`."""
NULL, BYTES, TEXT, ZERO, FLOAT, FALSE, TRUE = 0x00, 0x01, 0x02, 0x14, 0x21, 0x26, 0x27
INT_BYTES = 8
"""Integers have 64 bits, with their sign."""
SIGN = 1 << 63
LEAST_INT, MOST_INT = -SIGN, SIGN - 1


def encode_key(*parts: KeyPart) -> bytes:
    """A key of ``parts``: text, bytes, integers of 64 bits, floats, booleans and ``None``.

    Keys of the same kinds of parts sort as the tuples of their parts do; ``None`` comes first, NaN last. Equal parts
    make equal keys. Raises `InvalidError` for anything else."""
    return b"".join(map(_encoded, parts))


def decode_key(key: bytes) -> tuple[KeyPart, ...]:
    """The parts that `encode_key` was given. Raises `InvalidError` for other bytes."""
    parts: list[KeyPart] = []
    at = 0
    while at < len(key):
        part, at = _decoded(bytes(key), at)
        parts.append(part)
    return tuple(parts)


def _encoded(part: KeyPart) -> bytes:
    match part:
        case None:
            return bytes([NULL])
        case bool():
            return bytes([TRUE if part else FALSE])
        case int():
            return _encoded_int(part)
        case float():
            return bytes([FLOAT]) + _float_bytes(part)
        case str():
            return bytes([TEXT]) + _utf8(part).replace(b"\0", b"\0\xff") + b"\0"
        case bytes():
            return bytes([BYTES]) + part.replace(b"\0", b"\0\xff") + b"\0"
    raise InvalidError(
        f"a part of a key is text, bytes, an integer, a float, a boolean or None, not {type(part).__name__}"
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"a part of a key is no Unicode text: {error}") from None


def _encoded_int(number: int) -> bytes:
    if not LEAST_INT <= number <= MOST_INT:
        raise InvalidError(f"an integer in a key has 64 bits, with its sign; {number} has more")
    size = (abs(number).bit_length() + 7) // 8
    if number < 0:
        return bytes([ZERO - size]) + (number + (1 << 8 * size) - 1).to_bytes(size, "big")
    return bytes([ZERO + size]) + number.to_bytes(size, "big")


def _float_bytes(number: float) -> bytes:
    found = math.nan if math.isnan(number) else number + 0.0  # -0.0 is 0.0
    bits = int.from_bytes(struct.pack(">d", found), "big")
    if math.isnan(number):
        bits &= SIGN - 1
    return (bits ^ (2 * SIGN - 1) if bits & SIGN else bits | SIGN).to_bytes(8, "big")


def _decoded(key: bytes, at: int) -> tuple[KeyPart, int]:
    tag, start = key[at], at + 1
    if tag == NULL:
        return None, start
    if tag in (FALSE, TRUE):
        return tag == TRUE, start
    if tag in (BYTES, TEXT):
        return _decoded_text(key, start, tag)
    size = 8 if tag == FLOAT else abs(tag - ZERO)
    found = key[start : start + size]
    if (tag != FLOAT and size > INT_BYTES) or len(found) < size:
        raise _no_key(key, at)
    number = int.from_bytes(found, "big")
    if tag == FLOAT:
        bits = number ^ SIGN if number & SIGN else number ^ (2 * SIGN - 1)
        return struct.unpack(">d", bits.to_bytes(8, "big"))[0], start + size
    whole = number if tag >= ZERO else number - (1 << 8 * size) + 1
    if _encoded_int_or_none(whole) != key[at : start + size]:
        raise _no_key(key, at)
    return whole, start + size


def _encoded_int_or_none(number: int) -> bytes | None:
    return _encoded_int(number) if LEAST_INT <= number <= MOST_INT else None


def _decoded_text(key: bytes, start: int, tag: int) -> tuple[KeyPart, int]:
    end = key.find(b"\0", start)
    while end >= 0 and key[end + 1 : end + 2] == b"\xff":
        end = key.find(b"\0", end + 2)
    if end < 0:
        raise _no_key(key, start - 1)
    found = key[start:end].replace(b"\0\xff", b"\0")
    if tag == BYTES:
        return found, end + 1
    try:
        return found.decode(), end + 1
    except UnicodeDecodeError:
        raise _no_key(key, start - 1) from None


def _no_key(key: bytes, at: int) -> InvalidError:
    return InvalidError(f"{key[:64]!r} is no key of parts: byte {at} begins none")
