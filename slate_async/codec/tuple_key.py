"""Keys of several parts, as bytes that sort as the parts do: the tuple layer of FoundationDB, and three tags more.

Parts follow one another, each a tag and what belongs to it. docs/format/packed-key.md lists the bytes.
`slate_async.codec.tuple_columns` does the same with columns. See docs/guide/key-design.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, Union
from uuid import UUID

from slate_async.errors import InvalidError

KeyPart: TypeAlias = Union[bytes, str, int, float, bool, Decimal, datetime, date, UUID, "tuple[KeyPart, ...]", None]
"""One part of a key, for `pack` and from `unpack`. A tuple is a part that has parts."""
NULL, BYTES, TEXT, NESTED, ZERO, FLOAT, FALSE, TRUE, IDENTIFIER = 0x00, 0x01, 0x02, 0x05, 0x14, 0x21, 0x26, 0x27, 0x30
LARGE_NEGATIVE, LARGE = 0x0B, 0x1D
DATE, TIME, DECIMAL = 0x40, 0x41, 0x42
"""Tags that FoundationDB leaves to its users."""
INT_BYTES = 8
"""Integers of so many bytes or fewer have a tag that says their size; Spark knows no larger ones."""
MOST_INT_BYTES = 255
MOST_DEPTH = 16
"""So many tuples may lie in one another."""
SMALL_TAGS = [bytes([ZERO + size]) for size in range(INT_BYTES + 1)]
SIGN = 1 << 63
EXPONENTS = 1 << 31
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLIEST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
INVERTED = bytes(range(255, -1, -1))
END = b"\xff"
"""Above whatever may follow a part: no part begins with it."""


def pack(*parts: KeyPart) -> bytes:
    """A key of ``parts``: text, bytes, integers, floats, `Decimal`, booleans, dates, datetimes with a time zone, UUIDs,
    tuples of these, and ``None``.

    Keys of the same kinds of parts sort as the tuples of their parts do; ``None`` comes first, NaN last. Equal parts
    of one kind make equal keys: so do 0.0 and -0.0, ``Decimal("1")`` and ``Decimal("1.0")``. Raises `InvalidError` for
    anything else, for integers of more than 255 bytes, for times out of the years 1 to 9999 in UTC, and for tuples more
    than 16 deep."""
    try:
        return b"".join([ENCODERS[type(part)](part) for part in parts])
    except KeyError:
        return b"".join([_encoded(part, 0) for part in parts])


def unpack(key: bytes) -> tuple[KeyPart, ...]:
    """The parts that `pack` was given; times in UTC, a `Decimal` without zeros at its end. Raises `InvalidError` for
    other bytes."""
    if not isinstance(key, bytes | bytearray | memoryview):
        raise InvalidError(f"a packed key is bytes, not {type(key).__name__}")
    own, parts, at = bytes(key), list[KeyPart](), 0
    while at < len(own):
        part, at = _decoded(own, at, 0)
        parts.append(part)
    return tuple(parts)


def prefix_range(*parts: KeyPart) -> tuple[bytes, bytes]:
    """Start and end, for `Readable.scan`, of the keys whose first parts are ``parts``. Raises as `pack`."""
    start = pack(*parts)
    return start, start + END


# ---- to bytes


def _encoded(part: KeyPart, depth: int) -> bytes:
    """Of a part of any class."""
    if isinstance(part, tuple):
        return _encoded_tuple(part, depth)
    for kind, encoder in ENCODERS.items():  # subclasses before their bases
        if isinstance(part, kind):
            return encoder(part)
    raise InvalidError(
        "a part of a key is text, bytes, an integer, a float, a Decimal, a boolean, a date, a datetime, a UUID, a tuple"
        f" or None, not {type(part).__name__}"
    )


def _encoded_tuple(parts: Iterable[KeyPart], depth: int = 0) -> bytes:
    if depth == MOST_DEPTH:
        raise InvalidError(f"tuples in a key are at most {MOST_DEPTH} deep")
    inner = (b"\0\xff" if part is None else _encoded(part, depth + 1) for part in parts)
    return bytes([NESTED]) + b"".join(inner) + b"\0"


def _encoded_bytes(part: bytes) -> bytes:
    return b"\x01" + part.replace(b"\0", b"\0\xff") + b"\0"


def _encoded_text(part: str) -> bytes:
    try:
        encoded = part.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"a part of a key is no Unicode text: {error}") from None
    return b"\x02" + encoded.replace(b"\0", b"\0\xff") + b"\0"


def _encoded_int(number: int) -> bytes:
    size = (number.bit_length() + 7) // 8
    if number >= 0 and size <= INT_BYTES:
        return SMALL_TAGS[size] + number.to_bytes(size, "big")
    if size > MOST_INT_BYTES:
        raise InvalidError(f"an integer in a key has at most {MOST_INT_BYTES} bytes, not {size}")
    if number < 0:
        tag = bytes([ZERO - size]) if size <= INT_BYTES else bytes([LARGE_NEGATIVE, size ^ 0xFF])
        return tag + (number + (1 << 8 * size) - 1).to_bytes(size, "big")
    return bytes([LARGE, size]) + number.to_bytes(size, "big")


def _encoded_float(number: float) -> bytes:
    found = math.nan if math.isnan(number) else number + 0.0  # -0.0 is 0.0
    bits = int.from_bytes(struct.pack(">d", found), "big")
    if math.isnan(number):
        bits &= SIGN - 1
    return bytes([FLOAT]) + (bits ^ (2 * SIGN - 1) if bits & SIGN else bits | SIGN).to_bytes(8, "big")


def _encoded_time(part: datetime) -> bytes:
    if part.utcoffset() is None:
        raise InvalidError(f"a datetime in a key has a time zone; {part!r} has none")
    number = (part - EPOCH) // MICROSECOND
    if not EARLIEST <= number <= LATEST:
        raise InvalidError(f"a datetime in a key is of the years 1 to 9999 in UTC, not {part!r}")
    return bytes([TIME]) + (number + SIGN).to_bytes(8, "big")


def _encoded_decimal(part: Decimal) -> bytes:
    if not part.is_finite():
        raise InvalidError(f"a Decimal in a key is a number, not {part}")
    if not part:
        return bytes([DECIMAL, 1])
    sign, digits, exponent = part.as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent  # the number is 0.DIGITS * 10 ** point
    if not -EXPONENTS <= point < EXPONENTS:
        raise InvalidError(f"a Decimal in a key has an exponent of 32 bits; {part} has more")
    body = (point + EXPONENTS).to_bytes(4, "big") + "".join(map(str, digits)).rstrip("0").encode() + b"\0"
    return bytes([DECIMAL, 0]) + body.translate(INVERTED) if sign else bytes([DECIMAL, 2]) + body


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: _encoded_text,
    bool: lambda part: b"\x27" if part else b"\x26",
    int: _encoded_int,
    bytes: _encoded_bytes,
    type(None): lambda part: b"\0",
    float: _encoded_float,
    datetime: _encoded_time,
    date: lambda part: bytes([DATE]) + part.toordinal().to_bytes(4, "big"),
    UUID: lambda part: bytes([IDENTIFIER]) + part.bytes,
    Decimal: _encoded_decimal,
    tuple: _encoded_tuple,
}


# ---- and back


def _decoded(key: bytes, at: int, depth: int) -> tuple[KeyPart, int]:
    tag, start = key[at], at + 1
    if tag in (TEXT, BYTES):
        return _decoded_text(key, start, tag)
    if ZERO - INT_BYTES <= tag <= ZERO + INT_BYTES:
        return _decoded_int(key, at, start, abs(tag - ZERO), tag >= ZERO)
    if tag == NULL:
        return None, start
    if tag in (FALSE, TRUE):
        return tag == TRUE, start
    if tag == NESTED:
        return _decoded_tuple(key, start, depth)
    if tag == DECIMAL:
        return _decoded_decimal(key, start)
    if tag in (LARGE, LARGE_NEGATIVE) and start < len(key):
        size = key[start] if tag == LARGE else key[start] ^ 0xFF
        return _decoded_int(key, at, start + 1, size, tag == LARGE)
    if tag in FIXED:
        size, decode = FIXED[tag]
        found = key[start : start + size]
        if len(found) == size:
            try:
                return decode(found), start + size
            except (ValueError, OverflowError):
                pass
    raise _no_key(key, at)


def _decoded_int(key: bytes, at: int, start: int, size: int, positive: bool) -> tuple[int, int]:
    found = key[start : start + size]
    if len(found) == size:
        number = int.from_bytes(found, "big")
        whole = number if positive else number - (1 << 8 * size) + 1
        if _encoded_int(whole) == key[at : start + size]:
            return whole, start + size
    raise _no_key(key, at)


def _decoded_text(key: bytes, start: int, tag: int) -> tuple[str | bytes, int]:
    end = key.find(b"\0", start)
    while end >= 0 and key[end + 1 : end + 2] == END:
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


def _decoded_tuple(key: bytes, start: int, depth: int) -> tuple[tuple[KeyPart, ...], int]:
    parts, at = list[KeyPart](), start
    while depth < MOST_DEPTH and at < len(key):
        if key[at] != NULL:
            part, at = _decoded(key, at, depth + 1)
            parts.append(part)
        elif key[at + 1 : at + 2] == END:
            parts.append(None)
            at += 2
        else:
            return tuple(parts), at + 1
    raise _no_key(key, start - 1)


def _decoded_decimal(key: bytes, start: int) -> tuple[Decimal, int]:
    sign = key[start] if start < len(key) else 3
    if sign == 1:
        return Decimal(0), start + 1
    end = key.find(b"\0" if sign else END, start + 5)
    if sign in (0, 2) and end > 0:
        body = key[start + 1 : end] if sign else key[start + 1 : end].translate(INVERTED)
        digits = body[4:]
        if digits.isdigit() and digits[0] != 0x30 and digits[-1] != 0x30:
            point = int.from_bytes(body[:4], "big") - EXPONENTS
            whole = tuple(digit - 0x30 for digit in digits)
            return Decimal((int(not sign), whole, point - len(whole))), end + 1
    raise _no_key(key, start - 1)


def _decoded_float(found: bytes) -> float:
    number = int.from_bytes(found, "big")
    bits = number ^ SIGN if number & SIGN else number ^ (2 * SIGN - 1)
    made: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    if _encoded_float(made)[1:] != found:
        raise ValueError("one number has one key")
    return made


FIXED: dict[int, tuple[int, Callable[[bytes], KeyPart]]] = {
    FLOAT: (8, _decoded_float),
    IDENTIFIER: (16, lambda found: UUID(bytes=found)),
    DATE: (4, lambda found: date.fromordinal(int.from_bytes(found, "big"))),
    TIME: (8, lambda found: EPOCH + (int.from_bytes(found, "big") - SIGN) * MICROSECOND),
}


def _no_key(key: bytes, at: int) -> InvalidError:
    return InvalidError(f"{key[:64]!r} is no key of parts: byte {at} begins none")
