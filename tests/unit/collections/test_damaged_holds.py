"""A hold whose bytes are damaged: everything is kept until somebody expires it by its name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from slate_async.collections.collection import Collection
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import ConflictError, CorruptionError, SlateError
from slate_async.objectstore.local import LocalStore
from slate_async.settings.collections import CollectionSettings
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime, pace_of

SETTINGS = CollectionSettings(version_keep_ms=0)
Damage = Callable[[], Awaitable[None]]
PIN = "orders/1/readers/pin/hold"


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    opened = await open_collections(
        store, name="memory://lake", settings=SETTINGS, controller=False, runtime=fast_runtime(pace_of(store))
    )
    yield opened
    with suppress(SlateError):
        await opened.close()


@pytest.fixture
async def orders(lake: Lake) -> Collection:
    """A collection with a critical hold at time 0, in which two rows are merged and one is pending."""
    await (await lake.create("orders")).expire()
    orders = lake.collection("orders")
    await orders.critical("pin")
    await append(orders, 2)
    async with orders.controller(background=False) as controller:
        await controller.settle()
    await append(orders, 3)
    return orders


@pytest.fixture
def damage(store: StoreInHand, tmp_path: Path) -> Damage:
    """Damages the hold: in a folder so that the store itself cannot read the file."""

    async def done() -> None:
        if isinstance(store.inner, LocalStore):
            cut_off(tmp_path)
        else:
            await store.put(PIN, b"damaged")

    return done


def cut_off(folder: Path) -> None:
    [file] = folder.rglob(f"{PIN}*")
    file.write_bytes(file.read_bytes()[:20])


async def append(orders: Collection, upper: int) -> None:
    async with orders.writer() as writer:
        first = writer.upper.elements[0][0]
        await writer.append([(b"tea", time, 1) for time in range(first, upper)], upper=upper)


async def stored(store: StoreInHand) -> list[str]:
    """Merged batches and versions, which garbage collection deletes."""
    return [info.key async for info in store.list("orders/1/merged")]


async def test_what_is_appended_is_absorbed_and_nothing_is_given_up(
    orders: Collection, store: StoreInHand, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    await damage()
    before = await stored(store)
    with caplog.at_level(logging.ERROR, "slate_async.collections"):
        async with orders.controller(background=False) as controller:
            for _ in range(3):
                report = await controller.settle()
    assert (str(report.upper), str(report.since), report.held_back.since_by) == ("3", "0", ("pin",))
    assert set(before) <= set(await stored(store)), "nothing was collected"
    said = [record.getMessage() for record in caplog.records if "pin" in record.getMessage()]
    assert len(said) == 1, "once"
    assert PIN in said[0]
    assert "expire_reader('pin')" in said[0]


async def test_it_is_shown_and_readers_go_on(orders: Collection, damage: Damage) -> None:
    await damage()
    shown = await orders.inspect()
    [hold] = shown.holds
    assert (hold.reader, hold.holds_since, hold.holds_floor, hold.version) == ("pin", True, True, None)
    assert "expire_reader('pin')" in hold.damage
    assert not shown.garbage.known
    async with orders.reader() as reader:
        assert (await (await reader.snapshot(2)).to_arrow()).num_rows == 1
    [finding] = (await orders.verify()).findings
    assert (finding.object_name, "expire_reader('pin')" in finding.what) == ("readers/pin/hold", True)


async def test_its_owner_is_told_what_to_do(orders: Collection, damage: Damage) -> None:
    pin = await orders.critical("pin")
    await damage()
    for call in (orders.critical("pin"), pin.compare_and_downgrade("", "t", 2), pin.refresh()):
        with pytest.raises(CorruptionError, match=r"expire_reader\('pin'\)"):
            await call


async def test_after_it_was_expired_everything_goes_on(orders: Collection, store: StoreInHand, damage: Damage) -> None:
    pin = await orders.critical("pin")
    await damage()
    await orders.expire_reader("pin")
    with pytest.raises(LeaseLostError):
        await pin.refresh()
    before = await stored(store)
    async with orders.controller(background=False) as controller:
        report = await controller.settle()
    assert report.held_back.since_by == ()
    assert not set(before) <= set(await stored(store)), "garbage was collected"
    assert (await orders.verify()).clean
    again = await orders.critical("pin")
    await again.compare_and_downgrade(again.token, "t", 2)


async def test_the_collection_can_be_deleted(
    lake: Lake, orders: Collection, store: StoreInHand, damage: Damage
) -> None:
    await damage()
    with pytest.raises(ConflictError, match=r"pin \(damaged\)"):
        await lake.delete("orders")
    await lake.delete("orders", force=True)
    assert [info.key async for info in store.list("orders/1/readers")] == []
