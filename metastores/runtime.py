"""Time and chance as metastores need them, passed in so that a simulator can own both.

Invariant: nothing else in this package sleeps or draws a random number. The defaults live in the constructor
only: the running event loop's sleep and the operating system's entropy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

BACKOFF_BASE_S = 0.05
BACKOFF_LIMIT_S = 2.0


class MetaRuntime:
    """Sleeping, clocks, randomness and names of one factory or metastore, and how long it waits for a server.

    rng: for pauses, and for names when there is no ``token``; then it must not be seeded alike in two processes
    token: draws 32 lower-case hex digits that no other call will draw; they say which conditional write won
    request_timeout: seconds for one request
    deadline: seconds for one read or unconditional write with all its repetitions
    version_keep_ms: how long collectors leave a manifest version alone, however soon it is superseded; 0: not at all
    monotonic, now_ms: seconds that never go back, and the wall clock, to compare with the times of objects; without
        them no version is kept
    """

    request_timeout: float
    """Seconds for one request."""
    deadline: float
    """Seconds for one read or unconditional write with all its repetitions."""
    version_keep_ms: int
    """How long collectors leave a manifest version alone; 0: not at all."""

    __slots__ = ("_monotonic", "_now_ms", "_rng", "_sleep", "_token", "deadline", "request_timeout", "version_keep_ms")

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        rng: random.Random | None = None,
        token: Callable[[], str] | None = None,
        request_timeout: float = 10.0,
        deadline: float = 30.0,
        version_keep_ms: int = 0,
        monotonic: Callable[[], float] | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.request_timeout = request_timeout
        self.deadline = deadline
        self._sleep = asyncio.sleep if sleep is None else sleep
        self._rng = random.SystemRandom() if rng is None else rng
        self._token = token
        self.version_keep_ms = 0 if now_ms is None or monotonic is None else version_keep_ms
        self._monotonic = monotonic
        self._now_ms = now_ms

    def monotonic(self) -> float:
        """Seconds since an arbitrary time, never going back; 0 without a clock."""
        return 0.0 if self._monotonic is None else self._monotonic()

    def kept_since_ms(self) -> int | None:
        """What was written after this time is kept; ``None`` if nothing is for its age."""
        return None if not self.version_keep_ms or self._now_ms is None else self._now_ms() - self.version_keep_ms

    def token(self) -> str:
        """32 lower-case hex digits that no other call will draw."""
        return f"{self._rng.getrandbits(128):032x}" if self._token is None else self._token()

    async def back_off(self, attempt: int) -> None:
        """Wait before attempt number ``attempt + 1`` (from 0): exponential with full jitter, at most 2 s."""
        ceiling = min(BACKOFF_LIMIT_S, BACKOFF_BASE_S * (1 << min(attempt, 10)))
        await self._sleep(ceiling * (0.1 + 0.9 * self._rng.random()))

    async def pause(self, seconds: float) -> None:
        """Sleep exactly that long."""
        await self._sleep(seconds)
