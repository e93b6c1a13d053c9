"""The real machine's `Runtime`: operating system clock, OS randomness, worker threads."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID, uuid4

from slate_async.errors import ClosedError
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")
MOST_COMPUTING_THREADS = 4
FILE_THREADS = 4
READING_THREADS = 2
REFUSED = "cannot schedule new futures"
"""What a thread pool says when it, or the interpreter, has been shut down."""


class SystemClock:
    """Wall and monotonic time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds, never decreasing."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)


class SystemIds:
    """Names drawn from the operating system's randomness."""

    def uuid(self) -> UUID:
        """A random (version 4) UUID."""
        return uuid4()

    def ulid(self, now_ms: int) -> bytes:
        """16 bytes that sort by time, then at random (the ULID layout)."""
        return now_ms.to_bytes(6, "big") + os.urandom(10)

    def token(self) -> str:
        """32 hex digits."""
        return os.urandom(16).hex()


class ThreadOffload:
    """Runs functions on a bounded pool of worker threads, first come, first served.

    A cancelled caller stops waiting; a function that has begun runs on to its end. The threads start on
    first use and end with `close`, after which it runs nothing."""

    def __init__(self, threads: int, name: str = "slate-worker") -> None:
        self._threads = threads
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` in a worker thread; in the caller's once the interpreter ends. Raises `ClosedError` after
        `close`."""
        if self._closed:
            raise ClosedError(
                "the worker threads of this Runtime have ended; open the database again", outcome="not_applied"
            )
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        try:
            running = self._pool.submit(function)
        except RuntimeError as error:
            if REFUSED not in str(error):
                raise
            return function()  # the interpreter ends: a loop that runs on in a thread outlives all thread pools
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """End the threads once what they run is done; does not wait. Idempotent."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def computing_threads() -> int:
    """How many threads compute unless somebody says otherwise: one for every two processors, at most
    `MOST_COMPUTING_THREADS`.

    They share the interpreter with the event loop. Each takes it many times a millisecond, and the loop, which is slow
    to wake up for it, waits for all of them; so with two threads on two processors it is late several times as often
    as with one, and no more gets done."""
    return max(1, min(MOST_COMPUTING_THREADS, (os.cpu_count() or 1) // 2))


def system_runtime(threads: int | None = None) -> Runtime:
    """A `Runtime` of the real machine with worker threads of its own, which `end_threads` ends.

    threads: that compute; if unset, `computing_threads`, and `READING_THREADS` more that decode the pieces of one read
    side by side. `FILE_THREADS` more wait for disks."""
    computing = ThreadOffload(computing_threads() if threads is None else threads)
    parallel = ThreadOffload(READING_THREADS, "slate-reader") if threads is None and (os.cpu_count() or 1) > 1 else None
    rng = random.SystemRandom()  # safe across forks
    return Runtime(SystemClock(), rng, SystemIds(), computing, ThreadOffload(FILE_THREADS, "slate-files"), parallel)


def end_threads(runtime: Runtime) -> None:
    """End the worker threads of a `system_runtime` once what they run is done; does not wait. Idempotent."""
    for offload in (runtime.offload, runtime.blocking, runtime.parallel):
        if isinstance(offload, ThreadOffload):
            offload.close()
