"""Futures that threads of another language's runtime complete, which must be out of the interpreter before it ends.

Such a thread sets a future's result and then still has to come back from that call. A process that ends as soon as it
has the result takes the interpreter down under the thread, which aborts the process (CPython ends the thread by force,
and a runtime that is not unwound by force, as Rust's, gives up).

Invariant: a thread that has not left the interpreter holds its future. So at the interpreter's end, while threads still
run, each future that `completed_elsewhere` was given is waited for until nobody holds it.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Awaitable
from typing import TypeVar
from weakref import WeakSet

T = TypeVar("T")
LEAVE_LIMIT_S = 2.0
"""The end is held up no longer: somebody else may hold a future, too, or a thread may never come back."""
LOOK_S = 0.001

_held: WeakSet[asyncio.Future[object]] = WeakSet()


def completed_elsewhere(future: Awaitable[T]) -> Awaitable[T]:
    """``future`` itself, watched from now on if it is one."""
    if isinstance(future, asyncio.Future):
        _held.add(future)
    return future


def _wait_until_left() -> None:
    limit = time.monotonic() + LEAVE_LIMIT_S
    while len(_held) and time.monotonic() < limit:
        time.sleep(LOOK_S)  # which lets the threads go on


atexit.register(_wait_until_left)
