"""Listeners: `slate_async.collections.reader.listen` over real stores."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.reader.listen import Delta
from slate_async.errors import ClosedError, CorruptionError, InvalidError
from tests.engine import settle, until
from tests.support.collection_bytes import frontier
from tests.unit.collections.reader.conftest import (
    Keeper,
    ReadLake,
    Rows,
    SleepyClock,
    at,
    expected_delta,
    move_on,
    random_rows,
    read,
    revoke,
    rows_of,
    summed,
    take,
)

ROWS = random_rows(random.Random(5), 60)


def between(lower: int, upper: int) -> Rows:
    return [row for row in ROWS if lower <= row[1] < upper]


def check_complete(deltas: list[Delta]) -> None:
    """P6: all of each delta's times, and nothing else."""
    for delta in deltas:
        assert rows_of(delta) == expected_delta(ROWS, delta)


async def test_a_listener_gives_what_comes_after_its_snapshot(lake: ReadLake) -> None:
    """P6, whether it is pending or merged when the listener begins."""
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    await lake.put(between(0, 10), 0, 10)
    await keeper.round()
    await lake.put(between(10, 20), 10, 20)
    await move_on(lake, reader)
    listener = reader.listen(as_of=4)
    deltas = await take(listener, 20)
    assert deltas[0].lower == frontier(5)
    await lake.put(between(20, 30), 20, 30)
    deltas += await take(listener, 30)
    check_complete(deltas)
    for as_of in (9, 15, 29):
        given = [row for delta in deltas for row in rows_of(delta)]
        before = [(data, 4, diff) for data, diff in await read(reader, 4)]
        assert at(before + given, as_of) == at(ROWS, as_of)


async def test_empty_deltas_say_how_far_nothing_happened(lake: ReadLake) -> None:
    await lake.put([], 0, 10)
    reader = await lake.reader()
    listener = reader.listen(start=0)
    (delta,) = await take(listener, 10)
    assert (delta.lower, delta.upper, delta.updates.num_rows) == (frontier(0), frontier(10), 0)
    await lake.put([], 10, 30)
    (delta,) = await take(listener, 30)
    assert (delta.lower, delta.upper) == (frontier(10), frontier(30))


@pytest.mark.parametrize("appends", list(Appends))
async def test_it_ends_where_the_collection_is_closed(lake: ReadLake, appends: Appends) -> None:
    writer, reader = await lake.writer(appends), await lake.reader(appends)
    await writer.append(between(0, 20), upper=20)
    await writer.append(between(20, 60), upper=DONE)
    deltas = [delta async for delta in reader.listen(start=0)]
    check_complete(deltas)
    assert deltas[-1].upper == DONE
    assert reader._pins._used == {}
    await reader.downgrade_since(DONE)
    assert reader.since == DONE
    for refused in (lambda: reader.listen(as_of=3), lambda: reader.listen(start=3), lambda: reader.subscribe(3)):
        with pytest.raises(SinceError):
            refused()
    assert [delta async for delta in reader.listen(start=DONE)] == []


@pytest.mark.parametrize("appends", list(Appends))
async def test_what_is_compacted_meanwhile_is_given_once_at_its_own_time(lake: ReadLake, appends: Appends) -> None:
    """C2: a listener reads on in pending batches, and moves to a version that it needs nothing of."""
    writer, reader, keeper = await lake.writer(appends), await lake.reader(appends), await Keeper.claim(lake)
    await writer.append(between(0, 5), upper=5)
    listener = reader.listen(start=0)
    deltas = await take(listener, 5)
    for lower in range(5, 60, 5):
        await writer.append(between(lower, lower + 5), upper=lower + 5)
        if lower % 10:
            deltas += await take(listener, lower + 5)
            await reader.downgrade_since(lower + 5)
        await keeper.round()
        await move_on(lake, reader)
        await lake.clock.sleep(40)
        await move_on(lake, reader)
    deltas += await take(listener, 60)
    check_complete(deltas)
    assert listener._pin.area.version > 3
    assert frontier(40) <= (await keeper.versions.load()).since


async def test_the_hold_keeps_what_a_listener_has_not_come_to(lake: ReadLake) -> None:
    """C2, C13, C25."""
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    listener = reader.listen(start=0)
    for lower in range(0, 60, 5):
        await lake.put(between(lower, lower + 5), lower, lower + 5)
        await keeper.round()
        await lake.clock.sleep(40)
        await move_on(lake, reader)
    pending = [listed async for listed in lake.pending().list()]
    assert len(pending) == 12
    check_complete(await take(listener, 60))
    await move_on(lake, reader)
    await lake.clock.sleep(40)
    await move_on(lake, reader)
    await until(lambda: (reader._hold.handle.version or 0) > 10, "the hold to move on")
    for _ in range(3):
        await keeper.round()
    assert [listed async for listed in lake.pending().list()] == []


@pytest.mark.parametrize("appends", list(Appends))
async def test_it_goes_on_after_a_restart_exactly_there(lake: ReadLake, appends: Appends) -> None:
    """P6, C2: whether what follows is pending, merged or compacted by then; in the middle of batches, too."""
    writer, keeper = await lake.writer(appends), await Keeper.claim(lake)
    keeping = await lake.reader(appends)
    for lower in range(0, 60, 10):
        await writer.append(between(lower, lower + 10), upper=lower + 10)
    for start in (0, 7, 10, 23, 40):
        await keeping.downgrade_since(frontier(start).step_back())
        for _ in range(3):
            await keeper.round()
        if start > 10:
            assert (await keeper.versions.load()).since == frontier(start - 1)
        async with await lake.reader(appends) as reader:
            deltas = await take(reader.listen(start=start), 60)
            assert deltas[0].lower == frontier(start)
            check_complete(deltas)
            if start:
                with pytest.raises(SinceError, match=f"from {start - 1}, because since is {start - 1}") as raised:
                    reader.listen(start=start - 1)
                assert raised.value.since == frontier(start - 1)


async def test_a_restart_where_times_were_compacted_to_would_repeat_updates(
    lake: ReadLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: the switch of what a restart demands of since."""
    await lake.put(between(0, 60), 0, 60)
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    await reader.downgrade_since(20)
    for _ in range(4):
        await keeper.round()
    await move_on(lake, reader)
    assert reader._area.since == frontier(20)
    with pytest.raises(SinceError):
        reader.listen(start=20)
    monkeypatch.setattr(
        "slate_async.collections.core.reading.is_cut_at", lambda since, coverage: bool(since <= coverage)
    )
    (delta,) = await take(reader.listen(start=20), 60)
    assert rows_of(delta) != expected_delta(ROWS, delta)


async def test_a_start_that_lies_ahead_waits(lake: ReadLake) -> None:
    reader, keeper = await lake.reader(), await Keeper.claim(lake)
    listener = reader.listen(start=25)
    waiting = asyncio.ensure_future(anext(listener))
    await lake.put(between(0, 20), 0, 20)
    await keeper.round()
    await settle(200)
    assert not waiting.done()
    await lake.put(between(20, 40), 20, 40)
    delta = await waiting
    assert (delta.lower, delta.upper) == (frontier(25), frontier(40))
    check_complete([delta])


async def test_since_stays_one_step_behind_what_was_given(lake: ReadLake) -> None:
    """C2: so a restart where a listener is stays possible."""
    reader = await lake.reader()
    await lake.put(between(0, 20), 0, 20)
    slow, fast = reader.listen(as_of=3), reader.listen(start=0)
    await take(fast, 20)
    await reader.downgrade_since(20)
    assert reader.since == frontier(3)
    await take(slow, 20)
    await reader.downgrade_since(20)
    assert reader.since == frontier(19)
    check_complete(await take(reader.listen(start=20), 20))
    slow.close()
    async with fast:
        pass
    await reader.downgrade_since(20)
    assert reader.since == frontier(20)
    for listener in (slow, fast):
        with pytest.raises(InvalidError, match="the listener was closed"):
            await anext(listener)


async def test_a_listener_that_is_dropped_lets_go(lake: ReadLake) -> None:
    await lake.put(between(0, 20), 0, 20)
    reader = await lake.reader()
    async for delta in reader.listen(start=0):
        check_complete([delta])
        break
    gc.collect()
    assert reader._pins._used == {}
    await reader.downgrade_since(20)
    assert reader.since == frontier(20)


@pytest.mark.parametrize("appends", list(Appends))
async def test_subscribe_begins_with_the_contents(lake: ReadLake, appends: Appends) -> None:
    writer, reader, keeper = await lake.writer(appends), await lake.reader(appends), await Keeper.claim(lake)
    await writer.append(between(0, 8), upper=8)
    await keeper.round()
    await writer.append(between(8, 12), upper=12)
    listener = reader.subscribe(13)
    waiting = asyncio.ensure_future(anext(listener))
    await settle(200)
    assert not waiting.done()
    await writer.append(between(12, 20), upper=20)
    first = await waiting
    assert (first.lower, first.upper) == (frontier(0), frontier(14))
    assert rows_of(first) == [(data, 13, diff) for data, diff in at(ROWS, 13)]
    await writer.append(between(20, 60), upper=DONE)
    deltas = [delta async for delta in listener]
    assert deltas[0].lower == frontier(14)
    check_complete(deltas)


@pytest.mark.parametrize("appends", list(Appends))
async def test_a_cancelled_wait_changes_nothing(lake: ReadLake, appends: Appends) -> None:
    """At every await: the next wait gives the same."""
    writer, reader, keeper = await lake.writer(appends), await lake.reader(appends), await Keeper.claim(lake)
    await writer.append(between(0, 20), upper=20)
    await keeper.round()
    await writer.append(between(20, 40), upper=40)
    await writer.append(between(40, 60), upper=DONE)
    await move_on(lake, reader)
    for turns in range(0, 60, 2):
        listener, deltas = reader.subscribe(7), list[Delta]()
        while listener.upper != DONE:
            waiting = asyncio.ensure_future(anext(listener))
            await settle(turns)
            waiting.cancel()
            try:
                deltas.append(await waiting)
            except asyncio.CancelledError:
                deltas.append(await anext(listener))
        assert rows_of(deltas[0]) == [(data, 7, diff) for data, diff in at(ROWS, 7)]
        assert deltas[1].lower == frontier(8)
        check_complete(deltas[1:])
        listener.close()
    gc.collect()  # snapshots that were cancelled half way
    assert reader._pins._used == {}


async def test_one_task_waits_at_a_time(lake: ReadLake) -> None:
    listener = (await lake.reader()).listen(start=0)
    waiting = asyncio.ensure_future(anext(listener))
    await settle()
    with pytest.raises(InvalidError, match="another task waits"):
        await anext(listener)
    await lake.put(between(0, 20), 0, 20)
    check_complete([await waiting])


@pytest.mark.parametrize("appends", list(Appends))
async def test_a_large_gap_comes_in_deltas_that_fit(lake: ReadLake, appends: Appends) -> None:
    writer = await lake.writer(appends)
    rows = [(b"%03d" % (number % 7), number // 10, 1) for number in range(3000)]
    for lower in range(0, 300, 100):
        await writer.append([row for row in rows if lower <= row[1] < lower + 100], upper=lower + 100)
    if appends is Appends.COMPARE:
        keeper = await Keeper.claim(lake)
        await keeper.round()
    reader = await lake.reader(appends, pending_memory_bytes=8000)
    for start in (0, 37):
        deltas = await take(reader.listen(start=start), 300)
        assert len(deltas) > 5
        assert all(delta.updates.nbytes <= 8000 for delta in deltas)
        assert summed([row for delta in deltas for row in rows_of(delta)]) == summed(
            [row for row in rows if row[1] >= start]
        )
        for delta in deltas:
            assert all(delta.lower.less_equal((time,)) for _, time, _ in rows_of(delta))
            assert not any(delta.upper.less_equal((time,)) for _, time, _ in rows_of(delta))


async def test_what_does_not_fit_comes_after_a_batch_of_which_nothing_is_given(lake: ReadLake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    rows = [(b"%d" % number, 5 + number // 100, 1) for number in range(1000)]
    await writer.append([(b"early", 2, 1)], upper=5)
    await writer.append(rows, upper=15)
    reader = await lake.reader(pending_memory_bytes=8000)
    deltas = await take(reader.listen(as_of=4), 15)
    assert summed([row for delta in deltas for row in rows_of(delta)]) == summed(rows)


async def test_what_was_read_of_a_chain_is_given_only_under_the_own_hold(lake: ReadLake) -> None:
    """C14."""
    writer = await lake.writer(Appends.COMPARE)
    reader = await lake.reader(Appends.COMPARE)
    listener = reader.listen(start=0)
    await writer.append(between(0, 5), upper=5)
    await take(listener, 5)
    await revoke(lake)
    await writer.append(between(5, 9), upper=9)
    with pytest.raises(LeaseLostError, match="was revoked; open another reader"):
        await anext(listener)
    with pytest.raises(LeaseLostError):
        await anext(listener)


async def test_a_version_that_is_compacted_too_far_is_refused(lake: ReadLake) -> None:
    """C3: what the handle holds proves nothing once its hold is lost."""
    await lake.put(between(0, 20), 0, 20)
    reader = await lake.reader(clock=SleepyClock())
    await revoke(lake)
    keeper = await Keeper.claim(lake)
    await keeper.round()
    other = await lake.reader()
    await other.downgrade_since(15)
    for _ in range(4):
        await keeper.round()
    await reader._refresh()
    assert reader._area.since == frontier(15)
    for listener in [reader.listen(as_of=3), reader.listen(start=4)]:
        with pytest.raises(LeaseLostError):
            await anext(listener)


async def test_a_missing_object_is_explained_by_the_hold(lake: ReadLake) -> None:
    """C15."""
    await lake.put(between(0, 20), 0, 20)
    keeper, reader = await Keeper.claim(lake), await lake.reader()
    await keeper.round()
    await move_on(lake, reader)
    (batch,) = (await keeper.versions.load()).batches
    await lake.store.delete([batch.name])
    with pytest.raises(CorruptionError, match=r"and the hold of [0-9a-f]+ stands"):
        await anext(reader.listen(start=0))


async def test_a_deletion_and_an_expiry_end_a_wait(lake: ReadLake) -> None:
    reader, other = await lake.reader(), await lake.reader()
    waiting = [asyncio.ensure_future(anext(handle.listen(start=0))) for handle in (reader, other)]
    await settle()
    await other.expire()
    with pytest.raises(ClosedError, match="is closed; open it again"):
        await waiting[1]
    versions = lake.versions()
    await versions.load()
    await versions.commits.commit(Tombstone("x" * 32))
    with pytest.raises(ClosedError, match="orders was deleted"):
        await waiting[0]


async def test_listen_takes_one_of_as_of_and_start(lake: ReadLake) -> None:
    reader = await lake.reader()
    with pytest.raises(InvalidError, match="as_of, where a snapshot ended, or start"):
        reader.listen()
    with pytest.raises(InvalidError, match="as_of, where a snapshot ended, or start"):
        reader.listen(as_of=3, start=4)


async def test_a_poke_wakes_a_listener_that_sleeps(lake: ReadLake) -> None:
    reader = await lake.reader(clock=SleepyClock())
    waiting = asyncio.ensure_future(anext(reader.listen(start=0)))
    await settle(100)
    await lake.put(between(0, 20), 0, 20)
    await settle(100)
    assert not waiting.done()
    reader._context.pokes.poke()
    check_complete([await asyncio.wait_for(waiting, 10)])


async def test_a_since_is_written_at_most_once_an_interval(lake: ReadLake) -> None:
    await lake.put(between(0, 60), 0, 60)
    reader = await lake.reader(downgrade_interval_ms=10**8, lease_ms=10**10)

    async def written() -> list[Frontier]:
        return [found.hold.since for found in (await lake.holds().read_all(await lake.holds().list())).values()]

    before = len(lake.store.puts)
    for since in range(1, 40):
        await reader.downgrade_since(since)
    assert reader.since == frontier(39)
    assert len(lake.store.puts) - before == 1
    assert await written() == [frontier(1)]
    with pytest.raises(SinceError):
        await reader.snapshot(38)
    clone = await reader.clone()
    lake.readers.append(clone)
    assert clone.since == frontier(39)
    await clone.expire()
    await lake.clock.sleep(10**5)
    await until(lambda: reader._hold.handle.since == frontier(39), "the renewal")
    await until(lambda: not reader._hold.handle.attempts, "its answer")
    assert await written() == [frontier(39)]
