"""`FlightData` as bytes: the one message that carries rows, read and written without a copy that is not needed.

protobuf would copy a body twice. Layout, by field: 1 descriptor, 2 header, 3 app metadata, 1000 body, each a length and
bytes; unknown fields are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from slate_async.errors import InvalidError

DESCRIPTOR: Final = 1
HEADER: Final = 2
METADATA: Final = 3
BODY: Final = 1000
VARINT_BYTES: Final = 10
_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class FlightData:
    """One message; its parts are views of the bytes that came. ``descriptor``: ``None`` if it has none."""

    descriptor: memoryview | None
    header: memoryview
    metadata: memoryview
    body: memoryview


def encode_data(
    header: Any, body: Sequence[Any] = (), *, descriptor: bytes | None = None, metadata: bytes = b""
) -> bytes:
    """A message. ``header`` and each part of ``body``: bytes, or what has their buffer."""
    parts: list[Any] = []
    if descriptor is not None:
        parts += [_key(DESCRIPTOR), _varint(len(descriptor)), descriptor]
    size = len(memoryview(header))
    if size:
        parts += [_key(HEADER), _varint(size), header]
    if metadata:
        parts += [_key(METADATA), _varint(len(metadata)), metadata]
    total = sum(len(memoryview(part)) for part in body)
    if total:
        parts += [_key(BODY), _varint(total), *body]
    return b"".join(parts)


def decode_data(raw: bytes) -> FlightData:
    """Raises `InvalidError` for what is no message."""
    view = memoryview(raw)
    found = {DESCRIPTOR: None, HEADER: _EMPTY, METADATA: _EMPTY, BODY: _EMPTY}
    at, end = 0, len(view)
    while at < end:
        key, at = _number(view, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(view, at)
            continue
        if kind == 2:
            size, at = _number(view, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _broken()
        if size > end - at:
            raise _broken()
        if kind == 2 and key >> 3 in found:
            found[key >> 3] = view[at : at + size]
        at += size
    header, metadata, body = found[HEADER], found[METADATA], found[BODY]
    return FlightData(found[DESCRIPTOR], header or _EMPTY, metadata or _EMPTY, body or _EMPTY)


def _number(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(VARINT_BYTES):
        if at >= len(view):
            raise _broken()
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at
    raise _broken()


def _broken() -> InvalidError:
    return InvalidError("a message is no FlightData")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _key(field: int) -> bytes:
    return _varint(field << 3 | 2)
