"""The `Runtime` of one simulated process: its own clock, its own names, no threads.

Everything random is derived from the world's seed and the process's name through SHA-256, never through ``hash``.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from slate_async.runtime.protocol import Runtime

T = TypeVar("T")
START_MS = 1_750_000_000_000
"""Wall time at virtual second 0, in milliseconds since the Unix epoch."""


def derived_rng(seed: int, *names: str) -> random.Random:
    """A generator that depends on the seed and the names alone."""
    text = "\0".join([str(seed), *names])
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


class SimClock:
    """A clock that may be wrong.

    skew_ms: how far the wall clock is ahead; may be changed at any time, which makes it jump
    drift_ppm: how much too fast it runs, in microseconds a second
    """

    def __init__(self, now: Callable[[], float], skew_ms: int = 0, drift_ppm: int = 0) -> None:
        self._now = now
        self.skew_ms = skew_ms
        self.drift_ppm = drift_ppm

    def now_ms(self) -> int:
        """Wall clock of this process, milliseconds since the Unix epoch."""
        elapsed_us = int(self._now() * 1_000_000)
        return START_MS + self.skew_ms + (elapsed_us + elapsed_us * self.drift_ppm // 1_000_000) // 1000

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._now()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)

    def jump(self, by_ms: int) -> None:
        """The wall clock is set."""
        self.skew_ms += by_ms


class SimIds:
    """Names from a seeded generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> UUID:
        """A version 4 UUID."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def ulid(self, now_ms: int) -> bytes:
        """16 bytes: 48 bits of time, 80 random bits."""
        return now_ms.to_bytes(6, "big") + self._rng.randbytes(10)

    def token(self) -> str:
        """32 lower-case hex digits."""
        return f"{self._rng.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True)
class OffloadDelay:
    """How long a worker takes to begin and to hand over its result, in virtual seconds: up to these."""

    before_seconds: float = 0.0
    after_seconds: float = 0.0


class SimOffload:
    """Runs functions in the loop itself, later.

    The function runs in its process even if the caller has been cancelled, and does not if the process crashed."""

    def __init__(self, rng: random.Random, delay: OffloadDelay) -> None:
        self._rng = rng
        self.delay = delay

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function``, after at least one turn of the loop."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        loop.call_later(self._rng.uniform(0, self.delay.before_seconds), self._work, function, result)
        return await result

    def _work(self, function: Callable[[], T], result: asyncio.Future[T]) -> None:
        after = self._rng.uniform(0, self.delay.after_seconds)
        loop = asyncio.get_running_loop()
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - whatever it raises belongs to the caller
            loop.call_later(after, _fail, result, error)
        else:
            loop.call_later(after, _succeed, result, value)


def _succeed(result: asyncio.Future[T], value: T) -> None:
    if not result.done():
        result.set_result(value)


def _fail(result: asyncio.Future[T], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)


def sim_runtime(clock: SimClock, seed: int, name: str, delay: OffloadDelay) -> Runtime:
    """The runtime of the process ``name``."""
    offload = SimOffload(derived_rng(seed, name, "offload"), delay)
    rng, ids = derived_rng(seed, name, "rng"), SimIds(derived_rng(seed, name, "ids"))
    return Runtime(clock, rng, ids, offload, offload)
