"""`Handle`: what is opened and closed, in the one thread that runs the event loop of all of them."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from slate_async.database import handle as asynchronous
from slate_async.runtime.loop_thread import LoopThread
from slate_async.runtime.opening import Opening

H = TypeVar("H", bound=asynchronous.Handle)
THREAD = "slate-sync"


class _Shared:
    """The loop of this process, made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None

    def get(self) -> LoopThread:
        """The one there is."""
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(THREAD)
            return self._loop

    def forked(self) -> None:
        """The process is a new one, without the thread."""
        self._lock, self._loop = threading.Lock(), None


_shared = _Shared()
if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_shared.forked)


def shared_loop() -> LoopThread:
    """The loop of this process. Raises `InvalidError` in its own thread."""
    loop = _shared.get()
    loop.check()
    return loop


def opened(begin: Callable[[], Opening[H]]) -> tuple[LoopThread, H]:
    """What ``begin``, called in the loop, opens. Closed again if the caller was interrupted meanwhile."""
    loop = shared_loop()

    async def start() -> H:
        return await begin()

    return loop, loop.open(start, lambda handle: handle.close())


class Handle(Generic[H]):
    """Use ``with``, or `close` it. Usable from any thread but the loop's own.

    One that is dropped is closed, as a file is, with a `ResourceWarning`; one that is open when the interpreter ends is
    closed then."""

    def __init__(self, loop: LoopThread, handle: H) -> None:
        self._loop = loop
        self._handle = handle
        loop.at_end(self, handle.close)

    def close(self) -> None:
        """Finish what was begun, stop all tasks, release the stores. Idempotent. Raises what finishing raised, once."""
        try:
            self._loop.run(self._handle.close)
        finally:
            self._loop.forget(self)

    def wait_closed(self) -> None:
        """Wait until it is closed, by whatever; raise the cause if it closed itself."""
        self._loop.run(self._handle.wait_closed)

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
        if "_handle" not in self.__dict__ or self._handle._state != "open" or not self._loop.alive:
            return
        warnings.warn(f"{self!r} was never closed", ResourceWarning, 2, self)
        self._loop.forget(self)
        self._loop.begin(self._handle.close)

    def __repr__(self) -> str:
        return repr(self._handle).replace("<", "<sync ", 1)
