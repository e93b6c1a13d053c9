"""Holds that one process keeps and others read under: `slate_async.collections.reader.lending` and `.split`."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import lending
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.filtering import ConditionLike
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.collections.core.lending import LentHold, adopted, stands_lent
from slate_async.collections.core.times import TIME_END
from slate_async.collections.reader.lending import SharedHold, TaskHold, adopt_hold, share_hold
from slate_async.collections.reader.split import LentVersion, SnapshotSplit, look_ahead, newest_time, split_snapshot
from slate_async.errors import ClosedError, ConfigError, CorruptionError, InvalidError, UnavailableError
from tests.engine import until
from tests.support.collection_bytes import COLLECTION, PAIRS, U64, frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.reader.conftest import Keeper, ReadLake, at, random_rows, revoke

ROWS = random_rows(random.Random(3), 40)
HOUR = 3_600_000


def between(lower: int, upper: int) -> list[tuple[bytes, int, int]]:
    return [row for row in ROWS if lower <= row[1] < upper]


@pytest.fixture
async def shared(lake: ReadLake) -> AsyncIterator[list[SharedHold]]:
    """Those to be left at the end."""
    made: list[SharedHold] = []
    yield made
    for hold in made:
        await hold.leave()


async def planned(
    lake: ReadLake, shared: list[SharedHold], as_of: int, count: int = 1, where: Sequence[ConditionLike] = ()
) -> list[SnapshotSplit]:
    """What a planner hands to its tasks, pickled on the way."""
    context = lake.reading(lease_ms=HOUR)
    hold, area = await share_hold(context)
    shared.append(hold)
    source = await look_ahead(context, await hold.lend(), COLLECTION, area)
    splits = await split_snapshot(context, source, (as_of,), where, count)
    return [pickle.loads(pickle.dumps(split)) for split in splits]


async def contents(lake: ReadLake, splits: Sequence[SnapshotSplit]) -> list[tuple[bytes, int]]:
    """What tasks read, each as a process of its own."""
    found = []
    for split in splits:
        async with split.open(lake.reading()) as snapshot:
            found += [row async for row in snapshot.rows()]
    return found


async def test_tasks_read_what_was_planned_whatever_happens_meanwhile(lake: ReadLake, shared: list[SharedHold]) -> None:
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 20), 0, 20)
    await keeper.round()
    await lake.put(between(20, 30), 20, 30)
    splits = await planned(lake, shared, 25, count=3)
    assert len(splits) == 2
    await lake.put(between(30, 40), 30, 40)
    for _ in range(3):
        await keeper.round()
        await lake.clock.sleep(600)
        assert await contents(lake, splits) == at(ROWS, 25)
    filtered = await planned(lake, shared, 39, where=[("data", ">=", b"4")])
    assert await contents(lake, filtered) == [row for row in at(ROWS, 39) if row[0] >= b"4"]


async def test_a_hold_that_nobody_keeps_lasts_its_lease_and_tasks_prolong_it(
    lake: ReadLake, shared: list[SharedHold]
) -> None:
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 20), 0, 20)
    splits = await planned(lake, shared, 19)
    await shared[0].leave()
    await lake.put(between(20, 30), 20, 30)
    borrowed = TaskHold(lake.reading(), splits[0].source.hold)
    for _ in range(4):
        await lake.clock.sleep(HOUR / 1000 * 0.9)
        await keeper.round()
        await borrowed.prolong()
    assert await contents(lake, splits) == at(ROWS, 19)
    for _ in range(5):
        await keeper.round()
        await lake.clock.sleep(HOUR / 1000 * 1.1)
    for _ in range(3):
        await keeper.round()
    with pytest.raises(LeaseLostError, match=r"the hold .* of orders, under which this is read, was revoked"):
        await contents(lake, splits)
    with pytest.raises(LeaseLostError):
        await borrowed.prolong()


async def test_what_is_read_of_a_chain_counts_only_under_a_hold_that_stands(
    lake: ReadLake, shared: list[SharedHold]
) -> None:
    """C14: every object was there."""
    writer = await lake.writer(Appends.COMPARE)
    await writer.append(between(0, 20), lower=0, upper=20)
    context = lake.reading(Appends.COMPARE, lease_ms=HOUR)
    hold, area = await share_hold(context)
    shared.append(hold)
    source = await look_ahead(context, await hold.lend(), COLLECTION, area)
    [split] = await split_snapshot(context, source, (19,), (), 1)
    assert [row async for row in split.open(context).rows()] == at(ROWS, 19)
    await hold.leave()
    await revoke(lake)
    with pytest.raises(LeaseLostError):
        _ = [row async for row in split.open(context).rows()]


async def test_an_object_missing_under_a_hold_that_stands_is_corruption(
    lake: ReadLake, shared: list[SharedHold]
) -> None:
    """C15."""
    await lake.put(between(0, 20), 0, 20)
    splits = await planned(lake, shared, 19)
    await lake.store.delete([listed.key async for listed in lake.pending().list()])
    with pytest.raises(CorruptionError, match=r"is missing, and the hold .* stands"):
        await contents(lake, splits)
    await lake.versions().commits.commit(Tombstone("d" * 32))
    with pytest.raises(ClosedError, match="was deleted"):
        await contents(lake, splits)


async def test_a_hold_is_renewed_again_when_a_right_that_was_missing_is_back(
    lake: ReadLake, shared: list[SharedHold]
) -> None:
    hold, _ = await share_hold(lake.reading(lease_ms=4_000))
    shared.append(hold)
    refused: list[str] = []

    def refuse(key: str) -> ConfigError:
        refused.append(key)
        return ConfigError("the credentials may not write", outcome="not_applied")

    lake.store.fail_before = refuse
    await until(lambda: len(refused) > 1, "writing is refused twice")
    lake.store.fail_before = lambda key: None
    before = (await lake.holds().list())[hold.reader]
    for _ in range(1_000):
        if (await lake.holds().list())[hold.reader] != before:
            return
        await asyncio.sleep(0)
    pytest.fail("it is renewed no more")


async def test_a_hold_is_adopted_and_its_keeper_before_evicted(lake: ReadLake, shared: list[SharedHold]) -> None:
    context = lake.reading(lease_ms=HOUR)
    first, area = await share_hold(context, "first")
    shared.append(first)
    lent = await first.lend()
    assert lent.version == area.version
    await first.move(since=frontier(3))
    second, head = await adopt_hold(context, lent, "second")
    shared.append(second)
    assert (second.reader, second.since, head) == (first.reader, frontier(3), area)
    with pytest.raises(LeaseLostError):
        await first.move(since=frontier(4))
    with pytest.raises(LeaseLostError):
        await first.lend()
    await TaskHold(context, lent).check_standing()
    await second.expire()
    with pytest.raises(LeaseLostError):
        await TaskHold(context, lent).check_standing()
    with pytest.raises(LeaseLostError):
        await adopt_hold(context, lent)


async def test_a_keeper_that_was_evicted_leaves_the_hold_to_the_one_that_adopted_it(
    lake: ReadLake, shared: list[SharedHold]
) -> None:
    context = lake.reading(lease_ms=HOUR)
    first, _ = await share_hold(context, "first")
    lent = await first.lend()
    second, _ = await adopt_hold(context, lent, "second")
    shared.append(second)
    await first.expire()
    await second.move(since=frontier(3))
    await TaskHold(context, lent).check_standing()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hold_is_given_up_whatever_becomes_of_the_request(lake: ReadLake, fault: str) -> None:
    hold, _ = await share_hold(lake.reading(lease_ms=HOUR))
    next_put(lake.store, fault)
    await hold.expire()
    assert await lake.holds().list() == {}


async def test_a_hold_is_not_adopted_while_it_is_given_up(lake: ReadLake, shared: list[SharedHold]) -> None:
    """The one whose write comes first has it."""
    context = lake.reading(lease_ms=HOUR)
    first, _ = await share_hold(context)
    lent = await first.lend()
    lake.store.hold = True
    expiring = asyncio.ensure_future(first.expire())
    async with asyncio.timeout(10):
        while not lake.store.held:  # noqa: ASYNC110 - a put that nothing tells of
            await asyncio.sleep(0)
    lake.store.hold = False
    second, _ = await adopt_hold(context, lent)
    shared.append(second)
    lake.store.release()
    await expiring
    await second.lend()


async def test_a_shared_hold_renews_itself(lake: ReadLake, shared: list[SharedHold]) -> None:
    hold, _ = await share_hold(lake.reading(lease_ms=HOUR))
    shared.append(hold)
    lent, keeper = await hold.lend(), await Keeper.claim(lake)
    beat = lent.beat
    for _ in range(8):
        await lake.clock.sleep(HOUR / 1000 / 2)
        async with asyncio.timeout(60):
            while (await hold.lend()).beat == beat:  # noqa: ASYNC110 - a write that nothing tells of
                await asyncio.sleep(0.001)
        beat = (await hold.lend()).beat
        await keeper.round()
    await TaskHold(lake.reading(), lent).check_standing()


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_a_registration_that_lands_late_is_not_taken_for_the_hold(
    lake: ReadLake, shared: list[SharedHold], attempts: int
) -> None:
    """C10: the hold was revoked and removed, and an attempt to register makes one of its name again."""
    lost = [UnavailableError("no answer", outcome="unknown") for _ in range(attempts - 1)]
    lake.store.fail_before = lambda key: lost.pop() if lost and key.startswith("readers/") else None
    context = lake.reading(lease_ms=HOUR)
    hold, area = await share_hold(context)
    shared.append(hold)
    lent = await hold.lend()
    await hold.leave()
    ghost = Hold(area.version, area.since, HOUR, "f" * 32, attempts)
    await lake.holds().remove([hold.reader])
    await lake.holds().write(hold.reader, ghost, None)
    with pytest.raises(LeaseLostError):
        await TaskHold(context, lent).check_standing()
    with pytest.raises(LeaseLostError):
        await adopt_hold(context, lent)


async def test_without_the_beat_a_late_registration_is_taken_for_the_hold(
    lake: ReadLake, shared: list[SharedHold], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule switched off: a version is read of which nothing is held any more."""
    context = lake.reading(lease_ms=HOUR)
    hold, area = await share_hold(context)
    shared.append(hold)
    lent = await hold.lend()
    await hold.leave()
    await lake.holds().remove([hold.reader])
    await lake.holds().write(hold.reader, Hold(area.version, area.since, HOUR, "f" * 32, 1), None)
    monkeypatch.setattr(lending, "_descends", lambda lent, hold: not hold.revoked)
    await TaskHold(context, lent).check_standing()


def test_which_hold_is_the_one_that_was_lent() -> None:
    lent = LentHold("r", 5, 8)
    hold = Hold(8, frontier(3), HOUR, "n" * 32, 5)
    for stored, stands in (
        (hold, True),
        (replace(hold, beat=9, version=7), True),
        (replace(hold, beat=4), False),
        (replace(hold, revoked=True), False),
        (replace(hold, version=9, beat=6), False),
        (replace(hold, version=None, lease_ms=None), False),
    ):
        assert stands_lent(lent, StoredHold(stored, "e")) is stands
    assert not stands_lent(lent, None)
    assert adopted(lent, None, HOUR, "") is None


@pytest.mark.parametrize(("upper", "newest"), [(frontier(0), None), (frontier(7), (6,)), (DONE, (TIME_END - 1,))])
def test_the_greatest_time_that_is_definite(upper: object, newest: object) -> None:
    source = LentVersion.of(COLLECTION, LentHold("r", 2, 0), Area.first(frontier(0)), (), upper)  # type: ignore[arg-type]
    assert newest_time(source, U64) == newest
    with pytest.raises(InvalidError, match="pairs"):
        newest_time(source, PAIRS)


async def test_times_that_cannot_be_read_are_refused(lake: ReadLake, shared: list[SharedHold]) -> None:
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 20), 0, 20)
    holder = await lake.reader()
    await holder.downgrade_since(10)
    for _ in range(3):
        await keeper.round()
    with pytest.raises(SinceError, match="as_of 3 is before since 10 of orders"):
        await planned(lake, shared, 3)
    with pytest.raises(UnavailableError, match="orders is definite up to 20, not at 20"):
        await planned(lake, shared, 20)
    with pytest.raises(InvalidError, match="no data column"):
        await planned(lake, shared, 19, where=[("total", ">", 5)])
