"""Cursors: where the next page of a map begins, as text that callers hand back.

A cursor is base64 without padding, for URLs, of one byte of version, the CRC32C (four bytes, big-endian) of what it
belongs to and of the key, and the packed key behind which the next page begins.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error

from crc32c import crc32c

from slate_async.errors import InvalidError

VERSION = b"\x01"
MAX_TEXT = 100_000


def cursor_of(scope: bytes, key: bytes) -> str:
    """The cursor behind ``key``. scope: map, range and direction, without which it means nothing."""
    return urlsafe_b64encode(VERSION + _checksum(scope, key) + key).rstrip(b"=").decode()


def key_of(scope: bytes, cursor: str, start: bytes, end: bytes) -> bytes:
    """The key of a cursor of ``scope``, from ``start`` (inclusive) to ``end`` (exclusive). Raises
    `InvalidError` for any other text."""
    if not isinstance(cursor, str):
        raise InvalidError(f"after is a cursor that a page gave, not {type(cursor).__name__}")
    try:
        data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)) if len(cursor) < MAX_TEXT else b""
    except (Error, UnicodeEncodeError):
        data = b""
    key = data[5:]
    sound = data[:1] == VERSION and data[1:5] == _checksum(scope, key) and cursor_of(scope, key) == cursor
    if not sound or not start <= key < end:
        raise InvalidError("after is no cursor that a page of this map, with this prefix and direction, gave")
    return key


def _checksum(scope: bytes, key: bytes) -> bytes:
    return crc32c(len(scope).to_bytes(4, "big") + scope + key).to_bytes(4, "big")
