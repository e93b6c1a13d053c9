"""`LoopHandle`: what one event loop opened and ends once, whatever it is for.

States: open -> ending (from the first step on every call fails) -> ended. All methods belong to the event loop that
opened it; a call from another loop, from another thread or from a fork is `InvalidError`.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from slate_async.errors import ClosedError, InvalidError, Outcome, SlateError
from slate_async.runtime.concurrent import run_all
from slate_async.runtime.loop_guard import LoopGuard

logger = logging.getLogger(__name__)


class LoopHandle:
    """See the module docstring. ``async with`` ends it.

    A subclass says what ending takes (`_finish`), and offers `_end` under the name that fits.

    name: whose it is, such as "the writer of orders"
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._guard = LoopGuard(self._refuse)
        self._ending: asyncio.Task[None] | None = None
        self._releases: list[Callable[[], Awaitable[None]]] = []

    def _on_closed(self, release: Callable[[], Awaitable[None]]) -> None:
        """Also call ``release`` when it has ended, after what was to be released before."""
        self._releases.append(release)

    async def _finish(self) -> None:
        """What ending takes; runs once, in a task of its own."""
        raise NotImplementedError

    async def _end(self) -> None:
        """End it. Idempotent, and raises what `_finish` raised each time. May be cancelled: the ending goes on, and
        another call waits for it."""
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidError(f"close {self._name} on the event loop that opened it")
        if self._ending is None:
            self._guard.shut()
            self._ending = self._loop.create_task(self._finish_and_release(), name=f"{self._name}/end")
        await asyncio.wait([self._ending])
        if not self._ending.cancelled():
            self._ending.result()

    async def _finish_and_release(self) -> None:
        await run_all([*reversed(self._releases), self._finish])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await close_at_exit(self._name, self._end, error)

    def __del__(self) -> None:
        if getattr(self, "_ending", self) is None:
            warnings.warn(f"{self._name} was never closed", ResourceWarning, 2, self)

    def _refuse(self, outcome: Outcome | None) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop:
            said = f"{self._name} was opened on another event loop; open one for each loop and process"
            raise InvalidError(said, outcome=outcome)
        raise ClosedError(f"{self._name} is closed; open it again", outcome=outcome)


def called(function: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """``function``, to be awaited."""

    async def call() -> None:
        function()

    return call


async def close_at_exit(name: str, close: Callable[[], Awaitable[None]], error: BaseException | None) -> None:
    """``close`` at the end of an ``async with``: what it raises is only logged while ``error`` is on its way."""
    try:
        await close()
    except Exception as failure:
        if error is None:
            raise
        bug = not isinstance(
            failure, SlateError
        )  # of another failure the traceback says nothing that its text does not
        logger.error("%s: closing failed, too, after another error, which is raised: %s", name, failure, exc_info=bug)
