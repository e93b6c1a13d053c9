"""Some of the worker threads for work that can wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from slate_async.runtime.protocol import Offload

T = TypeVar("T")


class LimitedOffload:
    """An `Offload` that runs at most ``limit`` functions at a time, first come, first served, on another one.

    Threads share one interpreter, and one that wants it back waits for each of the others. So a loop stays responsive
    beside one thread that computes, and not beside five; nor do reads wait for a worker behind a queue of slices."""

    def __init__(self, inner: Offload, limit: int) -> None:
        self._inner = inner
        self._free = asyncio.Semaphore(limit)

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` once one of them has ended. A cancelled caller's function runs on and counts no more."""
        async with self._free:
            return await self._inner.run(function)
