"""CRC32C (Castagnoli), the one checksum of every format."""

from __future__ import annotations

from collections.abc import Iterable

import crc32c as _crc32c

from slate_async.objectstore.protocol import Buffer


def crc32c(data: Buffer, previous: int = 0) -> int:
    """The CRC32C of ``data``, continuing from ``previous`` (the value for the bytes before it)."""
    return int(_crc32c.crc32c(data, previous))


def crc32c_of_parts(parts: Iterable[Buffer], previous: int = 0) -> int:
    """The CRC32C of all ``parts`` as if they were joined."""
    for part in parts:
        previous = int(_crc32c.crc32c(part, previous))
    return previous
