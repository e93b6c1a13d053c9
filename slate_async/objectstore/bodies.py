"""The body of a put: one buffer, or several that are joined only where a store cannot do without.

A large body stays in its parts, for to join it would hold up the event loop for tens of milliseconds. What a caller
could still change is copied before the put waits for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slate_async.errors import InvalidError
from slate_async.types import Buffer

SMALL_BYTES = 256 << 10
"""A body no larger is joined at once: a fraction of a millisecond."""
TURN_BYTES = 1 << 20
"""Copied on the loop between two looks at other tasks."""


def parts_of(data: Buffer | Sequence[Buffer]) -> list[bytes | memoryview]:
    """The body in parts that nobody can change: 1 or more, one if it is small.

    Raises `InvalidError` for what is not bytes."""
    buffers = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    try:
        parts = [part if isinstance(part, bytes) else _unchanging(memoryview(part)) for part in buffers]
    except TypeError as error:
        raise InvalidError(
            "a body must be bytes-like or a sequence of bytes-like parts", outcome="not_applied"
        ) from error
    if len(parts) != 1 and sum(map(len, parts)) <= SMALL_BYTES:
        return [b"".join(parts)]
    return parts


def joined(data: Buffer | Sequence[Buffer]) -> bytes:
    """The body as one immutable byte string, copied unless it is one already. For small bodies. Raises as
    `parts_of`."""
    return b"".join(parts_of(data))


async def joined_in_turns(parts: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """The parts as one buffer, other tasks having a turn now and then while they are copied."""
    if len(parts) == 1:
        return parts[0]
    whole = bytearray(sum(map(len, parts)))
    at = copied = 0
    with memoryview(whole) as view:
        for part in parts:
            for start in range(0, len(part), TURN_BYTES):
                piece = part[start : start + TURN_BYTES]
                view[at : at + len(piece)] = piece
                at += len(piece)
                if at - copied >= TURN_BYTES:
                    copied = at
                    await asyncio.sleep(0)
    return memoryview(whole).toreadonly()


def _unchanging(view: memoryview) -> bytes | memoryview:
    return view.cast("B") if view.readonly and view.c_contiguous else view.tobytes()
