"""One round of a controller: what it absorbs, publishes and deletes, and what holds it back."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.sweep import Looked, Sweep
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.garbage import Why
from slate_async.collections.core.names import MergedName, PendingName
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.errors import ClosedError, CorruptionError, FencedError
from tests.support.collection_bytes import TOKEN, byte_updates, frontier, put_batch
from tests.unit.collections.kept import KeptLake, at

ROWS = [(b"a", 0, 1), (b"b", 3, 2), (b"a", 5, -1), (b"c", 9, 1)]


async def append(lake: KeptLake, appends: Appends, *cuts: int) -> None:
    """All of ``ROWS`` in batches from cut to cut."""
    for lower, upper in itertools.pairwise(cuts):
        await lake.put([row for row in ROWS if lower <= row[1] < upper], lower, upper, appends=appends)


@pytest.mark.parametrize("appends", list(Appends))
async def test_all_that_is_pending_becomes_one_batch(lake: KeptLake, appends: Appends) -> None:
    await append(lake, appends, 0, 2, 4, 6, 7, 10)
    controller = await lake.controller(appends)
    report = await controller.round()
    head = await lake.head()
    assert (report.appends, report.rows, report.upper) == (5, 4, frontier(10))
    assert len(head.batches) == 1
    assert sorted(await lake.merged()) == sorted(ROWS)
    batch = head.batches[0]
    assert (batch.rows, batch.keys, batch.times, batch.diff_sum) == (4, 3, 4, 3)
    assert batch.bounds.since == frontier(0)


async def test_the_last_batch_of_a_chain_is_named(lake: KeptLake) -> None:
    """C8: by it an append knows that it is in."""
    await append(lake, Appends.COMPARE, 0, 2, 4)
    last = await lake.last_of(frontier(0), frontier(4))
    controller = await lake.controller(Appends.COMPARE)
    await controller.round()
    assert (await lake.head()).last == last


async def test_nothing_is_taken_across_a_gap_and_nothing_twice(lake: KeptLake) -> None:
    """C4."""
    await lake.put(ROWS[:2], 0, 4, "a")
    await lake.put([row for row in ROWS if row[1] < 6], 0, 6, "b")
    await lake.put(ROWS[3:], 0, 10, "c")
    await lake.store.delete(await lake.keys("pending_batches/c/"))
    controller = await lake.controller()
    assert (await controller.round()).upper == frontier(6)
    assert sorted(await lake.merged()) == sorted(ROWS[:3])
    await lake.put(ROWS, 0, 10, "d")
    report = await controller.round()
    assert (report.appends, report.rows, report.upper) == (1, 1, frontier(10))
    assert sorted(await lake.merged()) == sorted(ROWS)


@pytest.mark.parametrize("appends", list(Appends))
async def test_progress_without_updates_is_a_batch_without_an_object(lake: KeptLake, appends: Appends) -> None:
    await lake.put([], 0, 7, appends=appends)
    controller = await lake.controller(appends)
    report = await controller.round()
    assert (report.rows, report.upper) == (0, frontier(7))
    assert await lake.keys("merged_batches/") == []


@pytest.mark.parametrize("appends", list(Appends))
async def test_at_rest_the_store_holds_what_is_reachable(lake: KeptLake, appends: Appends) -> None:
    """P9."""
    await append(lake, appends, 0, 2, 4)
    controller = await lake.controller(appends)
    await controller.round()
    await append(lake, appends, 4, 6, 10)
    if appends is Appends.DEFINITE:
        await lake.put(ROWS, 0, 10, writer="z")
    await controller.settle()
    head = await lake.head()
    assert await lake.keys("pending_batches/") == []
    assert await lake.keys("merged_batches/") == list(head.names())
    assert [key for key in await lake.keys("merged_areas/") if "boundary" not in key] == [
        f"merged_areas/v{head.version:020}"
    ]
    assert len(head.batches) == 1
    assert not (await controller.round()).changed


async def test_a_closed_collection_is_compacted_as_its_readers_move_on(lake: KeptLake) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    await writer.append(ROWS, upper=DONE)
    controller = await lake.controller()
    for since, times in ((4, 3), (9, 1), (20, 1)):  # b"a" at 0 and 5, b"b" at 3, b"c" at 9
        await lake.hold("pin", None, since)
        await controller.settle()
        [batch] = (await lake.head()).batches
        assert (batch.bounds.upper, batch.times) == (DONE, times)
        assert at(await lake.merged(), 30) == at(ROWS, 30)
    assert not (await controller.settle()).changed


async def test_compaction_follows_the_holds_one_version_behind(lake: KeptLake) -> None:
    """C16."""
    await append(lake, Appends.DEFINITE, 0, 10)
    controller = await lake.controller()
    await lake.hold("pin", None, 6)
    await controller.round()
    assert (await lake.head()).bound == frontier(6)
    assert (await lake.head()).since == frontier(0)
    await controller.settle()
    await lake.hold("late", None, 2)
    await controller.settle()
    assert (await lake.head()).since == frontier(0)  # the batch is rewritten once since is a step behind it
    await lake.hold("late", None, 8)
    await lake.hold("pin", None, 12)
    await controller.settle()
    assert (await lake.head()).since == frontier(0)
    await lake.hold("late", None, 12)
    await controller.settle()
    assert (await lake.head()).since == frontier(12)
    assert sorted(await lake.merged()) == at(ROWS, 12)


async def test_without_holds_since_stays(lake: KeptLake) -> None:
    """C29."""
    await append(lake, Appends.DEFINITE, 0, 10)
    controller = await lake.controller()
    await controller.settle()
    assert (await lake.head()).since == frontier(0)


async def test_a_leased_hold_keeps_its_version_and_what_that_reads(lake: KeptLake) -> None:
    """C17 and C25."""
    await append(lake, Appends.DEFINITE, 0, 2)
    controller = await lake.controller()
    held = await controller.round()
    await lake.hold("reader", held.version, 0)
    kept = [*await lake.keys("merged_batches/"), f"merged_areas/v{held.version:020}"]
    await lake.put(ROWS[1:2], 2, 4)
    report = await controller.settle()
    assert report.held_back.floor_by == ("reader",)
    assert report.held_back.since_by == ("reader",)
    assert report.held_back.pending == 1
    assert set(kept) < set(await lake.keys())
    assert len(await lake.keys("pending_batches/")) == 1
    await lake.holds().remove(["reader"])
    await controller.settle()
    assert not set(kept) & set(await lake.keys())
    assert await lake.keys("pending_batches/") == []


async def test_a_critical_hold_keeps_no_version(lake: KeptLake) -> None:
    """C29."""
    await lake.hold("billing", None, 0)
    await append(lake, Appends.DEFINITE, 0, 2, 10)
    controller = await lake.controller()
    report = await controller.settle()
    assert (report.held_back.floor_by, report.held_back.since_by) == ((), ("billing",))
    assert report.held_back.versions == 0


async def test_a_later_controller_fences_an_earlier_one(lake: KeptLake) -> None:
    """C20."""
    first = await lake.controller()
    await append(lake, Appends.DEFINITE, 0, 4)
    second = await lake.controller()
    assert second.epoch == first.epoch + 1
    with pytest.raises(FencedError):
        await first.round()
    assert first.fenced
    assert isinstance(await first.wait_ended(), FencedError)
    with pytest.raises(FencedError):
        await first.round()
    assert (await second.round()).upper == frontier(4)


async def test_files_of_an_epoch_that_is_over_are_collected_and_later_ones_are_not(lake: KeptLake) -> None:
    """C23."""
    controller = await lake.controller()
    await append(lake, Appends.DEFINITE, 0, 4)
    names = [str(MergedName(frontier(0), frontier(4), epoch, f"{epoch:032x}")) for epoch in (0, 1, 2)]
    for name in names:
        await lake.store.put(name, b"x")
    await controller.round()
    left = await lake.keys("merged_batches/")
    assert [name in left for name in names] == [False, False, True]


async def test_a_part_that_is_missing_is_corruption(lake: KeptLake) -> None:
    lake.knobs["part_bytes"] = 20
    writer = await lake.writer(Appends.DEFINITE, "a")
    async with writer.batch(upper=10) as batch:
        for row in ROWS:
            await batch.add([row])
    part = next(key for key in await lake.keys("pending_batches/") if ".p00000" in key)
    await lake.store.delete([part])
    controller = await lake.controller()
    with pytest.raises(CorruptionError, match="missing"):
        await controller.round()
    with pytest.raises(CorruptionError):
        await controller.round()


async def test_a_batch_with_times_outside_of_its_bounds_is_corruption(lake: KeptLake) -> None:
    await lake.put(ROWS[:1], 0, 2)
    lying = PendingName("z", frontier(0), frontier(2))
    description = Description(frontier(0), frontier(2), TOKEN, "z", 1, 1)
    await put_batch(lake.pending(), lying, description, byte_updates((b"x", 7, 1)))
    await lake.store.delete(await lake.keys("pending_batches/a/"))
    controller = await lake.controller()
    with pytest.raises(CorruptionError, match="times that are not from 0 to 2"):
        await controller.round()


async def test_foreign_files_are_left_alone(lake: KeptLake) -> None:
    foreign = ["merged_batches/readme", "pending_batches/A/batch_1", "readers/x/other", "pending_batches/a/batch_7_8"]
    for key in foreign:
        await lake.store.put(key, b"x")
    await append(lake, Appends.DEFINITE, 0, 4)
    controller = await lake.controller()
    await controller.settle()
    assert set(foreign) < set(await lake.keys())


async def test_a_dry_run_changes_nothing_and_says_why(lake: KeptLake) -> None:
    await append(lake, Appends.DEFINITE, 0, 2, 4)
    controller = await lake.controller()
    await controller.round()
    await lake.put(ROWS[:2], 0, 4, "z")
    before = await lake.keys()
    report = await controller.round(dry_run=True)
    assert await lake.keys() == before
    assert report.collected is not None
    assert [found.why for found in report.collected.garbage] == [Why.MERGED] * len(report.collected.garbage)
    assert not report.changed
    done = await controller.round()
    assert done.collected is not None
    assert (done.collected.pending, done.collected.merged) == (report.collected.pending, report.collected.merged)


async def test_so_many_objects_are_deleted_in_a_round(lake: KeptLake) -> None:
    await append(lake, Appends.DEFINITE, *range(11))
    controller = await lake.controller(gc_max_deletes=3)
    found = [await controller.round() for _ in range(6)]
    assert max(report.collected.objects for report in found if report.collected) == 3
    assert await lake.keys("pending_batches/") == []
    assert found[-1].collected is not None
    assert found[-1].collected.complete


async def test_a_deleted_collection_is_buried(lake: KeptLake) -> None:
    """C28: all goes but the tombstone, and what zombies put later as well."""
    await append(lake, Appends.DEFINITE, 0, 2, 10)
    controller = await lake.controller()
    await controller.round()
    await lake.hold("reader", 1, 0)
    await lake.put([], 10, 12)
    tombstone = await lake.versions().commits.commit(Tombstone("t" * 32))
    assert (await controller.round()).deleted
    assert [key for key in await lake.keys() if "boundary" not in key] == [f"merged_areas/v{tombstone.version:020}"]
    await lake.store.put("pending_batches/a/batch_00000000000000000012_00000000000000000013", b"x")
    await controller.settle()
    assert await lake.keys("pending_batches/") == []
    with pytest.raises(ClosedError):
        await lake.controller()


async def test_a_closed_collection_that_all_gave_up_ends(lake: KeptLake) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    await writer.append(ROWS, lower=0, upper=DONE)
    controller = await lake.controller()
    await lake.hold("reader", None, 7)
    await controller.settle()
    assert not (await lake.head()).is_ended
    stored = await lake.holds().read("reader")
    assert stored is not None
    await lake.holds().write("reader", replace(stored.hold, since=DONE, nonce="e" * 32), stored.etag)
    await controller.settle()
    assert (await lake.head()).is_ended
    assert await lake.keys("merged_batches/") + await lake.keys("pending_batches/") == []
    assert not (await controller.round()).changed


async def test_versions_that_an_old_hold_retains_are_read_once(lake: KeptLake) -> None:
    """They never change."""
    controller = await lake.controller()
    await append(lake, Appends.DEFINITE, 0, 2)
    held = await controller.round()
    await lake.hold("reader", held.version, 0)
    for upper in range(3, 9):
        await append(lake, Appends.DEFINITE, upper - 1, upper)
        await controller.round()
        await controller.merge()
    lake.store.gets.clear()
    report = await controller.round()
    assert report.held_back.versions > 5
    read = [key for key in lake.store.gets if key.startswith("merged_areas/v0")]
    assert len(read) <= 3
    await lake.holds().remove(["reader"])
    await controller.settle()
    assert (await controller.round()).held_back.versions == 0


async def test_what_a_reader_holds_that_came_after_the_listing_is_not_ended(
    lake: KeptLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C16: the bound is published first; who registered before that was read stands in the next listing."""
    writer = await lake.writer(Appends.DEFINITE, "a")
    await writer.append(ROWS, lower=0, upper=DONE)
    controller = await lake.controller()
    await lake.hold("reader", None, 7)
    await controller.settle()
    stored = await lake.holds().read("reader")
    assert stored is not None
    await lake.holds().write("reader", replace(stored.hold, since=DONE, nonce="e" * 32), stored.etag)
    late: list[ReadHandle] = []
    look = Sweep.look

    async def look_and_open(sweep: Sweep, head: Area) -> Looked:
        looked = await look(sweep, head)
        if not late:
            late.append(await open_reader(lake.reading(deadline_ms=60_000, lease_ms=10**9)))
        return looked

    monkeypatch.setattr(Sweep, "look", look_and_open)
    await controller.settle()
    assert not (await lake.head()).is_ended
    async with late[0] as reader:
        for _ in range(2):
            async with await reader.snapshot(9) as snapshot:
                assert [row async for row in snapshot.rows()] == [(data, diff) for data, _, diff in at(ROWS, 9)]
            await reader._refresh()
    await controller.settle()
    assert (await lake.head()).is_ended
