"""Supervised tasks: every background task has a name and an owner, and a failure is never silent.

The owner gives one callback. The first task that ends with an exception reports it there, once; what the owner
does about it (close with that cause) is its decision. A task that somebody else cancelled (a program that cancels all
tasks, a loop that is torn down) has failed, too: a caller that waits for its work would wait for ever. Tasks are
independent of the task that spawned them, so an owner may be opened in one task and closed in another.

Rule 24: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from slate_async.errors import ClosedError

T = TypeVar("T")
logger = logging.getLogger(__name__)
CANCELLED = "its event loop ended, or all tasks of that were cancelled, while it was open; close it before"
"""Why something closed one of whose tasks somebody else cancelled."""


class Supervisor:
    """Owns tasks. ``on_failure(exc)`` is called synchronously with the first failure."""

    def __init__(self, owner: str, on_failure: Callable[[BaseException], None]) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._tasks: dict[int, asyncio.Task[Any]] = {}  # a dict, not a set: order must not depend on addresses
        self._next = 0
        self._failed = False
        self._closing = False
        self._parts: list[Supervisor] = []

    def part(self, on_failure: Callable[[BaseException], None]) -> Supervisor:
        """An owner of some of the tasks, with a callback of its own, that may be closed before the rest is."""
        part = Supervisor(self._owner, on_failure)
        part._closing = self._closing
        self._parts = [part for part in self._parts if not part._closing] + [part]
        return part

    def spawn(self, name: str, work: Coroutine[Any, Any, T], *, critical: bool = True) -> asyncio.Task[T]:
        """Start ``work``. A failing critical task is reported; the failure of another is its awaiter's business."""
        if self._closing:
            work.close()
            raise RuntimeError(f"{self._owner} is closing; cannot start {name}")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}/{name}")
        number = self._next
        self._next += 1
        self._tasks[number] = task
        task.add_done_callback(lambda done: self._done(number, done, critical))
        return task

    async def run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in a task of its own and return what it returns or raise what it raises. A cancelled caller
        abandons the wait, never the work. Raises `ClosedError` if the owner's closing ends it first."""
        if self._closing:
            work.close()
            raise ClosedError(f"{self._owner} is closed; {name} was not begun", outcome="not_applied")
        task = self.spawn(name, work, critical=False)
        await asyncio.wait([task])
        if task.cancelled():
            raise ClosedError(f"{self._owner} closed before {name} ended", outcome="unknown")
        return task.result()

    def _done(self, number: int, task: asyncio.Task[Any], critical: bool) -> None:
        self._tasks.pop(number, None)
        if task.cancelled() and (self._closing or not critical):
            return
        failure = ClosedError(CANCELLED) if task.cancelled() else task.exception()
        if failure is None or not critical:
            return
        if self._failed:
            logger.debug("%s: %s failed after the first failure: %r", self._owner, task.get_name(), failure)
            return
        self._failed = True
        self._on_failure(failure)

    @property
    def is_closing(self) -> bool:
        """Whether it starts nothing more."""
        return self._closing

    @property
    def names(self) -> list[str]:
        """Names of the running tasks, oldest first, those of parts last."""
        own = [task.get_name() for task in self._tasks.values()]
        return own + [name for part in self._parts for name in part.names]

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. Idempotent. Must not be called from a task it owns."""
        tasks = self._cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        """Start nothing more, and cancel what runs, in parts too."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks + [task for part in self._parts for task in part._cancel()]
