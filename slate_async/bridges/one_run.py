"""`OneRun`: the run of a bridge, one at a time and within its ``async with`` block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from slate_async.errors import InvalidError


class OneRun:
    """See the module docstring."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._entered = False

    def enter(self) -> None:
        """The block begins."""
        self._entered = True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within, the calling task runs the bridge. Raises `InvalidError` if another one does, or outside of the
        block."""
        if not self._entered:
            raise InvalidError("a relay runs within its async with block")
        if self._task is not None:
            raise InvalidError("this relay runs already")
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None

    async def leave(self) -> None:
        """The block ends: cancels a run that is under way in another task, and waits for its end."""
        self._entered = False
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])
