"""Makes anyio's cancel scopes iterate in the order they were made, and forget tasks that never ended.

anyio keeps child scopes in a set, and a scope hashes by its address, so the order in which nested scopes are
cancelled would differ from run to run. While a simulation runs, scopes hash by first use instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from anyio._backends._asyncio import CancelScope, _task_states


@contextmanager
def ordered_cancel_scopes() -> Iterator[None]:
    """Number cancel scopes while the context lasts. Scopes are kept alive so that no number is given twice."""
    numbers: dict[int, tuple[int, CancelScope]] = {}

    def number(scope: CancelScope) -> int:
        return numbers.setdefault(id(scope), (len(numbers), scope))[0]

    with mock.patch.object(CancelScope, "__hash__", number):
        yield


def forget_task(task: asyncio.Task[Any]) -> None:
    """Drop what anyio keeps of a task: a scope it was inside of would keep it, and with it its world, for ever."""
    _task_states.pop(task, None)
