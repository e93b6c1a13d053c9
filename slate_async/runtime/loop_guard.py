"""`LoopGuard`: whether a call comes from the event loop that owns what is called, while that is open; cheaply."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import TypeVar
from weakref import WeakSet

from slate_async.errors import ClosedError, Outcome

T = TypeVar("T")


class LoopGuard:
    """Made in the loop that it guards for; open until `shut`, or until the process is a fork of that one.

    Asking for the running loop asks the kernel for the process, so the guard asks for thread and state of the loop. Hot
    paths read ``thread`` and ``running`` themselves, as `check` does.

    refuse: called, with the outcome that the error is to give, when a call may not be served or somebody asks from
    elsewhere; it raises, or returns if the call may be served all the same
    """

    __slots__ = ("__weakref__", "_refuse", "running", "thread")

    def __init__(self, refuse: Callable[[Outcome | None], None]) -> None:
        self._refuse = refuse
        self.thread: int | None = get_ident()
        """The loop's thread while open, else ``None``."""
        self.running = asyncio.get_running_loop().is_running
        _guards.add(self)

    @property
    def open(self) -> bool:
        """Whether it is not shut."""
        return self.thread is not None

    def check(self, outcome: Outcome | None = None) -> None:
        """Raise what ``refuse`` raises unless the call is served. A write gives the ``outcome`` of that error."""
        if get_ident() != self.thread or not self.running():
            self._refuse(outcome)

    def passes(self) -> bool:
        """Whether `check` returns without asking ``refuse``."""
        return get_ident() == self.thread and self.running()

    async def while_open(self, work: Awaitable[T]) -> T:
        """The result of ``work``; if what is guarded closes meanwhile, why it did."""
        try:
            return await work
        except ClosedError:
            self.check()
            raise

    def shut(self) -> None:
        """Serve no call any more."""
        self.thread = None


_guards: WeakSet[LoopGuard] = WeakSet()


def _forked() -> None:
    """The process is a new one: loops and stores belong to the one it came from."""
    for guard in _guards:
        guard.shut()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_forked)
