"""Looks at the holds: which are read, which leases end, which are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.controller.sweep import Sweep
from slate_async.collections.core import sweep
from slate_async.errors import UnavailableError
from tests.support.collection_bytes import frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.kept import KeptLake
from tests.unit.collections.lake import FastClock


@pytest.fixture
def watch() -> str:
    """Puts of holds."""
    return "readers/"


async def test_a_hold_that_was_read_is_not_read_again(lake: KeptLake) -> None:
    await lake.hold("a", 3, 5)
    await lake.hold("b", None, 2)
    looks, head = Sweep(lake.keeping()), await lake.head()
    looked = await looks.look(head)
    assert looked.is_new
    assert (looked.allowed.meet, looked.allowed.oldest) == (frontier(2), 3)
    lake.store.gets.clear()
    again = await looks.look(head)
    assert not again.is_new
    assert again.standing == looked.standing
    assert lake.store.gets == []
    await lake.hold("a", 4, 5)
    assert (await looks.look(head)).allowed.oldest == 4
    assert lake.store.gets.count("readers/b/hold") == 0


async def test_a_lease_ends_by_the_own_clock_and_only_if_nothing_was_written(lake: KeptLake) -> None:
    """C19."""
    clock = FastClock()
    looks, head = Sweep(lake.keeping(clock=clock)), await lake.head()
    for name in ("silent", "alive"):
        await lake.hold(name, 1, 0, lease_ms=1000)
    await lake.hold("critical", None, 0)
    await looks.look(head)
    for _ in range(4):
        clock.now += 0.24
        await lake.hold("alive", 1, 0, lease_ms=1000)
        assert (await looks.look(head)).revoked == ()
    clock.now += 0.1
    looked = await looks.look(head)
    assert looked.revoked == ("silent",)
    assert set(looked.standing) == {"alive", "critical"}
    stored = await lake.holds().read("silent")
    assert stored is not None
    assert stored.hold.revoked
    await looks.look(head)
    assert await lake.holds().read("silent") is None


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_revocation_counts_once_it_was_answered(lake: KeptLake, fault: str) -> None:
    """C19."""
    clock = FastClock()
    looks, head = Sweep(lake.keeping(clock=clock)), await lake.head()
    await lake.hold("silent", 1, 0, lease_ms=1000)
    await looks.look(head)
    for _ in range(3):
        clock.now += 2
        await looks.look(head)
    clock.now += 2
    next_put(lake.store, fault)
    assert set((await looks.look(head)).standing) == {"silent"}
    next_put(lake.store, None)
    looked = await looks.look(head)
    assert set(looked.standing) == set()


async def test_a_critical_hold_that_was_revoked_is_left_to_who_revoked_it(lake: KeptLake) -> None:
    """Its name is used again: a late removal would hit the next one."""
    await lake.hold("billing", None, 3)
    stored = await lake.holds().read("billing")
    assert stored is not None
    await lake.holds().write("billing", sweep.revoking(stored.hold, "n" * 32), stored.etag)
    looks = Sweep(lake.keeping())
    assert (await looks.look(await lake.head())).standing == {}
    assert await lake.keys("readers/") == ["readers/billing/hold"]


async def test_all_holds_of_a_deleted_collection_are_removed(lake: KeptLake) -> None:
    await lake.hold("billing", None, 3)
    await lake.hold("reader", 1, 3)
    await Sweep(lake.keeping()).look(replace(await lake.head(), deleted=True))
    assert await lake.keys("readers/") == []


async def test_a_reader_that_retains_too_many_versions_is_revoked(lake: KeptLake) -> None:
    await lake.hold("old", 5, 0)
    await lake.hold("new", 15, 0)
    looked = await Sweep(lake.keeping(retained_versions=16)).look(replace(await lake.head(), version=30))
    assert looked.revoked == ("old",)


async def test_a_look_ends_though_new_holds_come_all_the_time(lake: KeptLake) -> None:
    context = lake.keeping()
    listed, number = context.holds.list, 0

    async def more() -> dict[str, str]:
        nonlocal number
        number += 1
        await lake.hold(f"r{number}", 1, 0)
        return await listed()

    context.holds.list = more  # type: ignore[method-assign]
    with pytest.raises(UnavailableError, match="new holds"):
        await Sweep(context).look(await lake.head())


async def test_a_damaged_hold_keeps_everything_and_no_lease_of_it_ends(lake: KeptLake) -> None:
    clock = FastClock()
    looks, head = Sweep(lake.keeping(clock=clock, retained_versions=16)), replace(await lake.head(), version=30)
    await lake.hold("a", 25, 5)
    await lake.hold("b", 25, 7)
    await lake.store.put("readers/b/hold", b"damaged")
    for _ in range(4):
        looked = await looks.look(head)
        assert (set(looked.damaged), looked.revoked) == ({"b"}, ())
        assert (looked.allowed.meet, looked.allowed.oldest) == (frontier(0), 0)
        clock.now += 5
    lake.store.gets.clear()
    await looks.look(head)
    assert lake.store.gets == ["readers/b/hold"], "it may have been mended; the other one is known"
