"""`LoopHandle`: what a collection or a lake opens, behind its facade."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from slate_async.runtime import loop_handle as asynchronous
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.handle import shared_loop

H = TypeVar("H", bound=asynchronous.LoopHandle)


class LoopHandle(Generic[H]):
    """Use ``with``, or end it. Usable from any thread but the loop's own.

    One that is dropped is ended, with a `ResourceWarning`; one that is open when the interpreter ends is ended then."""

    def __init__(self, loop: LoopThread, handle: H) -> None:
        self._loop = loop
        self._handle = handle
        loop.at_end(self, handle._end)

    def _end(self) -> None:
        try:
            self._loop.run(self._handle._end)
        finally:
            self._loop.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._handle.__aexit__, kind, error, traceback)
        finally:
            self._loop.forget(self)

    def __del__(self) -> None:
        if "_handle" not in self.__dict__ or not self._handle._guard.open or not self._loop.alive:
            return
        warnings.warn(f"{self._handle._name} was never closed", ResourceWarning, 2, self)
        self._loop.forget(self)
        self._loop.begin(self._handle._end)


def opened(begin: Callable[[], Awaitable[H]], loop: LoopThread | None = None) -> tuple[LoopThread, H]:
    """What ``begin``, called in the loop, opens. Ended again if the caller was interrupted meanwhile."""
    chosen = shared_loop() if loop is None else loop

    async def start() -> H:
        return await begin()

    return chosen, chosen.open(start, lambda handle: handle._end())
