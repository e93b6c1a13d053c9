"""Retries: what is repeated, how long, and what passes through once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from slate_async.errors import InvalidError, SlateError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import (
    CREATE,
    OVERWRITE,
    ByteRange,
    GetResult,
    Match,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    PutMode,
)
from slate_async.objectstore.retry import DELETED_AT_ONCE, RetryingStore, RetryPolicy
from slate_async.types import Buffer


class VirtualClock:
    """Sleeping is instant and moves the clock."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class FailingStore(MemoryStore):
    """Fails the next ``failures`` calls, after doing them if ``done_first``."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.failures = 0
        self.calls = 0
        self.done_first = False

    def _fail(self) -> None:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise UnavailableError("injected", outcome="unknown")

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self.done_first and self.failures:
            await super().put(key, data, mode=mode, metadata=metadata)
        self._fail()
        return await super().put(key, data, mode=mode, metadata=metadata)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self._fail()
        return await super().get(key, byte_range)

    async def delete(self, keys: Sequence[str]) -> None:
        self._fail()
        await super().delete(keys)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self._fail()
        seen = 0
        async for info in super().list(prefix, start_after=start_after):
            if seen == 3:
                self._fail()
            seen += 1
            yield info


def _opened(policy: RetryPolicy | None = None) -> tuple[RetryingStore, FailingStore, VirtualClock]:
    clock = VirtualClock()
    inner = FailingStore(clock)
    return RetryingStore(inner, clock, random.Random(1), policy or RetryPolicy(attempts=4)), inner, clock


async def test_reads_deletes_and_plain_puts_are_repeated() -> None:
    store, inner, clock = _opened()
    inner.failures = 3
    await store.put("key", b"body")
    inner.failures = 3
    assert (await store.get("key")).data == b"body"
    inner.failures = 2
    await store.delete(["key"])
    assert len(clock.sleeps) == store.stats.retries == 8
    assert store.stats.requests == {"put": 4, "get": 4, "delete": 3}
    assert (store.stats.bytes_out, store.stats.bytes_in, store.stats.errors) == (16, 4, 8)


async def test_keys_are_deleted_in_portions_with_attempts_of_their_own() -> None:
    store, inner, _ = _opened()
    keys = [f"key-{number:04}" for number in range(2 * DELETED_AT_ONCE + 100)]
    for key in keys:
        await store.put(key, b"body")
    asked: list[int] = []
    delete = inner.delete

    async def failing_twice_each(portion: Sequence[str]) -> None:
        asked.append(len(portion))
        inner.failures = int(len(asked) % 3 != 0)
        await delete(portion)

    inner.delete = failing_twice_each  # type: ignore[method-assign]
    await store.delete(keys)
    portions = [DELETED_AT_ONCE, DELETED_AT_ONCE, 100]
    assert asked == [size for size in portions for _ in range(3)]
    assert [info async for info in store.list()] == []


async def test_a_listing_counts_as_what_it_asks_the_store_not_as_what_it_finds() -> None:
    store, _, _ = _opened()
    for number in range(1_500):
        await store.put(f"key-{number:04}", b"")
    assert len([info async for info in store.list("key-00", start_after="key-0090")]) == 9
    assert store.stats.requests["list"] == 1
    assert len([info async for info in store.list()]) == 1_500
    assert store.stats.requests["list"] == 1 + 2


async def test_attempts_are_bounded_and_the_outcome_kept() -> None:
    store, inner, _ = _opened()
    inner.failures = 100
    with pytest.raises(UnavailableError, match="tried 4 times") as failure:
        await store.put("key", b"body")
    assert failure.value.outcome == "unknown"
    assert inner.calls == 4


@pytest.mark.parametrize("last", [UnavailableError("slow down", outcome="not_applied"), InvalidError("not allowed")])
async def test_a_refusal_at_the_end_does_not_deny_what_was_sent_before(last: SlateError) -> None:
    store, inner, _ = _opened()
    last.outcome = "not_applied"
    errors = iter([UnavailableError("no answer", outcome="unknown"), *[last] * 3])

    def fail() -> None:
        raise next(errors)

    inner._fail = fail  # type: ignore[method-assign]
    with pytest.raises(SlateError) as failure:
        await store.put("key", b"body")
    assert failure.value.outcome == "unknown"


async def test_the_deadline_ends_retries_before_the_attempts_do() -> None:
    store, inner, clock = _opened(RetryPolicy(attempts=1_000_000, deadline=10.0, first_pause=0.1, longest_pause=1.0))
    inner.failures = 1_000_000
    with pytest.raises(UnavailableError):
        await store.get("key")
    assert clock.time <= 10.0
    assert 10 < inner.calls < 200


async def test_pauses_are_jittered_and_capped() -> None:
    policy = RetryPolicy(first_pause=0.1, longest_pause=1.0)
    rng = random.Random(3)
    drawn = [policy.pause(failures, rng) for failures in range(1, 2000)]
    assert all(0 <= pause <= min(1.0, 0.1 * 2 ** min(n, 100)) for n, pause in enumerate(drawn))
    assert len(set(drawn)) > 1900


@pytest.mark.parametrize("mode", [CREATE, Match('"1"')])
async def test_conditional_puts_go_through_once(mode: PutMode) -> None:
    store, inner, clock = _opened()
    if isinstance(mode, Match):
        await store.put("key", b"0")
    inner.calls = 0
    inner.failures, inner.done_first = 1, True
    with pytest.raises(UnavailableError) as failure:
        await store.put("key", b"1", mode=mode)
    assert failure.value.outcome == "unknown"
    assert (inner.calls, clock.sleeps) == (1, [])
    assert (await store.get("key")).data == b"1"


async def test_conditional_puts_that_fail_in_a_row_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store, inner, _ = _opened()

    async def fail(times: int) -> None:
        inner.failures = times
        for _ in range(times):
            with pytest.raises(UnavailableError):
                await store.put("log/7.sst", b"1", mode=CREATE)

    await fail(2)
    await store.put("log/7.sst", b"1", mode=CREATE)
    await fail(2)
    with pytest.raises(ObjectExistsError):
        await store.put("log/7.sst", b"1", mode=CREATE)
    assert caplog.messages == []
    await fail(5)
    (logged,) = caplog.messages
    assert ": conditional puts failed 3 times in a row, the last one of 'log/7.sst'" in logged
    assert logged.endswith("injected")


async def test_answers_are_not_retried() -> None:
    store, _, clock = _opened()
    await store.put("key", b"0")
    with pytest.raises(ObjectExistsError):
        await store.put("key", b"1", mode=CREATE)
    with pytest.raises(ObjectNotFoundError):
        await store.get("other")
    with pytest.raises(InvalidError):
        await store.get("")
    assert clock.sleeps == []
    assert (store.stats.conflicts, store.stats.errors) == (1, 1)


async def test_a_listing_goes_on_where_it_broke() -> None:
    store, inner, _ = _opened()
    keys = [f"{number:02}" for number in range(10)]
    for key in keys:
        await store.put(key, b"")
    inner.failures = 3
    assert [info.key async for info in store.list()] == keys
    assert store.stats.retries == 3


async def test_a_store_that_never_answers() -> None:
    class Silent(MemoryStore):
        async def put(self, *_: object, **__: object) -> str:
            await asyncio.Event().wait()
            raise AssertionError

    clock = VirtualClock()
    store = RetryingStore(Silent(clock), clock, random.Random(1), RetryPolicy(attempts=2, deadline=0.02))
    with pytest.raises(UnavailableError, match=r"put_if of 'key' in .*: no answer within") as failure:
        await store.put("key", b"", mode=CREATE)
    assert failure.value.outcome == "unknown"


async def test_one_request_that_goes_nowhere_leaves_time_for_another() -> None:
    class OnceSilent(MemoryStore):
        asked = 0

        async def put(self, *_: object, **__: object) -> str:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return "etag"

    clock = VirtualClock()
    policy = RetryPolicy(deadline=3_600.0, request_timeout=0.02)
    store = RetryingStore(OnceSilent(clock), clock, random.Random(1), policy)
    assert await store.put("key", b"") == "etag"
    assert (store.stats.retries, store.stats.errors) == (1, 1)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"deadline": 0.0}, {"request_timeout": 0.0}, {"first_pause": -1.0}])
def test_wrong_policies(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidError):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
