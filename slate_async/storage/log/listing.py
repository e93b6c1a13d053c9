"""Which log objects there are: looks at names alone, shared by takeovers and readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.log.names import PREFIX, contiguous_key, parse_contiguous


class LogMovedError(Exception):
    """The object at ``missing`` is not there although later ones prove that it was. Either ``log_start`` has moved on
    and the walk starts anew from the new head, or the object was lost. ``known_end``: up to there all were there."""

    def __init__(self, message: str, missing: int, known_end: int) -> None:
        super().__init__(message)
        self.missing = missing
        self.known_end = known_end


async def contiguous_ids(store: ObjectStore, first: int, width: int) -> AsyncGenerator[tuple[int, str, int]]:
    """``(id, key, size)`` of the object at ``first`` and of those that follow it without a gap, as they are listed.

    Raises `LogMovedError` for an object that was there once: no writer is ever ``width`` ids or more past its lowest
    missing one, and no fence leaves a gap."""
    next_id = first
    async for info in store.list(PREFIX, start_after=contiguous_key(first - 1)):
        log_id = parse_contiguous(info.key)
        if log_id == next_id:
            yield log_id, info.key, info.size
            next_id += 1
        elif log_id >= next_id + width:
            raise LogMovedError(f"is missing, though {info.key} is there", next_id, log_id - width)


async def contiguous_run(store: ObjectStore, first: int, width: int) -> list[tuple[int, str]]:
    """``(id, key)`` of all of them. Raises as `contiguous_ids`."""
    return [(log_id, key) async for log_id, key, _ in contiguous_ids(store, first, width)]


async def has_log(store: ObjectStore, log_start: int) -> bool:
    """Whether a log was ever written. No writer puts an object of an epoch-prefixed log before it holds the register,
    so a register read after this and not there was lost."""
    if log_start > 1:
        return True
    async for _ in store.list(PREFIX):
        return True
    return False
