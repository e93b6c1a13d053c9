"""CRC32C (Castagnoli), the one checksum of every format."""

from __future__ import annotations

from collections.abc import Iterable

import crc32c as _crc32c

from slate_async.types import Buffer

LONG_BYTES = 1 << 20
"""Checking more than this takes 50 microseconds, and other threads run meanwhile. For less they stay out: a thread that
lets go of the interpreter waits up to a switch interval (5 ms) for a thread that computes to give it back."""
_HOLD, _RELEASE = 0, 1


def crc32c(data: Buffer, previous: int = 0) -> int:
    """The CRC32C of ``data``, continuing from ``previous`` (the value for the bytes before it)."""
    return int(_crc32c.crc32c(data, previous, _HOLD if len(data) <= LONG_BYTES else _RELEASE))


def crc32c_of_parts(parts: Iterable[Buffer], previous: int = 0) -> int:
    """The CRC32C of all ``parts`` as if they were joined."""
    for part in parts:
        previous = crc32c(part, previous)
    return previous
