"""What the suites share: marks that racers leave, pauses between their attempts, writers that sleep."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from metastores.testing.wire import Wire

ATTEMPTS = 2_000
LONGEST_PAUSE_S = 0.25


def mark_lists(racers: int, rounds: int) -> list[Sequence[str]]:
    """For each racer the marks it adds; no two are equal."""
    return [[f"{racer}-{mark}" for mark in range(rounds)] for racer in range(racers)]


async def breathe(rng: random.Random, attempt: int) -> None:
    """Before attempt number ``attempt + 1`` (from 0): after a lost one a pause, longer each time, at most 0.25 s."""
    if attempt:
        await asyncio.sleep(rng.random() * min(LONGEST_PAUSE_S, 0.001 * (1 << min(attempt, 10))))


@asynccontextmanager
async def without_an_answer(wire: Wire, work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Start ``work``; enter once it sleeps on ``wire``; at the end wake it and wait for it."""
    task = asyncio.ensure_future(work)
    sleeping = asyncio.ensure_future(wire.asleep.wait())
    try:
        await asyncio.wait((task, sleeping), return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), f"it never sent a conditional write: {task}"
        yield task
        wire.wake.set()
        await task
    finally:
        sleeping.cancel()
        task.cancel()
