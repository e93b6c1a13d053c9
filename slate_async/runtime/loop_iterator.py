"""`iterated`: what an event loop gives piece by piece, for code in other threads that knows nothing of ``await``.

One piece is asked for at a time, when it is wanted, so no more than one waits. Any thread may ask for the next one, and
any may drop the iterator; the loop ends what it has begun.

Invariant: a thread never waits for a loop that waits for it. In the loop's own thread there is an error at once. A loop
that does nothing at all while a thread waits is an error after `STALLED_S`, because most likely it is blocked by a call
that wants the next piece.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import CancelledError, wait
from typing import TypeVar

from slate_async.errors import ClosedError, InvalidError

T = TypeVar("T")
STALLED_S = 10.0


def iterated(make: Callable[[], AsyncGenerator[T, None]], advice: str) -> Iterator[T]:
    """The pieces of ``make()``, which runs in the event loop that runs now; in the loop nothing begins before the first
    one is asked for.

    advice: what to do instead of asking in the loop's own thread

    Raises what ``make()`` raises; `InvalidError` in the loop's thread and while the loop stands still; `ClosedError`
    when the loop has ended."""
    return _iterated(asyncio.get_running_loop(), make, advice)


def _iterated(loop: asyncio.AbstractEventLoop, make: Callable[[], AsyncGenerator[T, None]], advice: str) -> Iterator[T]:
    stream = make()
    try:
        while (found := _next(loop, stream, advice)) is not None:
            yield found
    finally:
        end = _end(stream)
        try:
            asyncio.run_coroutine_threadsafe(end, loop)  # nobody waits: it may be the loop's thread that drops it
        except RuntimeError:  # the loop has ended
            end.close()


async def _piece(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)


async def _end(stream: AsyncGenerator[T, None]) -> None:
    await stream.aclose()


def _next(loop: asyncio.AbstractEventLoop, stream: AsyncGenerator[T, None], advice: str) -> T | None:
    if _is_running_here(loop):
        raise InvalidError(f"the event loop would wait for itself; {advice}")
    asked = _piece(stream)
    try:
        future = asyncio.run_coroutine_threadsafe(asked, loop)
    except RuntimeError as error:
        asked.close()
        raise ClosedError("the event loop has ended; nothing can be read in it any more") from error
    try:
        while not wait([future], STALLED_S).done:
            if not _does_something(loop):
                raise InvalidError(f"the event loop has stood still for {STALLED_S:g} s; {advice}")
        return future.result()
    except CancelledError as error:
        raise ClosedError("the event loop is ending") from error
    finally:
        future.cancel()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _does_something(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``loop`` runs a callback in some time."""
    ran = threading.Event()
    try:
        loop.call_soon_threadsafe(ran.set)
    except RuntimeError:
        return False
    return ran.wait(STALLED_S)
