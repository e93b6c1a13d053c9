"""Clones of read handles (C12)."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import holding
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.reader.handle import ReadHandle
from slate_async.errors import CorruptionError
from tests.engine import settle, until
from tests.support.collection_bytes import frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.reader.conftest import Keeper, ReadLake, SleepyClock, at, random_rows, read, revoke

ROWS = random_rows(random.Random(3), 40)


async def compact(lake: ReadLake, keeper: Keeper) -> None:
    """As far as the holds allow."""
    for _ in range(4):
        await keeper.round()
        await lake.clock.sleep(1)
        await settle(60)


async def test_a_clone_keeps_what_its_source_gives_up(lake: ReadLake) -> None:
    await lake.put(ROWS, 0, 40)
    source, keeper = await lake.reader(), await Keeper.claim(lake)
    await source.downgrade_since(7)
    clone = await source.clone("a clone")
    lake.readers.append(clone)
    await source.downgrade_since(30)
    await compact(lake, keeper)
    await source.expire()
    await compact(lake, keeper)
    assert (await keeper.versions.load()).since == frontier(7)
    for as_of in (7, 20, 39):
        assert await read(clone, as_of) == at(ROWS, as_of)
    notes = [stored.hold.note for stored in (await lake.holds().read_all(await lake.holds().list())).values()]
    assert notes == ["a clone"]


async def test_a_clone_is_at_the_version_of_its_source_wherever_the_head_is(lake: ReadLake) -> None:
    """C12: the hold of the source covers it."""
    await lake.put(ROWS, 0, 40)
    source, keeper = await lake.reader(clock=SleepyClock()), await Keeper.claim(lake)
    lake.store.hold = True
    cloning = asyncio.ensure_future(source.clone())
    await until(lambda: lake.store.held, "a put of a hold")
    head = await keeper.round()
    lake.store.release()
    clone = await cloning
    lake.readers.append(clone)
    assert clone._hold.handle.version == source._hold.handle.version == 0 < head.version
    assert await read(clone, 0) == at(ROWS, 0)


async def test_a_source_is_renewed_while_its_clone_registers_and_keeps_what_that_takes_over(lake: ReadLake) -> None:
    """C12: a store that is slow with the clone's hold costs the source no lease."""
    await lake.put(ROWS, 0, 40)
    source, keeper = await lake.reader(clock=SleepyClock()), await Keeper.claim(lake)
    await keeper.round()
    await source._refresh()
    area = source._area
    lake.store.hold = True
    cloning = asyncio.ensure_future(source.clone())
    await until(lambda: lake.store.held, "a put of a hold")
    lake.store.hold = False
    before = source._hold.handle
    await asyncio.wait_for(source.downgrade_since(30), 30)
    await keeper.round()
    await source._refresh()
    await source._write()
    after = source._hold.handle
    assert after.beat > before.beat
    assert (after.since, after.version) == (frontier(0), area.version)
    lake.store.release()
    clone = await cloning
    lake.readers.append(clone)
    await source._write()
    assert source._hold.handle.since == frontier(30)
    for _ in range(4):
        await keeper.round()
    for as_of in (0, 7, 39):
        assert await read(clone, as_of) == at(ROWS, as_of)


async def test_a_clone_is_believed_though_a_write_of_its_source_had_no_answer(lake: ReadLake) -> None:
    """C12: the source finds out what became of it."""
    await lake.put(ROWS, 0, 40)
    source = await lake.reader(clock=SleepyClock())
    found = await lake.holds().read(source._hold.handle.reader)
    assert found is not None
    source._hold.handle = holding.attempt(source._hold.handle, "m" * 32)  # it landed
    await lake.holds().write(
        found_name := source._hold.handle.reader, holding.to_write(source._hold.handle, "m" * 32), found.etag
    )
    clone = await source.clone()
    lake.readers.append(clone)
    assert found_name != clone._hold.handle.reader
    assert await read(clone, 20) == at(ROWS, 20)


async def test_a_clone_of_a_handle_that_was_revoked_meanwhile_is_refused(lake: ReadLake) -> None:
    """C12."""
    await lake.put(ROWS, 0, 40)
    source = await lake.reader(clock=SleepyClock())
    lake.store.hold = True
    cloning = asyncio.ensure_future(source.clone())
    await until(lambda: lake.store.held, "a put of a hold")
    lake.store.hold = False
    await revoke(lake)
    lake.store.release()
    with pytest.raises(LeaseLostError, match="was revoked; open another reader"):
        await cloning
    assert len(await lake.holds().list()) == 1  # its own is given up again


async def test_a_clone_that_is_believed_by_itself_would_meet_what_was_compacted(
    lake: ReadLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C12: its switch. P8 does not hold."""
    monkeypatch.setattr(
        "slate_async.collections.core.holding.covered", lambda handle, source, stored: holding.Cover.ALL
    )
    await lake.put(ROWS, 0, 40)
    source, keeper = await lake.reader(clock=SleepyClock()), await Keeper.claim(lake)
    lake.store.hold = True
    cloning = asyncio.ensure_future(source.clone())
    await until(lambda: lake.store.held, "a put of a hold")
    lake.store.hold = False
    await revoke(lake)
    other = await lake.reader()
    await other.downgrade_since(30)
    for _ in range(5):
        await keeper.round()
    lake.store.release()
    clone = await cloning
    lake.readers.append(clone)
    await clone._refresh()
    with pytest.raises(CorruptionError, match=r"is compacted to 30, past .*, and the hold of [0-9a-f]+ stands"):
        await clone.snapshot(0)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_clone_whose_put_is_not_answered_is_resolved(lake: ReadLake, fault: str) -> None:
    await lake.put(ROWS, 0, 40)
    source = await lake.reader()
    next_put(lake.store, fault)
    clone: ReadHandle = await source.clone()
    lake.readers.append(clone)
    assert len(await lake.holds().list()) == 2
    assert await read(clone, 20) == at(ROWS, 20)


async def test_a_clone_that_is_cancelled_leaves_its_source_as_it_was(lake: ReadLake) -> None:
    writer = await lake.writer(Appends.COMPARE)
    await writer.append(ROWS, upper=40)
    source = await lake.reader(Appends.COMPARE)
    for turns in range(0, 40, 2):
        cloning = asyncio.ensure_future(source.clone())
        await settle(turns)
        cloning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            lake.readers.append(await cloning)
        await source.downgrade_since(turns // 2)
        assert await read(source, 30) == at(ROWS, 30)
