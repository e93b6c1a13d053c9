"""`slate_async.collections.controller.standby`: who writes becomes the controller when its appends wait for one."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from slate_async.collections.controller.standby import MOST_PATIENCE, StandbyController
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import ClosedError, SlateError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import SystemIds
from slate_async.settings.collections import CollectionSettings
from tests.engine import InlineOffload, StoreInHand, memory_store, settle, until
from tests.unit.collections.lake import QuickClock

SETTINGS = CollectionSettings(controller_takeover_ms=10_000, poll_interval_ms=500)


class Process:
    """One process."""

    clock = QuickClock(speed=100, longest_s=2)

    def __init__(self, store: StoreInHand, **options: Any) -> None:
        runtime = Runtime(self.clock, random.Random(3), SystemIds(), InlineOffload(), InlineOffload())
        self._opening = open_collections(store, name="memory://lake", settings=SETTINGS, runtime=runtime, **options)
        self.lake: Lake

    async def __aenter__(self) -> Process:
        self.lake = await self._opening
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(SlateError):
            await self.lake.close()

    async def head(self) -> Any:
        """The newest version."""
        async with self.lake.collection("orders")._stores() as stores:
            return await stores.versions.load()

    def standbys(self) -> list[StandbyController]:
        """Those that watch."""
        assert self.lake._standbys is not None
        return [standby for standby, _ in self.lake._standbys._users.values()]


class SilentStore:
    """Answers nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError("no answer")

    put = delete = head = get

    async def list(self, *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError("no answer")
        yield


@pytest.fixture
async def store() -> StoreInHand:
    made = StoreInHand(memory_store(), watch="")
    async with Process(made, controller=False) as process:
        await (await process.lake.create("orders")).expire()
    return made


async def epoch(process: Process) -> int:
    """Of the newest version."""
    found: int = (await process.head()).epoch
    return found


async def waited(process: Process, seconds: float) -> None:
    """Let ``process`` live for some time."""
    await process.clock.sleep(seconds)


async def absorbed(process: Process, upper: int) -> None:
    """Until a controller has taken it in."""
    async with asyncio.timeout(20):
        while (await process.head()).upper.elements[0][0] < upper:
            await process.clock.sleep(0.1)


async def test_it_claims_the_role_when_work_has_waited_and_not_sooner(store: StoreInHand) -> None:
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a") as writer:
        await settle()
        began = process.clock.monotonic()
        await writer.append([(b"a", 3, 1)], upper=5)
        while await epoch(process) == 0:
            await process.clock.sleep(0.1)
        assert process.clock.monotonic() - began >= 10
        await absorbed(process, 5)
        assert await epoch(process) == 1
    assert process.standbys() == []


async def test_what_another_process_left_waits_too(store: StoreInHand) -> None:
    async with Process(store, controller=False) as dead:
        async with dead.lake.collection("orders").writer("relay-a") as writer:
            await writer.append([(b"a", 3, 1)], upper=5)
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a"):
        await absorbed(process, 5)


async def test_a_process_that_is_not_to_be_one_claims_nothing(store: StoreInHand) -> None:
    async with Process(store, controller=False) as process:
        async with process.lake.collection("orders").writer("relay-a") as writer:
            await writer.append([(b"a", 3, 1)], upper=5)
            await waited(process, 60)
        assert await epoch(process) == 0


async def test_it_leaves_the_role_to_a_controller_that_works(store: StoreInHand) -> None:
    async with Process(store) as process, Process(store) as other:
        async with other.lake.collection("orders").controller(), process.lake.collection("orders").writer() as writer:
            for upper in range(1, 40):
                await writer.append([], upper=upper)
                await waited(process, 2)
        assert await epoch(process) == 1


async def test_nothing_is_asked_of_the_store_while_nothing_waits(store: StoreInHand) -> None:
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a") as writer:
        await writer.append([], upper=5)
        async with process.lake.collection("orders").controller(background=False) as controller:
            await controller.round()
            await settle()
            asked = len(store.gets)
            await waited(process, 100)
            assert len(store.gets) == asked


async def test_one_that_is_fenced_has_more_patience_the_next_time(store: StoreInHand) -> None:
    async with Process(store) as process, Process(store) as other:
        async with process.lake.collection("orders").writer("relay-a") as writer:
            [standby] = process.standbys()
            for times in range(1, 4):
                await writer.append([], upper=10 * times)
                await until(lambda: standby.is_serving, "it has the role")
                await absorbed(process, 10 * times)
                async with other.lake.collection("orders").controller(background=False):
                    await writer.append([], upper=10 * times + 5)
                    await until(lambda: not standby.is_serving, "it was fenced")
                assert standby._patience == min(2**times, MOST_PATIENCE)


async def test_several_writers_of_a_process_share_one(store: StoreInHand) -> None:
    async with Process(store) as process:
        collection = process.lake.collection("orders")
        first, second = await collection.writer("a"), await collection.writer("b")
        [standby] = process.standbys()
        await first.close()
        assert process.standbys() == [standby]
        await second.append([], upper=5)
        await absorbed(process, 5)
        assert standby.is_serving
        await second.close()
        assert process.standbys() == []
        assert not standby.is_serving


async def test_a_store_that_answers_nobody_is_no_reason(store: StoreInHand) -> None:
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a") as writer:
        await writer.append([], upper=5)

        silent = SilentStore(store.inner)
        store.inner = silent
        await waited(process, 60)
        [standby] = process.standbys()
        assert not standby.is_serving
        store.inner = silent.inner
        assert await epoch(process) == 0
        await absorbed(process, 5)


async def ends(process: Process) -> None:
    """Wait until the one that watches has ended."""
    [standby] = process.standbys()
    await until(lambda: standby._supervisor.names == [], "it has ended")
    assert not standby.is_serving


async def test_it_ends_with_the_collection(store: StoreInHand) -> None:
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a") as writer:
        await process.lake.delete("orders", force=True)
        with pytest.raises(ClosedError):
            await writer.append([], upper=5)
        await ends(process)


async def test_it_ends_with_a_collection_that_another_process_deletes(store: StoreInHand) -> None:
    async with Process(store) as process, process.lake.collection("orders").writer("relay-a") as writer:
        async with Process(store) as other:
            await other.lake.delete("orders", force=True)
        with suppress(ClosedError):  # it may have noticed
            await writer.append([], upper=5)
        await ends(process)
