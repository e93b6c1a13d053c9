"""Critical holds: `slate_async.collections.reader.critical` over real stores."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError, SinceError, TokenMismatchError
from slate_async.collections.core.holding import Hold
from slate_async.collections.reader.critical import CriticalHandle, open_critical
from slate_async.errors import ClosedError, InvalidError
from tests.engine import settle, until
from tests.support.collection_bytes import frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.reader.conftest import Keeper, ReadLake, at, random_rows, read, revoke

ROWS = random_rows(random.Random(3), 40)


async def critical(lake: ReadLake, name: str = "billing") -> CriticalHandle:
    """As one more process opens it."""
    return await open_critical(lake.reading(), name, "bills")


async def test_it_stands_whatever_becomes_of_its_processes(lake: ReadLake) -> None:
    await lake.put(ROWS, 0, 40)
    pin, keeper = await critical(lake), await Keeper.claim(lake)
    assert (pin.since, pin.token) == (frontier(0), "")
    await pin.compare_and_downgrade("", "day 1", 12)
    assert (pin.since, pin.token) == (frontier(12), "day 1")
    for _ in range(5):
        lake.clock.now += 10**6
        await keeper.round()
    assert (await keeper.versions.load()).since == frontier(12)
    again = await critical(lake)
    assert (again.since, again.token) == (frontier(12), "day 1")
    async with await again.reader() as reader:
        assert reader.since == frontier(12)
        assert await read(reader, 12) == at(ROWS, 12)
        with pytest.raises(SinceError):
            await reader.snapshot(11)


async def test_one_of_two_processes_goes_on(lake: ReadLake) -> None:
    first, second = await critical(lake), await critical(lake)
    await first.compare_and_downgrade("", "day 1", 12)
    with pytest.raises(TokenMismatchError, match="has the token 'day 1' and since 12, not ''") as raised:
        await second.compare_and_downgrade("", "other", 20)
    assert (raised.value.token, raised.value.since) == ("day 1", frontier(12))
    assert second.token == ""
    await second.refresh()
    await second.compare_and_downgrade(second.token, "day 2", 3)
    assert (second.token, second.since) == ("day 2", frontier(12))


async def test_processes_that_open_it_at_once_have_one_hold(lake: ReadLake) -> None:
    """C10, C11."""
    await lake.put(ROWS, 0, 40)
    other, keeper = await lake.reader(), await Keeper.claim(lake)
    await other.downgrade_since(9)
    opening = [asyncio.ensure_future(critical(lake)) for _ in range(3)]
    for _ in range(3):
        await settle(3)
        await keeper.round()
    opened = await asyncio.gather(*opening)
    assert {pin.since for pin in opened} == {opened[0].since}
    head = await keeper.versions.load()
    assert head.since <= opened[0].since
    async with await opened[1].reader() as reader:
        assert await read(reader, 20) == at(ROWS, 20)


async def test_a_process_that_dies_while_it_opens_leaves_it_to_the_next(lake: ReadLake) -> None:
    """C11: what was never registered follows the head first."""
    await lake.put(ROWS, 0, 40)
    keeper = await Keeper.claim(lake)
    other = await lake.reader()
    await other.downgrade_since(9)
    for _ in range(4):
        await keeper.round()
    assert (await keeper.versions.load()).since == frontier(9)
    await lake.holds().write("billing", Hold(None, frontier(0), None, "n" * 32, 1), None)
    pin = await critical(lake)
    assert pin.since == frontier(9)
    assert (await lake.holds().read("billing")).hold.note == ""  # type: ignore[union-attr]


async def test_what_was_given_up_keeps_nothing_and_its_name_can_be_taken_again(lake: ReadLake) -> None:
    await lake.put(ROWS, 0, 40)
    pin, keeper = await critical(lake), await Keeper.claim(lake)
    await pin.expire()
    await pin.expire()
    for call in (pin.refresh(), pin.reader(), pin.compare_and_downgrade("", "x", 3)):
        with pytest.raises(LeaseLostError, match="the critical hold billing was given up"):
            await call
    other = await lake.reader()
    await other.downgrade_since(20)
    for _ in range(4):
        await keeper.round()
    assert (await keeper.versions.load()).since == frontier(20)
    again = await critical(lake)
    assert (again.since, again.token) == (frontier(20), "")
    await revoke(lake)  # as an operator does
    with pytest.raises(LeaseLostError):
        await again.refresh()


async def test_a_reader_under_it_follows_a_downgrade_that_came_between(lake: ReadLake) -> None:
    """C12."""
    await lake.put(ROWS, 0, 40)
    pin, rival, keeper = await critical(lake), await critical(lake), await Keeper.claim(lake)
    await keeper.round()
    lake.store.hold = True
    opening = asyncio.ensure_future(pin.reader())
    await until(lambda: lake.store.held, "a put of a hold")
    lake.store.hold = False
    await rival.compare_and_downgrade("", "day 1", 15)
    for _ in range(3):
        await keeper.round()
    lake.store.release()
    async with await opening as reader:
        assert reader.since == frontier(15)
        assert await read(reader, 17) == at(ROWS, 17)


async def test_a_reader_under_one_that_is_given_up_meanwhile_is_refused(lake: ReadLake) -> None:
    """C12."""
    pin = await critical(lake)
    lake.store.hold = True
    opening = asyncio.ensure_future(pin.reader())
    await until(lambda: lake.store.held, "a put of a hold")
    lake.store.hold = False
    await (await critical(lake)).expire()
    lake.store.release()
    with pytest.raises(LeaseLostError, match="the critical hold billing was given up"):
        await opening


async def test_since_is_the_meet_of_leased_and_critical_holds(lake: ReadLake) -> None:
    """A downgrade of one kind waits for those of the other."""
    await lake.put(ROWS, 0, 40)
    pin, leased, keeper = await critical(lake), await lake.reader(), await Keeper.claim(lake)
    steps = [(leased, 10, 0), (pin, 6, 6), (pin, 14, 10), (leased, 20, 14), (pin, 18, 18)]
    for handle, since, expected in steps:
        if isinstance(handle, CriticalHandle):
            await handle.compare_and_downgrade(handle.token, f"at {since}", since)
        else:
            await handle.downgrade_since(since)
        for _ in range(4):
            await keeper.round()
            await lake.clock.sleep(1)
            await settle(60)
        assert (await keeper.versions.load()).since == frontier(expected)
    assert await read(leased, 25) == at(ROWS, 25)
    await leased.expire()
    assert (await keeper.round()).since == frontier(18)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_put_that_is_not_answered_is_resolved(lake: ReadLake, fault: str) -> None:
    """C10."""
    next_put(lake.store, fault)
    pin = await critical(lake)
    next_put(lake.store, fault)
    await pin.compare_and_downgrade("", "day 1", 3)
    stored = await lake.holds().read("billing")
    assert stored is not None
    assert (stored.hold.token, stored.hold.since) == ("day 1", frontier(3))
    next_put(lake.store, fault)
    await pin.expire()
    assert (await lake.holds().read("billing")).hold.revoked  # type: ignore[union-attr]


async def test_names_and_collections_that_it_cannot_be_of_are_refused(lake: ReadLake) -> None:
    reader = await lake.reader()
    with pytest.raises(InvalidError, match="is the hold of a reader with a lease"):
        await critical(lake, reader._hold.handle.reader)
    with pytest.raises(InvalidError, match="Billing"):
        await critical(lake, "Billing")
    pin = await critical(lake)
    versions = lake.versions()
    await versions.load()
    await versions.commits.commit(Tombstone("x" * 32))
    with pytest.raises(ClosedError, match="was deleted"):
        await critical(lake, "other")
    with pytest.raises(ClosedError, match="was deleted"):
        await pin.reader()


async def test_a_compare_collection_is_read_under_it(lake: ReadLake) -> None:
    """C14: by the leased hold, whose reads it covers."""
    writer = await lake.writer(Appends.COMPARE)
    await writer.append(ROWS, upper=40)
    pin = await open_critical(lake.reading(Appends.COMPARE), "billing")
    async with await pin.reader("job") as reader:
        assert await read(reader, 30) == at(ROWS, 30)
        async for delta in reader.listen(start=0):
            assert delta.upper == frontier(40)
            break
    assert replace((await lake.holds().read("billing")).hold, nonce="").since == frontier(0)  # type: ignore[union-attr]
