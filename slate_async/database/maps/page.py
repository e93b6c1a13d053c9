"""Pages: some rows of a map, and where the next ones begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from slate_async.database.maps.cursor import cursor_of, key_of
from slate_async.database.maps.rows import Pair
from slate_async.errors import InvalidError

K = TypeVar("K")
V = TypeVar("V")
MOST_ROWS = 10_000
"""Of one page."""
PAGE_ROWS = 100


class Page(NamedTuple, Generic[K, V]):
    """Some rows of a map, in the order of their keys, or of an index."""

    items: list[tuple[K, V]]
    next: str | None
    """``after`` of the next page; ``None``: there was no row behind this one."""


async def page_of(
    pairs: Callable[[bytes, bytes, bool, int, bool], Awaitable[list[Pair]]],
    prefix: bytes,
    span: tuple[bytes, bytes],
    after: str | None,
    limit: int,
    reverse: bool,
    durable: bool,
) -> tuple[list[Pair], str | None]:
    """The next rows whose keys, without ``prefix``, lie in ``span``, so cut, and the cursor behind them."""
    if type(limit) is not int or not 0 < limit <= MOST_ROWS:
        raise InvalidError(f"limit is a number of rows from 1 to {MOST_ROWS}, not {limit!r}")
    if type(reverse) is not bool:
        raise InvalidError(f"reverse is True or False, not {reverse!r}")
    start, end = span
    scope = prefix + start + bytes([reverse])
    if after is not None:
        last = key_of(scope, after, start, end)
        start, end = (start, last) if reverse else (last + b"\0", end)
    found = await pairs(prefix + start, prefix + end, reverse, limit + 1, durable)
    cut = len(prefix)
    following = cursor_of(scope, found[limit - 1][0][cut:]) if len(found) > limit else None
    return [(key[cut:], value) for key, value in found[:limit]], following
