"""What a controller does by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.executor import LocalExecutor, MergeTask
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import ClosedError, CorruptionError, FencedError, UnavailableError
from tests.engine import InlineOffload, StoreInHand, memory_store
from tests.support.collection_bytes import frontier
from tests.unit.collections.controller.counted import CountedStore
from tests.unit.collections.kept import KeptLake, at
from tests.unit.collections.lake import FastClock

ROWS = [(b"%d" % (time % 5), time, 1) for time in range(60)]


@pytest.fixture
async def store() -> CountedStore:
    """In memory."""
    return CountedStore(memory_store(), watch="merged_batches/")


async def until(condition: Callable[[], Any], clock: FastClock, limit_s: float = 3_600) -> None:
    """Let the controller go on until ``condition`` holds."""
    end = clock.now + limit_s
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert clock.now < end, "it did not come to that"
        await asyncio.sleep(0)


async def is_settled(lake: KeptLake, upper: int) -> bool:
    """Whether all up to ``upper`` is in one batch, and nothing is left besides."""
    head = await lake.head()
    if head.upper != frontier(upper) or len(head.batches) > 1 or head.floor != head.version:
        return False
    return await lake.keys("pending_batches/") == [] and await lake.keys("merged_batches/") == list(head.names())


async def append(lake: KeptLake, appends: Appends, lower: int, upper: int, step: int) -> None:
    """Rows from ``lower`` to ``upper``, in batches of ``step`` times."""
    for start in range(lower, upper, step):
        await lake.put(ROWS[start : start + step], start, start + step, appends=appends)


@pytest.mark.parametrize("appends", list(Appends))
async def test_a_collection_comes_to_rest_by_itself_and_then_costs_a_look_a_poll(
    lake: KeptLake, store: CountedStore, appends: Appends
) -> None:
    clock = FastClock()
    controller = await lake.controller(appends, background=True, clock=clock)
    await append(lake, appends, 0, 60, 4)
    await until(lambda: is_settled(lake, 60), clock)
    assert at(await lake.merged(), 60) == at(ROWS, 60)
    settled = clock.now + 200
    await until(lambda: clock.now > settled, clock)
    began, polls = clock.now, 100
    store.requests.clear()
    await until(lambda: clock.now >= began + polls * 0.5, clock)
    found = Counter(store.requests)
    assert found["put"] == found["delete"] == 0
    looks = polls + 2
    holds = polls * 500 // 10_000 + 1
    collections = 1
    assert sum(found.values()) <= looks + 3 * holds + 10 * collections
    assert controller.counts[0].appends == 15


async def test_a_reader_that_moves_on_does_not_make_an_idle_collection_write(
    lake: KeptLake, store: CountedStore
) -> None:
    clock = FastClock()
    await lake.controller(background=True, clock=clock)
    await append(lake, Appends.DEFINITE, 0, 60, 10)
    await until(lambda: is_settled(lake, 60), clock)
    head = await lake.head()
    for version in range(5):
        await lake.hold("reader", head.version + version, 0, lease_ms=10**9)
        settled = clock.now + 60
        await until(lambda settled=settled: clock.now > settled, clock)  # type: ignore[misc]
    assert (await lake.head()).version <= head.version + 1


async def test_it_goes_on_once_the_store_answers_again(lake: KeptLake, store: CountedStore) -> None:
    clock = FastClock()
    controller = await lake.controller(background=True, clock=clock, deadline_ms=2_000)
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    store.down = True
    began = clock.now
    await until(lambda: clock.now > began + 300, clock)
    tried = sum(store.requests.values())
    store.down = False
    await append(lake, Appends.DEFINITE, 20, 60, 10)
    await until(lambda: is_settled(lake, 60), clock)
    assert tried < 1_000
    assert not controller.fenced


async def test_one_that_is_fenced_closes_itself(lake: KeptLake) -> None:
    first = await lake.controller(background=True)
    await lake.controller(background=True)
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    assert isinstance(await first.wait_ended(), FencedError)
    assert first.fenced
    with pytest.raises(FencedError):
        await first.round()
    await first.close()


async def test_one_that_was_closed_says_so(lake: KeptLake) -> None:
    controller = await lake.controller(background=True)
    await controller.close()
    assert await controller.wait_ended() is None
    with pytest.raises(ClosedError):
        await controller.round()


async def test_wrong_bytes_end_it(lake: KeptLake) -> None:
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    key = (await lake.keys("pending_batches/"))[0]
    data = bytearray((await lake.store.get(key)).data)
    data[-3] ^= 1
    await lake.store.put(key, bytes(data))
    controller = await lake.controller(background=True)
    assert isinstance(await controller.wait_ended(), CorruptionError)


async def test_what_zombies_put_into_a_deleted_collection_is_deleted(lake: KeptLake) -> None:
    clock = FastClock()
    await lake.controller(background=True, clock=clock)
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    await until(lambda: is_settled(lake, 20), clock)
    await lake.versions().commits.commit(Tombstone("t" * 32))

    async def is_buried() -> bool:
        return all(key.startswith("merged_areas/") for key in await lake.keys())

    await until(is_buried, clock)
    await lake.hold("ghost", 1, 0)
    await lake.store.put("pending_batches/a/batch_00000000000000000012_00000000000000000013", b"x")
    await until(is_buried, clock)


async def test_it_goes_on_if_the_store_does_not_answer_when_the_collection_was_deleted(
    lake: KeptLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, unanswered = FastClock(), 100
    controller = await lake.controller(background=True, clock=clock, deadline_ms=1)
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    await until(lambda: is_settled(lake, 20), clock)
    load = AreaVersions.load

    async def sometimes(versions: AreaVersions) -> Area:
        nonlocal unanswered
        if versions is controller._context.versions and versions.head is not None and versions.head.deleted:
            unanswered -= 1
            if unanswered >= 0:
                raise UnavailableError("no answer")
        return await load(versions)

    monkeypatch.setattr(AreaVersions, "load", sometimes)
    await lake.versions().commits.commit(Tombstone("t" * 32))

    async def is_buried() -> bool:
        return all(key.startswith("merged_areas/") for key in await lake.keys())

    await until(is_buried, clock)
    assert unanswered < 0


class GatedExecutor:
    """Merges wait until the test lets them go on."""

    def __init__(self, store: StoreInHand) -> None:
        self.inner = LocalExecutor(store, InlineOffload())
        self.gate = asyncio.Event()
        self.running: list[MergeTask] = []
        self.most = 0

    async def merge(self, task: MergeTask) -> MergedBatch:
        self.running.append(task)
        self.most = max(self.most, len(self.running))
        names = [batch.name for running in self.running for batch in running.inputs]
        assert len(names) == len(set(names)), "two merges share a batch"
        try:
            await self.gate.wait()
            return await self.inner.merge(task)
        finally:
            self.running.remove(task)


async def test_rounds_go_on_while_merges_run(lake: KeptLake, store: CountedStore) -> None:
    clock, executor = FastClock(), GatedExecutor(store)
    await lake.controller(background=True, clock=clock, executor=executor, parallel_merges=2)
    for lower in range(0, 60, 5):
        await lake.put(ROWS[lower : lower + 5], lower, lower + 5)
        seen = clock.now
        await until(lambda seen=seen: clock.now > seen + 5, clock)  # type: ignore[misc]
    head = await lake.head()
    assert frontier(15) <= head.upper
    assert 1 <= len(executor.running) <= 2
    executor.gate.set()
    await until(lambda: is_settled(lake, 60), clock)
    assert at(await lake.merged(), 60) == at(ROWS, 60)


async def test_a_cancelled_caller_abandons_the_wait_and_not_the_round(lake: KeptLake) -> None:
    await append(lake, Appends.DEFINITE, 0, 20, 10)
    controller = await lake.controller()
    waiting = asyncio.ensure_future(controller.round())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert (await lake.head()).upper == frontier(20)
