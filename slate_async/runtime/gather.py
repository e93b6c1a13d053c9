"""Running several reads at once: all results, or the first failure with everything else stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

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
            async with asyncio.TaskGroup() as group:
                tasks = []
                for call in calls[start : start + AT_ONCE]:
                    tasks.append(group.create_task(call))
                    begun += 1
            results += [task.result() for task in tasks]
    except BaseExceptionGroup as failed:
        first, *others = failed.exceptions
        for other in others:
            first.add_note(f"and beside it: {other!r}")
        raise first from None
    finally:
        for call in calls[begun:]:
            call.close()
    return results
