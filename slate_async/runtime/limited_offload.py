"""Some of the worker threads for work that can wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from slate_async.runtime.protocol import Offload

T = TypeVar("T")


class Lanes:
    """An `Offload` that runs at most ``lanes`` functions at a time, first come, first served, on another one.

    Threads share one interpreter, and one that wants it back waits for each of the others. So a loop stays responsive
    beside one thread that computes, and not beside five; nor do reads wait for a worker behind a queue of slices."""

    def __init__(self, inner: Offload, lanes: int) -> None:
        self._inner = inner
        self._free = asyncio.Semaphore(lanes)

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` once there is a lane. A cancelled caller's function runs on in no lane."""
        async with self._free:
            return await self._inner.run(function)
