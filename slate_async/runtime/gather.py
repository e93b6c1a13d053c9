"""Running several reads at once: all results, or the first failure with everything else stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from slate_async.runtime.concurrent import run_to_completion

T = TypeVar("T")

AT_ONCE = 64
"""No call starts more tasks than this at a time."""


async def gather(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of ``calls`` in their order. A single call runs in the caller's task.

    The first failure is raised as it is, after the other calls were cancelled and have ended; failures of those
    are named in its notes. Cancelling the caller cancels all of them.
    """
    if len(calls) == 1:
        return [await calls[0]]
    results: list[T] = []
    begun = 0
    try:
        for start in range(0, len(calls), AT_ONCE):
            tasks = [asyncio.create_task(call) for call in calls[start : start + AT_ONCE]]
            begun += len(tasks)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                ended = [task for task in tasks if task.done()]
                try:
                    await _end(tasks)
                finally:  # looked at also if the caller was cancelled, or the loop would report them
                    failed = _failures([*ended, *(task for task in tasks if task not in ended)])
            _raise_first(failed)
            results += [task.result() for task in tasks]
    finally:
        for call in calls[begun:]:
            call.close()
    return results


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel those that run, and wait until they have ended.

    Not by an `asyncio.TaskGroup`: that cancels its caller when a call fails, and up to Python 3.12 leaves that in its
    count of cancellations, by which a timeout of the caller's own tells later what happened to it."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await run_to_completion(_wait(running))


async def _wait(tasks: Sequence[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks)


def _failures(tasks: Sequence[asyncio.Task[Any]]) -> list[BaseException]:
    return [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]


def _raise_first(failed: Sequence[BaseException]) -> None:
    if failed:
        first, *others = failed
        for other in others:
            first.add_note(f"and beside it: {other!r}")
        raise first
