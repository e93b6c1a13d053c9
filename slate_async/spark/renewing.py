"""What tasks read under is renewed while they read: a checkpoint, or a hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from slate_async.runtime.protocol import Clock


@asynccontextmanager
async def renewed(
    clock: Clock, lifetime_s: float, made_ms: int, renew: Callable[[], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """Call ``renew`` inside the block whenever a quarter of ``lifetime_s`` has passed, since ``made_ms`` at first: the
    wall clock when there was a whole life before it. It raises nothing.

    A renewal that is due happens before the block, so that short tasks renew, too; tasks in the first quarter do
    nothing. A task whose clock is behind waits a quarter at most."""
    quarter_s = lifetime_s / 4
    left_s = min(quarter_s, quarter_s - (clock.now_ms() - made_ms) / 1000)

    async def go_on(first_s: float) -> None:
        await clock.sleep(first_s)
        while True:
            await renew()
            await clock.sleep(quarter_s)

    if left_s <= 0:
        await renew()
        left_s = quarter_s
    keeper = asyncio.create_task(go_on(left_s), name="renewal of what is read")
    try:
        yield
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
