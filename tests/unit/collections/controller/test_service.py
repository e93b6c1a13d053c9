"""Many collections that one process keeps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.lake import Lake
from slate_async.collections.lake_context import LakeContext
from slate_async.collections.open import open_collections
from slate_async.errors import SlateError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.settings.collections import CollectionSettings
from tests.engine import StoreInHand, runtime, until
from tests.unit.collections.controller.counted import BusyStore
from tests.unit.collections.lake import FastClock, QuickClock, fast_runtime, pace_of

SETTINGS = CollectionSettings(version_keep_ms=0, gc_interval_ms=5_000)
Opened = Callable[..., Awaitable[Lake]]
QUICK = SETTINGS.model_copy(update={"poll_interval_ms": 20, "controller_takeover_ms": 2_000})


@pytest.fixture
def store(store: StoreInHand) -> BusyStore:
    return BusyStore(store.inner)


@pytest.fixture
async def another(store: StoreInHand) -> AsyncIterator[Opened]:
    """Opens the folder as one more process does, with a clock of its own."""
    lakes: list[Lake] = []

    async def opened(own: Runtime | None = None, settings: CollectionSettings = SETTINGS) -> Lake:
        chosen = fast_runtime(pace_of(store)) if own is None else own
        lake = await open_collections(store, name="memory://lake", settings=settings, runtime=chosen)
        lakes.append(lake)
        return lake

    yield opened
    for lake in lakes:
        with suppress(SlateError):
            await lake.close()


@pytest.fixture
def quick(store: BusyStore) -> Runtime:
    """Of several processes whose time goes on alike, while none of them waits for the store."""
    return runtime(QuickClock(speed=4, longest_s=0.1, is_busy=lambda: store.under_way > 0))


@pytest.fixture
async def lake(another: Opened) -> Lake:
    return await another()


async def append(lake: Lake, name: str, upper: int) -> None:
    """A row at each time up to ``upper``."""
    async with lake.collection(name).writer() as writer:
        lower = writer.upper.elements[0][0]
        await writer.append([(b"x", time, 1) for time in range(lower, upper)], upper=upper)


async def create(lake: Lake, *names: str, **options: Any) -> None:
    """Collections that nobody reads."""
    for name in names:
        await (await lake.create(name, **options)).expire()


async def upper_of(lake: Lake, name: str) -> int:
    """Up to where it is merged."""
    async with lake.collection(name)._stores() as stores:
        return (await stores.versions.load()).upper.elements[0][0]


async def come_to(lake: Lake, name: str, upper: int) -> None:
    """Wait until all up to ``upper`` is merged."""
    for _ in range(20_000):
        if await upper_of(lake, name) == upper:
            return
        await asyncio.sleep(0)
    pytest.fail(f"{name} did not come to {upper}")


async def test_all_collections_are_kept_those_that_come_later_too(lake: Lake, another: Opened) -> None:
    await create(lake, "a", "b")
    await create(lake, "c", appends="compare")
    for name in "abc":
        await append(lake, name, 5)
    async with (await another()).controllers() as service:
        for name in "abc":
            await come_to(lake, name, 5)
        await create(lake, "d")
        await append(lake, "d", 7)
        await come_to(lake, "d", 7)
        await append(lake, "a", 9)
        await come_to(lake, "a", 9)
        assert set(service.controllers) == set("abcd")


async def test_only_those_that_are_named_are_kept(lake: Lake, another: Opened) -> None:
    await create(lake, "a", "b")
    await append(lake, "a", 5)
    await append(lake, "b", 5)
    async with (await another()).controllers(["b"]) as service:
        await come_to(lake, "b", 5)
        assert set(service.controllers) == {"b"}
    assert await upper_of(lake, "a") == 0


async def test_one_that_fails_does_not_stop_the_others(lake: Lake, another: Opened, store: StoreInHand) -> None:
    await create(lake, "a", "b")
    await append(lake, "a", 5)
    key = next(iter([info.key async for info in store.list("a/1/pending_batches/")]))
    data = (await store.get(key)).data
    await store.put(key, data[:-9] + b"damaged!!")
    async with (await another()).controllers() as service:
        await append(lake, "b", 5)
        await come_to(lake, "b", 5)
        assert await upper_of(lake, "a") == 0
        await store.put(key, data)
        await come_to(lake, "a", 5)
        await until(lambda: set(service.controllers) == {"a", "b"}, "both are kept")


async def test_a_collection_that_is_deleted_and_created_again_is_kept(lake: Lake, another: Opened) -> None:
    await create(lake, "a")
    await append(lake, "a", 5)
    async with (await another()).controllers():
        await come_to(lake, "a", 5)
        await lake.delete("a")
        await create(lake, "a")
        await append(lake, "a", 3)
        await come_to(lake, "a", 3)


async def test_what_is_put_into_a_deleted_collection_is_removed(
    lake: Lake, another: Opened, store: StoreInHand
) -> None:
    await create(lake, "a")
    await append(lake, "a", 5)
    key = next(iter([info.key async for info in store.list("a/1/pending_batches/")]))
    zombie = (await store.get(key)).data
    await lake.delete("a")
    async with (await another()).controllers():
        await store.put(key, zombie)
        for _ in range(20_000):
            if key not in [info.key async for info in store.list("a/1/pending_batches/")]:
                return
        pytest.fail("it is still there")


async def test_two_services_do_not_take_the_role_from_each_other(lake: Lake, another: Opened, quick: Runtime) -> None:
    """By one clock: two that each go as fast as they can say nothing of each other."""
    await create(lake, "a")
    async with (await another(quick, QUICK)).controllers() as first:
        await until(lambda: "a" in first.controllers, "the first one keeps it")
        async with (await another(quick, QUICK)).controllers() as second:
            await until(lambda: "a" in second.controllers, "the second one keeps it")
            epoch = second.controllers["a"].epoch
            for upper in range(5, 50, 5):
                await append(lake, "a", upper)
                await come_to(lake, "a", upper)
            assert second.controllers["a"].epoch == epoch
        await append(lake, "a", 60)
        await until(lambda: "a" in first.controllers, "the first one takes the role back")
        await come_to(lake, "a", 60)
        assert first.controllers["a"].epoch == epoch + 1


async def test_one_that_was_fenced_goes_on_waiting_when_the_store_does_not_answer(
    lake: Lake, another: Opened, quick: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows nothing of the other one's work then, so it takes no role back."""
    await create(lake, "a")
    async with (await another(quick, QUICK)).controllers() as first:
        await until(lambda: "a" in first.controllers, "the first one keeps it")
        waits, patient = list[float](), first._until_work_waits

        async def unanswered_twice(context: ControllerContext, patience_ms: float) -> None:
            waits.append(patience_ms)
            if len(waits) <= 2:
                raise UnavailableError("no answer")
            await patient(context, patience_ms)

        monkeypatch.setattr(first, "_until_work_waits", unanswered_twice)
        async with (await another(quick, QUICK)).controllers() as second:
            await until(lambda: "a" in second.controllers, "the second one keeps it")
            epoch = second.controllers["a"].epoch
            await append(lake, "a", 5)
            await come_to(lake, "a", 5)
            await until(lambda: len(waits) == 3, "the first one waits again")
            await asyncio.sleep(0.1)
            assert "a" not in first.controllers
            assert second.controllers["a"].epoch == epoch
            assert set(waits) == {QUICK.controller_takeover_ms}, "it has not taken it back, so it is as patient"
        await append(lake, "a", 9)
        await until(lambda: "a" in first.controllers, "the first one takes the role back")
        await come_to(lake, "a", 9)


async def test_a_collection_whose_look_ends_in_a_bug_stops_neither_looks_nor_the_others(
    lake: Lake, another: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(lake, "a", "b")
    await append(lake, "b", 5)
    register, failed = LakeContext.register, []

    def broken(context: LakeContext, name: str) -> Any:
        if name == "a" and len(failed) < 2:
            failed.append(name)
            raise RuntimeError("a bug")
        return register(context, name)

    second = await another()
    monkeypatch.setattr(LakeContext, "register", broken)
    async with second.controllers() as service:
        await come_to(lake, "b", 5)
        await until(lambda: set(service.controllers) == {"a", "b"}, "both are kept")
    assert failed == ["a", "a"]


async def test_the_same_failure_is_logged_once_and_tried_later_each_time(
    lake: Lake, another: Opened, store: StoreInHand, caplog: pytest.LogCaptureFixture
) -> None:
    await create(lake, "a", "b")
    whole = {key: (await store.get(key)).data for key in ("a/collection", "b/collection")}
    await append(lake, "b", 5)
    [pending] = [info.key async for info in store.list("b/1/pending_batches/")]
    data = (await store.get(pending)).data
    await store.put(pending, data[:-9] + b"damaged!!")
    await store.put("a/collection", b"damaged")
    clock = FastClock(pace_of(store))
    store.gets.clear()

    def said(name: str) -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        return [line for line in lines if line.startswith(f"{name}: its controller")]

    async with (await another(fast_runtime(clock=clock))).controllers() as service:
        await until(lambda: clock.now > 600, "ten minutes have passed")
        assert (len(said("a")), len(said("b"))) == (1, 1), caplog.text
        assert store.gets.count("a/collection") <= 10, "at 0, 5, 10, 20, ... seconds, and each 5 minutes in the end"
        await store.put("a/collection", b"damaged otherwise")
        await until(lambda: len(said("a")) == 2, "it is another failure now")
        await store.put("a/collection", whole["a/collection"])
        await until(lambda: "a" in service.controllers, "it is kept")
