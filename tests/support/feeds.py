"""What a change feed gives, within a time."""

from __future__ import annotations

import asyncio

import slate_async as slate
from slate_async.engine.changes.change import Change


async def taken(feed: slate.ChangeFeed, count: int) -> list[Change]:
    """The next ``count`` changes."""
    found: list[Change] = []
    async with asyncio.timeout(10):
        async for change in feed:
            found.append(change)
            if len(found) == count:
                break
    return found


async def all_of(feed: slate.ChangeFeed) -> list[Change]:
    """Everything up to the end of a feed that has one."""
    async with asyncio.timeout(10), feed:
        return [change async for change in feed]
