"""Retries around any object store: bounded by attempts and by a deadline, with jittered exponential backoff.

Reads, list pages, deletes and unconditional puts are repeated when they end in `UnavailableError`. Conditional
puts pass through untouched, exactly once: repeating one could meet its own success as a conflict. Every attempt
is cut off after a while of its own, so that a request that went nowhere leaves time for another, and at the deadline;
an attempt cut off is `UnavailableError`, with outcome "unknown" for a conditional put.

Conditional puts are repeated by the caller that knows what became of the last one. Their failures in a row are counted
here all the same, so that the log hears of a store that answers none of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from slate_async.errors import ConflictError, InvalidError, Outcome, SlateError, UnavailableError
from slate_async.objectstore.bodies import parts_of
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    GetResult,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    Overwrite,
    PutMode,
)
from slate_async.objectstore.stats import StoreStats
from slate_async.objectstore.sync_read import read_sync_of
from slate_async.runtime.protocol import Clock
from slate_async.types import Buffer

T = TypeVar("T")
logger = logging.getLogger(__name__)
DELETED_AT_ONCE = 250
"""So many are deleted within the time of one request by a slow store, too: Azure takes 256 at a time, S3 1,000."""
LISTED_AT_ONCE = 1_000
"""What S3 answers to one request; so many keys count as one."""
MOST_ATTEMPTS = 1_000
WARN_AFTER_FAILURES = 3
"""An operation that failed so often in a row is logged, once, while it goes on trying."""


class RequestSettings(Protocol):
    """What a policy is made of; see `slate_async.settings`."""

    @property
    def retry_deadline_ms(self) -> int:
        """Time for one operation with all its retries."""

    @property
    def request_timeout_ms(self) -> int:
        """Longest wait for one request."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often to try. Times are seconds.

    The n-th pause is drawn evenly from 0 to ``first_pause * 2**n``, at most ``longest_pause`` ("full jitter", from
    the AWS architecture blog's comparison of backoff schemes)."""

    attempts: int = 8
    deadline: float = 60.0
    request_timeout: float = 10.0
    first_pause: float = 0.05
    longest_pause: float = 1.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.deadline, self.request_timeout, self.first_pause, self.longest_pause) <= 0:
            raise InvalidError("a retry policy needs at least one attempt and times above 0")

    @classmethod
    def of(cls, settings: RequestSettings) -> RetryPolicy:
        """The deadline decides when to give up; the number of attempts is only the bound behind it."""
        return cls(
            attempts=MOST_ATTEMPTS,
            deadline=settings.retry_deadline_ms / 1000,
            request_timeout=settings.request_timeout_ms / 1000,
        )

    def pause(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after that many failures in a row."""
        return rng.uniform(0, min(self.longest_pause, self.first_pause * 2.0 ** min(failures - 1, 60)))


class _Budget:
    """What is left of one operation's attempts and time."""

    def __init__(self, policy: RetryPolicy, clock: Clock, rng: random.Random) -> None:
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self.restart()

    def restart(self) -> None:
        self.failures = 0
        self._end = self._clock.monotonic() + self._policy.deadline

    def left(self) -> float:
        return max(0.001, self._end - self._clock.monotonic())

    def pause(self) -> float | None:
        """Note a failure: how long to pause before the next attempt, ``None`` if there is none left."""
        self.failures += 1
        pause = self._policy.pause(self.failures, self._rng)
        if self.failures >= self._policy.attempts or self._clock.monotonic() + pause >= self._end:
            return None
        return pause


class RetryingStore:
    """``store`` with retries. ``stats`` counts every attempt. Closing it closes ``store``."""

    def __init__(self, store: ObjectStore, clock: Clock, rng: random.Random, policy: RetryPolicy | None = None) -> None:
        self._store = store
        self._read_sync = read_sync_of(store)
        self._clock = clock
        self._rng = rng
        self._policy = policy or RetryPolicy()
        self._conditional_failures = 0
        self.stats = StoreStats(clock.monotonic())

    def __repr__(self) -> str:
        return f"RetryingStore({self._store!r})"

    def _budget(self) -> _Budget:
        return _Budget(self._policy, self._clock, self._rng)

    async def _attempt(self, operation: str, key: str, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        """One counted attempt at ``key``, cut off after ``seconds`` or the policy's time for one request."""
        self.stats.count(operation)
        return await self._answer(operation, key, call, seconds)

    async def _answer(self, operation: str, key: str, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        """What ``call`` answers; if nothing in time, `UnavailableError`."""
        seconds = min(seconds, self._policy.request_timeout)
        try:
            async with asyncio.timeout(seconds):
                return await call()
        except TimeoutError as error:
            self.stats.errors += 1
            raise UnavailableError(
                f"{operation} of {key!r} in {self._store!r}: no answer within {seconds:g} s",
                outcome=_outcome(operation),
            ) from error
        except ConflictError:
            self.stats.conflicts += 1
            raise
        except ObjectNotFoundError:
            raise
        except SlateError as error:
            self.stats.errors += 1
            if not operation.startswith("put"):
                error.outcome = None
            raise

    async def _retried(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        budget = self._budget()
        unknown = False
        while True:
            try:
                return await self._attempt(operation, key, call, budget.left())
            except SlateError as error:
                unknown = unknown or error.outcome == "unknown"
                if unknown:
                    error.outcome = "unknown"  # a refusal says nothing of the attempts before it
                if not isinstance(error, UnavailableError):
                    raise
                await self._pause_or_raise(operation, key, budget, error)

    async def _pause_or_raise(self, operation: str, key: str, budget: _Budget, error: UnavailableError) -> None:
        pause = budget.pause()
        if pause is None:
            if budget.failures > 1:
                raise UnavailableError(f"{error} (tried {budget.failures} times)", outcome=error.outcome) from error
            raise error
        if budget.failures == WARN_AFTER_FAILURES:
            logger.warning(
                "%r: %s of %r failed %d times and is retried for %.0f s more: %s",
                self._store,
                operation,
                key,
                budget.failures,
                budget.left(),
                error,
            )
        self.stats.retries += 1
        await self._clock.sleep(pause)

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object; repeated only if unconditional."""
        parts = parts_of(data)
        nbytes = sum(map(len, parts))

        async def send() -> str:
            self.stats.bytes_out += nbytes
            return await self._store.put(key, parts, mode=mode, metadata=metadata)

        if isinstance(mode, Overwrite):
            return await self._retried("put", key, send)
        return await self._put_if(key, send)

    async def _put_if(self, key: str, send: Callable[[], Awaitable[str]]) -> str:
        try:
            etag = await self._attempt("put_if", key, send, self._policy.deadline)
        except UnavailableError as error:
            self._conditional_failures += 1
            if self._conditional_failures == WARN_AFTER_FAILURES:
                logger.warning(
                    "%r: conditional puts failed %d times in a row, the last one of %r;"
                    " each is read back before it is sent again: %s",
                    self._store,
                    WARN_AFTER_FAILURES,
                    key,
                    error,
                )
            raise
        except ConflictError:
            self._conditional_failures = 0  # that is an answer
            raise
        self._conditional_failures = 0
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        result = await self._retried("get", key, lambda: self._store.get(key, byte_range))
        self.stats.bytes_in += len(result.data)
        return result

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """See `slate_async.objectstore.sync_read.SyncReads`. Counted as a read if it is one."""
        data = self._read_sync(key, offset, length, size)
        if data is not None:
            self.stats.count("get")
            self.stats.bytes_in += length
        return data

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        return await self._retried("head", key, lambda: self._store.head(key))

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List; a failed page is asked for again, from the last key seen, with attempts and deadline renewed."""
        budget = self._budget()
        last = start_after
        pages = self._store.list(prefix, start_after=last)
        listed = 0
        while True:
            if listed % LISTED_AT_ONCE == 0:
                self.stats.count("list")
            try:
                info = await self._answer("list", prefix, pages.__anext__, budget.left())
            except StopAsyncIteration:
                return
            except UnavailableError as error:
                await self._pause_or_raise("list", prefix, budget, error)
                pages = self._store.list(prefix, start_after=last)
                listed = 0
                continue
            last = info.key
            listed += 1
            yield info
            budget.restart()

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error. `DELETED_AT_ONCE` at a time, attempts and deadline renewed."""
        for start in range(0, len(keys), DELETED_AT_ONCE):
            portion = keys[start : start + DELETED_AT_ONCE]
            named = portion[0] if len(portion) == 1 else f"{portion[0]} and {len(portion) - 1} more"
            await self._retried("delete", named, partial(self._store.delete, portion))

    async def close(self) -> None:
        """Close the underlying store."""
        await self._store.close()


def _outcome(operation: str) -> Outcome | None:
    return "unknown" if operation.startswith("put") else None
