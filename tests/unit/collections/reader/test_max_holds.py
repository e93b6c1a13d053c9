"""`ReaderContext.max_holds`: every way to register a hold is refused beyond it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import slate_async as slate
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.critical import open_critical
from slate_async.collections.reader.handle import open_reader
from slate_async.collections.reader.lending import adopt_hold, share_hold
from slate_async.errors import InvalidError
from tests.unit.collections.reader.conftest import ReadLake

FULL = r"orders has 2 holds, and max_holds=2: expire readers"


@pytest.fixture
def context(lake: ReadLake) -> ReaderContext:
    """Of a collection that may have two holds."""
    return lake.reading(max_holds=2)


@pytest.mark.parametrize(
    "register",
    [open_reader, share_hold, lambda context: open_critical(context, "late")],
    ids=["reader", "shared hold", "critical hold"],
)
async def test_a_hold_beyond_it_is_refused(
    lake: ReadLake, context: ReaderContext, register: Callable[[ReaderContext], Awaitable[object]]
) -> None:
    async with await open_reader(context):
        pin = await open_critical(context, "billing")
        with pytest.raises(InvalidError, match=FULL) as raised:
            await register(context)
        assert raised.value.outcome == "not_applied"
        assert len(await lake.holds().list()) == 2
        await pin.refresh()
    async with await open_reader(context):
        """There is room again."""


async def test_clones_and_readers_of_a_critical_hold_are_refused(lake: ReadLake, context: ReaderContext) -> None:
    async with await open_reader(context) as reader:
        pin = await open_critical(context, "billing")
        with pytest.raises(InvalidError, match=FULL):
            await reader.clone()
        with pytest.raises(InvalidError, match=FULL):
            await pin.reader()
        assert len(await lake.holds().list()) == 2
        await reader.downgrade_since(3)


async def test_what_is_there_already_needs_no_room(context: ReaderContext) -> None:
    pin = await open_critical(context, "billing")
    shared, _ = await share_hold(context)
    assert (await open_critical(context, "billing")).since == pin.since
    await pin.expire()
    await open_critical(context, "billing")  # over the one that was given up
    adopted, _ = await adopt_hold(context, await shared.lend())
    await shared.leave()
    await adopted.expire()


async def test_a_lake_has_the_setting() -> None:
    settings = slate.CollectionSettings(max_holds=1)
    async with slate.open_collections("memory://room", settings=settings) as lake:
        await lake.create("orders")
        with pytest.raises(InvalidError, match="orders has 1 holds, and max_holds=1"):
            await lake.collection("orders").critical("billing")


async def test_critical_holds_that_were_given_up_take_no_room(lake: ReadLake, context: ReaderContext) -> None:
    for number in range(3):
        await (await open_critical(context, f"job-{number}")).expire()
    assert len(await lake.holds().list()) == 3
    async with await open_reader(context):
        await open_critical(context, "billing")
        with pytest.raises(InvalidError, match=FULL):
            await open_reader(context)
