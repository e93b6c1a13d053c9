"""What a rule of the controller is for: short histories that go wrong without it. Each says what is wrong, or nothing.

A look at holds of which any has changed takes two listings at least."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.core.holding import Hold
from slate_async.collections.core.names import MergedName
from slate_async.collections.reader.handle import open_reader
from slate_async.collections.store.conditional import Written
from slate_async.collections.store.holds import HoldStore
from slate_async.errors import UnavailableError
from tests.support.collection_bytes import U64, frontier
from tests.unit.collections.kept import KeptLake, at
from tests.unit.collections.lake import FastClock

ROWS = [(b"%d" % (time % 3), time, 1) for time in range(20)]
Step = Callable[[], Awaitable[None]]


class HeldHolds(HoldStore):
    """Holds of one process. ``listed``: runs after each listing; ``writing``: before each write"""

    def __init__(self, lake: KeptLake) -> None:
        super().__init__(lake.store, U64)
        self.listed: list[Step] = []
        self.writing: list[Step] = []

    async def list(self) -> dict[str, str]:
        found = await super().list()
        if self.listed:
            await self.listed.pop(0)()
        return found

    async def write(self, reader: str, hold: Hold, etag: str | None) -> Written:
        if self.writing:
            await self.writing.pop(0)()
        return await super().write(reader, hold, etag)


async def nothing() -> None:
    """Happens between two listings."""


async def opened(lake: KeptLake, **knobs: Any) -> tuple[Controller, HeldHolds]:
    """A controller whose looks at the holds are in the test's hands."""
    holds = HeldHolds(lake)
    controller = await open_controller(replace(lake.keeping(**knobs), holds=holds), background=False)
    lake.controllers.append(controller)
    return controller, holds


async def since_goes_up_in_two_phases(lake: KeptLake) -> str | None:
    """A reader registers between the listing of the holds and what is made of it."""
    controller, holds = await opened(lake)
    await lake.put(ROWS, 0, 20)
    await lake.hold("pin", None, 5)
    await controller.settle()
    await lake.hold("pin", None, 20)
    reader = None

    async def register() -> None:
        nonlocal reader
        reader = await open_reader(lake.reading(deadline_ms=10**9, lease_ms=10**12))

    holds.listed += [nothing, register]
    await controller.round()
    await controller.merge(everything=True)
    assert reader is not None
    since, head = reader.since, await lake.head()
    await reader.expire()
    return None if head.since <= since else f"compacted to {head.since}, and {since} is held"


async def deletion_goes_up_in_two_phases(lake: KeptLake) -> str | None:
    """A reader that read the head before a commit puts its hold after the holds were listed."""
    controller, holds = await opened(lake)
    await lake.put(ROWS[:5], 0, 5)
    await controller.round()
    await lake.hold("other", (await lake.head()).version, 0)
    slow, may_write, waits = HeldHolds(lake), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waits.set()
        await may_write.wait()

    slow.writing.append(wait)
    opening = asyncio.ensure_future(open_reader(replace(lake.reading(deadline_ms=10**9, lease_ms=10**12), holds=slow)))
    await waits.wait()
    held = await lake.head()
    await lake.put(ROWS[5:], 5, 20)
    await controller.round()
    await controller.merge(everything=True)
    await lake.holds().remove(["other"])

    async def register() -> None:
        may_write.set()
        await opening

    holds.listed += [nothing, register]
    await controller.round()
    reader = await opening
    stands = {stored.hold.version for stored in (await lake.holds().read_all(await lake.holds().list())).values()}
    missing = {*held.names(), f"merged_areas/v{held.version:020}"} - set(await lake.keys())
    await reader.expire()
    return f"{missing} are missing" if held.version in stands and missing else None


async def clones_are_found(lake: KeptLake) -> str | None:
    """A clone is made after a listing, and its source is given up before it is read. Twice."""
    controller, holds = await opened(lake)
    await lake.put(ROWS[:5], 0, 5)
    await controller.round()
    held = await lake.head()
    await lake.hold("clone-0", held.version, 0)
    await controller.round()
    for number in range(2):

        async def clone(number: int = number) -> None:
            await lake.hold(f"clone-{number + 1}", held.version, 0)
            await lake.holds().remove([f"clone-{number}"])

        holds.listed.append(clone)
        await lake.put(ROWS[: 6 + number], 0, 6 + number, "bc"[number])
        await lake.hold(f"clone-{number}", held.version, 0)  # it renews itself
        await controller.round()
    missing = {*held.names(), f"merged_areas/v{held.version:020}"} - set(await lake.keys())
    return f"{missing} are missing" if missing else None


async def a_revocation_without_an_answer_is_none(lake: KeptLake) -> str | None:
    """An expired lease whose revocation never comes to the store."""
    clock = FastClock()
    controller, holds = await opened(lake, clock=clock)
    await lake.put(ROWS, 0, 20)
    await controller.round()
    await lake.hold("reader", (await lake.head()).version, 0, lease_ms=1000)
    await lake.hold("pin", None, 20)

    async def lose() -> None:
        raise UnavailableError("no answer", outcome="unknown")

    for _ in range(8):
        await controller.round()
        clock.now += 2
        holds.writing.append(lose)
    await controller.merge(everything=True)
    stored, head = await lake.holds().read("reader"), await lake.head()
    assert stored is not None
    assert not stored.hold.revoked
    return None if head.since <= stored.hold.since else f"compacted to {head.since}, and {stored.hold.since} is held"


async def an_outage_ends_no_lease(lake: KeptLake) -> str | None:
    """The store answers nobody for longer than a lease; then the controller is the first that it answers."""
    clock = FastClock()
    controller, holds = await opened(lake, clock=clock)
    await lake.hold("reader", 0, 0, lease_ms=10_000)
    await controller.round()
    clock.now += 4

    async def lose() -> None:
        raise UnavailableError("no answer", outcome="unknown")

    began = clock.now
    holds.listed += [lose] * 40
    await controller.round()
    assert clock.now - began > 10
    for _ in range(8):  # the reader hears of it before it is over
        clock.now += 0.3
        await controller.round()
    stored = await lake.holds().read("reader")
    return None if stored is not None and not stored.hold.revoked else "a reader that waited for the store is revoked"


async def a_commit_without_an_answer_may_take_effect(lake: KeptLake) -> str | None:
    """A merge whose commit is answered by nobody, and lands after garbage was collected."""
    controller, _ = await opened(lake)
    for lower in range(0, 20, 5):
        await lake.put(ROWS[lower : lower + 5], lower, lower + 5)
        await controller.round()
    late: list[Callable[[], Awaitable[Any]]] = []
    inner, put = lake.store.inner, lake.store.inner.put

    async def lose(key: str, data: Any, **options: Any) -> str:
        if not key.startswith("merged_areas/"):
            return await put(key, data, **options)
        late.append(lambda: put(key, data, **options))
        raise UnavailableError("no answer", outcome="unknown")

    inner.put = lose  # type: ignore[method-assign]
    try:
        await controller.merge(everything=True)
        raise AssertionError("the commit was answered")
    except UnavailableError:
        inner.put = put  # type: ignore[method-assign]
    report = await controller.round(dry_run=True)
    assert report.collected is not None
    await lake.store.delete([found.key for found in report.collected.garbage])
    await late[0]()
    missing = set((await lake.head()).names()) - set(await lake.keys())
    return f"{missing} are missing" if missing else None


async def later_epochs_are_left_alone(lake: KeptLake) -> str | None:
    """A controller that sleeps, and wakes up to collect, after another one has put a file."""
    controller, _ = await opened(lake)
    await lake.put(ROWS, 0, 20)
    file = str(MergedName(frontier(0), frontier(20), controller.epoch + 1, "a" * 32))
    await lake.store.put(file, b"x")
    await controller.round()
    return None if file in await lake.keys() else "the file of a later epoch is missing"


async def what_is_told_by_a_chain(lake: KeptLake) -> str | None:
    """A compare batch that was collected is put again, by a process that slept, under its name."""
    controller = await lake.controller(Appends.COMPARE)
    await lake.put(ROWS[:5], 0, 5, appends=Appends.COMPARE)
    await lake.put(ROWS[5:], 5, 20, appends=Appends.COMPARE)
    keys = await lake.keys("pending_batches/")
    zombie = (await lake.store.get(keys[0])).data
    await controller.settle()
    await lake.store.put(keys[0], zombie)
    await controller.settle()
    if await lake.keys("pending_batches/"):
        return "a dead batch is left"
    return None if at(await lake.merged(), 20) == at(ROWS, 20) else "a dead batch was taken"
