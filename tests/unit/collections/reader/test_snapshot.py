"""Snapshots: `slate_async.collections.reader.snapshot` over real stores."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.filtering import ConditionLike
from slate_async.collections.core.frontier import DONE
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import ClosedError, CorruptionError, InvalidError, UnavailableError
from tests.engine import settle, until
from tests.support.collection_bytes import BYTES, frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.reader.conftest import Keeper, ReadLake, SleepyClock, at, random_rows, read, revoke

T = TypeVar("T")
ROWS = random_rows(random.Random(3), 40)


def between(lower: int, upper: int) -> list[tuple[bytes, int, int]]:
    return [row for row in ROWS if lower <= row[1] < upper]


async def test_what_is_pending_and_what_is_merged_make_the_contents(lake: ReadLake) -> None:
    """P5, in each state of the collection."""
    reader = await lake.reader()
    keeper = await Keeper.claim(lake)
    for lower in range(0, 40, 10):
        await lake.put(between(lower, lower + 10), lower, lower + 10, writer="ab"[lower // 10 % 2])
        for as_of in (lower, lower + 4, lower + 9):
            assert await read(reader, as_of) == at(ROWS, as_of)
        await keeper.round(merge=lower != 20)
        await lake.clock.sleep(1)
        await settle()
        for as_of in (0, 3, lower + 9):
            assert await read(reader, as_of) == at(ROWS, as_of)
    table = await (await reader.snapshot(25)).to_arrow()
    assert table.schema == BYTES.arrow
    assert set(table.column("_time").to_pylist()) == {25}


async def test_overlapping_batches_of_two_writers_are_taken_once(lake: ReadLake) -> None:
    """C4."""
    await lake.put(between(0, 7), 0, 7, "a")
    await lake.put(between(0, 5), 0, 5, "b")
    await lake.put(between(5, 12), 5, 12, "b")
    reader = await lake.reader()
    assert await read(reader, 11) == at(ROWS, 11)


async def test_a_snapshot_waits_until_its_time_is_definite(lake: ReadLake) -> None:
    await lake.put(between(0, 5), 0, 5)
    reader = await lake.reader()
    waiting = asyncio.ensure_future(read(reader, 12))
    await settle(300)
    assert not waiting.done()
    await lake.put(between(0, 12), 0, 12, "b")  # another writer goes on; 12 itself may still come
    await settle(300)
    assert not waiting.done()
    await lake.put(between(12, 13), 12, 13, "b")
    assert await waiting == at(ROWS, 12)


async def test_a_cancelled_wait_leaves_nothing_pinned(lake: ReadLake) -> None:
    reader = await lake.reader()
    for turns in range(0, 60, 3):
        waiting = asyncio.ensure_future(reader.snapshot(12))
        await settle(turns)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert reader._pins._used == {}
    await lake.put(between(0, 20), 0, 20)
    assert await read(reader, 12) == at(ROWS, 12)


async def test_a_compare_collection_is_read_along_its_chain(lake: ReadLake) -> None:
    writer = await lake.writer(Appends.COMPARE)
    reader = await lake.reader(Appends.COMPARE)
    keeper = await Keeper.claim(lake)
    for lower in range(0, 40, 5):
        await writer.append(between(lower, lower + 5), lower=lower, upper=lower + 5)
        assert await read(reader, lower + 4) == at(ROWS, lower + 4)
        if lower % 10:
            await keeper.round()
            await lake.clock.sleep(1)
            await settle()
    await writer.append([], upper=DONE)
    assert await read(reader, 1000) == at(ROWS, 1000)


async def test_what_was_read_of_a_chain_counts_only_under_the_own_hold(lake: ReadLake) -> None:
    """C14."""
    writer = await lake.writer(Appends.COMPARE)
    await writer.append(between(0, 5), upper=5)
    reader = await lake.reader(Appends.COMPARE)
    snapshot = await reader.snapshot(4)
    await revoke(lake)
    with pytest.raises(LeaseLostError, match="was revoked; open another reader"):
        await snapshot.to_arrow()
    with pytest.raises(LeaseLostError):
        await reader.snapshot(4)


async def test_times_that_were_given_up_cannot_be_asked_about(lake: ReadLake) -> None:
    await lake.put(between(0, 20), 0, 20)
    reader = await lake.reader()
    await reader.downgrade_since(7)
    await reader.downgrade_since(3)
    assert reader.since == frontier(7)
    with pytest.raises(SinceError, match="as_of 6 is before since 7 of this reader of orders") as raised:
        await reader.snapshot(6)
    assert raised.value.since == frontier(7)
    assert await read(reader, 7) == at(ROWS, 7)


async def test_a_version_that_is_compacted_too_far_is_not_read(lake: ReadLake) -> None:
    """C3: the handle's own since proves nothing once its lease is lost."""
    await lake.put(between(0, 20), 0, 20)
    reader = await lake.reader(clock=SleepyClock())
    await revoke(lake)
    keeper = await Keeper.claim(lake)
    await keeper.round()
    other = await lake.reader()
    await other.downgrade_since(15)
    for _ in range(4):
        await keeper.round()
    assert (await keeper.versions.load()).since == frontier(15)
    await reader._refresh()
    with pytest.raises(LeaseLostError):
        await reader.snapshot(3)
    assert await read(other, 17) == at(ROWS, 17)


async def test_a_version_that_is_compacted_too_far_would_answer_wrongly(
    lake: ReadLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: its switch."""
    await lake.put(between(0, 20), 0, 20)
    reader = await lake.reader(clock=SleepyClock())
    await revoke(lake)
    keeper, other = await Keeper.claim(lake), await lake.reader()
    await other.downgrade_since(15)
    for _ in range(5):
        await keeper.round()
    await reader._refresh()
    assert reader._area.since == frontier(15)
    monkeypatch.setattr("slate_async.collections.core.reading.may_read", lambda area, as_of: True)
    assert await read(reader, 3) != at(ROWS, 3)


async def test_a_snapshot_that_is_open_is_kept_while_the_collection_goes_on(lake: ReadLake) -> None:
    """C13, C17: the hold does not move past a version in use."""
    await lake.put(between(0, 20), 0, 20)
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    await keeper.round()
    await lake.clock.sleep(1)
    await settle()
    snapshot = await reader.snapshot(13)
    for lower in range(20, 40, 2):
        await lake.put(between(lower, lower + 2), lower, lower + 2)
        await keeper.round()
        await lake.clock.sleep(40)
        await settle(100)
    assert await snapshot.to_arrow() == await (await reader.snapshot(13)).to_arrow()
    assert [row async for row in snapshot.rows()] == at(ROWS, 13)
    pinned = snapshot.pin.area.version
    snapshot.close()
    with pytest.raises(InvalidError, match="the snapshot was closed"):
        await snapshot.to_arrow()
    await lake.clock.sleep(40)
    await until(lambda: (reader._hold.handle.version or 0) > pinned, "the hold to move on")


async def test_a_missing_object_is_explained_by_the_hold(lake: ReadLake) -> None:
    """C15."""
    await lake.put(between(0, 20), 0, 20)
    keeper = await Keeper.claim(lake)
    await keeper.round()
    reader = await lake.reader()
    snapshot = await reader.snapshot(13)
    name = snapshot.pin.area.batches[0].name
    await lake.store.delete([name])
    with pytest.raises(CorruptionError, match=r"and the hold of [0-9a-f]+ stands"):
        await snapshot.to_arrow()
    await revoke(lake)
    with pytest.raises(LeaseLostError):
        await snapshot.to_arrow()


async def test_a_deleted_collection_is_closed(lake: ReadLake) -> None:
    reader = await lake.reader()
    versions = lake.versions()
    await versions.load()
    await versions.commits.commit(Tombstone("x" * 32))
    await reader._refresh()
    with pytest.raises(ClosedError, match="orders was deleted"):
        await reader.snapshot(3)
    with pytest.raises(ClosedError, match="was deleted"):
        await lake.reader()


@pytest.mark.parametrize("where", [[("data", ">", b"3")], [("data", "in", [b"1", b"5"])], [("data", "!=", b"2")]])
async def test_a_filter_keeps_the_rows_that_pass(lake: ReadLake, where: list[ConditionLike]) -> None:
    """P15."""
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    await lake.put(between(0, 20), 0, 20)
    await keeper.round()
    await lake.put(between(20, 40), 20, 40)
    await reader._refresh()
    passes = {">": lambda data: data > b"3", "in": lambda data: data in (b"1", b"5"), "!=": lambda data: data != b"2"}
    for as_of in (5, 25, 39):
        expected = [row for row in at(ROWS, as_of) if passes[where[0][1]](row[0])]
        assert await read(reader, as_of, where=where) == expected


async def test_splits_hold_every_row_once(lake: ReadLake) -> None:
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    await lake.put([(b"%06d" % (number * 7919 % 200_000), number % 20, 1) for number in range(200_000)], 0, 20)
    await keeper.round(merge=False)
    await lake.put([(b"%06d" % number, 21, -1) for number in range(0, 200_000, 100)], 20, 22)
    await reader._refresh()
    snapshot = await reader.snapshot(21)
    whole = await snapshot.to_arrow()
    parts = [await split.to_arrow() for split in await snapshot.splits(3)]
    assert pa.concat_tables(parts).combine_chunks() == whole.combine_chunks()
    assert whole.num_rows == 198_000
    assert [part.num_rows > 50_000 for part in parts] == [True] * 3
    few = await reader.snapshot(21, where=[("data", "<", b"000100")])
    lake.store.gets.clear()
    assert (await few.to_arrow()).num_rows == 99
    assert len(await snapshot.splits(3, least_bytes=1 << 30)) == 1
    with pytest.raises(InvalidError, match="at least one split, not 0"):
        await snapshot.splits(0)
    with pytest.raises(InvalidError, match="at least one byte, not 0"):
        await snapshot.splits(3, least_bytes=0)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hold_whose_put_is_not_answered_is_resolved(lake: ReadLake, fault: str) -> None:
    """C10."""
    next_put(lake.store, fault)
    reader = await lake.reader()
    next_put(lake.store, fault)
    await reader.downgrade_since(4)
    (stored,) = (await lake.holds().read_all(await lake.holds().list())).values()
    assert stored.hold.since == frontier(4)
    assert stored.etag == reader._hold.handle.etag
    await reader.expire()
    assert await lake.holds().list() == {}
    with pytest.raises(ClosedError, match="this reader of orders is closed; open it again"):
        await reader.snapshot(1)


async def test_a_registration_follows_a_head_that_has_passed_it(lake: ReadLake) -> None:
    """C11."""
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 20), 0, 20)
    lake.store.hold = True
    opening = asyncio.ensure_future(lake.reader())
    await until(lambda: lake.store.held, "a put of a hold")
    await keeper.round()
    await keeper.round()
    lake.store.release()
    reader = await opening
    stored = await lake.holds().read(reader._hold.handle.reader)
    head = await keeper.versions.load()
    assert stored is not None
    assert stored.hold.version is not None
    assert stored.hold.version >= head.floor
    assert await read(reader, 10) == at(ROWS, 10)


async def test_an_idle_reader_keeps_its_lease(lake: ReadLake) -> None:
    keeper = await Keeper.claim(lake)
    reader = await lake.reader(lease_ms=10_000)
    for _ in range(30):
        await lake.clock.sleep(1)
        await settle(60)
        await until(lambda: not reader._hold.is_due(reader._area.version), "the renewal")
        await keeper.round()
    assert await lake.holds().list() != {}
    await lake.put(between(0, 5), 0, 5)
    assert await read(reader, 3) == at(ROWS, 3)


async def test_a_lease_is_renewed_while_no_version_can_be_read(lake: ReadLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions may lie in another store than the holds."""
    reader = await lake.reader(lease_ms=10_000, deadline_ms=1_000)
    [name] = await lake.holds().list()

    async def unanswered(versions: AreaVersions, max_age_ms: float) -> Area:
        raise UnavailableError("the metastore does not answer")

    before = await lake.holds().read(name)
    monkeypatch.setattr(AreaVersions, "poll", unanswered)
    await until(lambda: lake.clock.now > 30, "three leases")
    monkeypatch.undo()
    after = await lake.holds().read(name)
    assert before is not None
    assert after is not None
    assert after.hold.beat > before.hold.beat
    assert not reader._failures


async def test_a_reader_that_sleeps_past_its_lease_fails_and_is_never_wrong(lake: ReadLake) -> None:
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 5), 0, 5)
    reader = await lake.reader(clock=SleepyClock())
    for _ in range(6):
        await keeper.round()
        lake.clock.now += 1000
    assert await lake.holds().list() == {}
    with pytest.raises(LeaseLostError):
        await reader.downgrade_since(3)
    with pytest.raises(LeaseLostError):
        await reader.snapshot(3)


async def test_every_cancelled_opening_leaves_at_most_a_hold(lake: ReadLake) -> None:
    for turns in range(0, 40, 2):
        opening = asyncio.ensure_future(lake.reader())
        await settle(turns)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
    await lake.put(between(0, 5), 0, 5)
    assert await read(await lake.reader(), 3) == at(ROWS, 3)


class Measuring:
    """Notes the most that Arrow has allocated, after each step of work."""

    def __init__(self) -> None:
        self.most = 0

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        result = function()
        self.most = max(self.most, pa.total_allocated_bytes())
        return result


@pytest.mark.parametrize("appends", list(Appends))
async def test_much_that_is_pending_is_read_in_passes_within_bounded_memory(lake: ReadLake, appends: Appends) -> None:
    writer, rng = await lake.writer(appends), np.random.default_rng(4)
    rows = 0
    for lower in range(16):
        data = pa.array(rng.integers(10**15, 10**16, 10_000)).cast(pa.string()).cast(pa.binary())
        times = pa.array([lower] * len(data), pa.uint64())
        table = pa.table([data, times, pa.array([1] * len(data), pa.int64())], schema=BYTES.arrow)
        await writer.append(table, upper=lower + 1)
        rows += table.num_rows
    reader = await lake.reader(appends, pending_memory_bytes=1 << 20)
    measuring = Measuring()
    reader._context = replace(reader._context, runtime=replace(reader._context.runtime, offload=measuring))
    before = pa.total_allocated_bytes()
    found, last = 0, b""
    async for batch in (await reader.snapshot(15)).batches():
        found += batch.num_rows
        assert last < batch.column("data")[0].as_py()
        last = batch.column("data")[batch.num_rows - 1].as_py()
    assert found == rows
    assert rows * 36 > 5 << 20
    assert measuring.most - before < 7 << 19


async def test_contents_can_be_expanded_to_rows(lake: ReadLake) -> None:
    await lake.put([(b"a", 1, 3), (b"b", 2, 1), (b"c", 3, 1), (b"c", 4, -1), (b"d", 5, -2)], 0, 10)
    reader = await lake.reader()
    table = await (await reader.snapshot(4)).to_arrow(expand=True)
    assert table.to_pydict() == {"data": [b"a", b"a", b"a", b"b"]}
    assert table.schema == BYTES.data
    frame = await (await reader.snapshot(4)).to_pandas(expand=True)
    assert list(frame["data"]) == [b"a", b"a", b"a", b"b"]
    assert list((await (await reader.snapshot(4)).to_pandas())["_diff"]) == [3, 1]
    with pytest.raises(InvalidError, match="a row that is there -2 times cannot be shown: data=b'd'"):
        await (await reader.snapshot(5)).to_arrow(expand=True)
    assert (await (await reader.snapshot(0)).to_arrow(expand=True)).num_rows == 0
    await lake.put([(b"e", 10, 2**62)], 10, 11)
    with pytest.raises(
        InvalidError, match=r"so many times cannot be shown one by one: data=b'e'.*_diff=4611686018427387904"
    ):
        await (await reader.snapshot(10, [("data", ">", b"d")])).to_arrow(expand=True)
