"""SIGTERM ends a command as Ctrl-C does: it is cancelled at its next wait, closes what it opened, and says how far it
got. Ctrl-C itself is `asyncio.run`'s, while a command runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from typing import Any


class Terminated(Exception):
    """SIGTERM ended the process."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C is ``KeyboardInterrupt`` in the body; around it, where nothing is open, it may end the process at once.
    Where it is ignored, as by processes in the background, it stays so."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def until_terminated(command: Coroutine[Any, Any, int]) -> int:
    """Run ``command`` in this task. Raises `Terminated` if it was broken off by SIGTERM."""
    received: list[bool] = []
    task = asyncio.current_task()

    def stop() -> None:
        received.append(True)
        if task is not None:
            task.cancel()

    with _on_sigterm(stop):
        try:
            return await command
        except asyncio.CancelledError:
            if not received:
                raise
    raise Terminated("terminated")


@contextlib.contextmanager
def _on_sigterm(action: Any) -> Iterator[None]:
    """Only the main thread, and not every system, can handle signals; elsewhere SIGTERM does what it always does."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGTERM, action)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
