"""What a writer had acknowledged is handed over to the listeners of its process: they ask the store for nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.reader.handle import ReadHandle
from slate_async.collections.reader.listen import Delta, Listener
from slate_async.collections.store import acknowledged
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.runtime.pokes import Pokes
from tests.engine import StoreInHand, memory_store, settle
from tests.support.collection_bytes import BYTES, frontier
from tests.unit.collections.reader.conftest import ReadLake, SleepyClock, revoke, rows_of, take

BOTH = pytest.mark.parametrize("appends", list(Appends))


@dataclass
class Counted(StoreInHand):
    """A store in memory that counts listings, and waits with reads while ``waits``."""

    lists: list[str] = field(default_factory=list)

    def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.lists.append(prefix)
        return super().list(prefix, start_after=start_after)

    def requests(self) -> int:
        """For anything that is pending."""
        return len([key for key in self.lists + self.gets if key.startswith("pending_batches")])


@pytest.fixture
def store(watch: str) -> Counted:
    """An empty one."""
    return Counted(memory_store(), watch=watch)


class Together:
    """One process that writes and listens; its clock stands still, so that it looks again only when it is poked."""

    def __init__(self, lake: ReadLake, appends: Appends) -> None:
        self.lake, self.appends = lake, appends
        self.shared: dict[str, Any] = {"acknowledged": AcknowledgedBatches(), "pokes": Pokes()}

    async def writer(self, name: str = "near") -> Writer:
        """One of this process."""
        opened = await open_writer(replace(self.lake.context(self.appends, name), **self.shared), self.appends)
        self.lake.opened.append(opened)
        return opened

    async def reader(self) -> ReadHandle:
        """One of this process."""
        return await self.lake.reader(self.appends, clock=SleepyClock(), **self.shared)

    @property
    def kept(self) -> int:
        """Batches that are kept for listeners."""
        return len(self.shared["acknowledged"].beyond(frontier(0)))


def rows(*times: int) -> list[tuple[bytes, int, int]]:
    return [(b"%03d" % time, time, 1) for time in times]


async def waiting(listener: Listener) -> asyncio.Future[Delta]:
    """A wait that has found nothing and sleeps."""
    begun = asyncio.ensure_future(anext(listener))
    await settle(100)
    assert not begun.done()
    return begun


@BOTH
async def test_what_was_acknowledged_is_given_without_a_request(
    lake: ReadLake, store: Counted, appends: Appends
) -> None:
    here = Together(lake, appends)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    for time in range(10):
        wait = await waiting(listener)
        await writer.append(rows(time), upper=time + 1)
        store.gets.clear(), store.lists.clear()
        delta = await asyncio.wait_for(wait, 10)
        assert (delta.lower, delta.upper, rows_of(delta)) == (frontier(time), frontier(time + 1), rows(time))
        assert (store.gets, store.lists) == ([], [])


@BOTH
async def test_nothing_is_handed_over_before_it_is_acknowledged(
    lake: ReadLake, store: Counted, appends: Appends
) -> None:
    here = Together(lake, appends)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    wait = await waiting(listener)
    store.hold, store.watch = True, "pending_batches/"
    append = asyncio.ensure_future(writer.append(rows(1), upper=5))
    await settle(100)
    assert store.held
    assert (wait.done(), here.kept) == (False, 0)
    store.release()
    await append
    assert rows_of(await asyncio.wait_for(wait, 10)) == rows(1)


async def test_what_leaves_a_gap_waits_for_the_store(lake: ReadLake, store: Counted) -> None:
    """C4: another process writes what comes before."""
    here = Together(lake, Appends.DEFINITE)
    listener = (await here.reader()).listen(start=0)
    wait = await waiting(listener)
    await lake.put(rows(1, 3), 0, 5, "far")
    await lake.put(rows(1, 3), 0, 5, "near")
    writer = await here.writer()
    before = store.requests()
    await writer.append(rows(7), upper=10)
    deltas = [await asyncio.wait_for(wait, 10), *await take(listener, 10)]
    assert store.requests() > before
    assert [row for delta in deltas for row in rows_of(delta)] == rows(1, 3, 7)
    assert [deltas[0].lower, deltas[-1].upper] == [frontier(0), frontier(10)]


async def test_what_another_process_wrote_in_between_is_read(lake: ReadLake) -> None:
    """The chain of a ``compare`` collection goes on by a batch of another writer, then by one of this process."""
    here = Together(lake, Appends.COMPARE)
    writer, far = await here.writer(), await lake.writer(Appends.COMPARE, "far")
    listener = (await here.reader()).listen(start=0)
    await writer.append(rows(1), upper=2)
    assert rows_of(*await take(listener, 2)) == rows(1)
    await far.append(rows(3), lower=2, upper=4)
    await writer.append(rows(5), lower=4, upper=6)
    deltas = await take(listener, 6)
    assert [row for delta in deltas for row in rows_of(delta)] == rows(3, 5)


async def test_what_another_writer_covers_is_not_given_twice(lake: ReadLake) -> None:
    """C4: two writers of a ``definite`` collection put the same, with other bounds."""
    here = Together(lake, Appends.DEFINITE)
    one, two = await here.writer("one"), await here.writer("two")
    listener = (await here.reader()).listen(start=0)
    await one.append(rows(1, 3), upper=4)
    assert rows_of(*await take(listener, 4)) == rows(1, 3)
    await two.append(rows(1, 3, 5), upper=6)
    await one.append(rows(5, 7), upper=8)
    deltas = await take(listener, 8)
    assert [row for delta in deltas for row in rows_of(delta)] == rows(5, 7)


@BOTH
async def test_large_batches_and_those_of_parts_are_read(
    lake: ReadLake, store: Counted, appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Together(lake, appends)
    monkeypatch.setattr("slate_async.collections.writer.puts.KEPT_BYTES", 1 << 10)
    lake.knobs["part_bytes"] = 1 << 14
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    for upper, count in enumerate((200, 2000)):
        wait = await waiting(listener)
        batch = [(b"%d" % number, upper, 1) for number in range(count)]
        await writer.append(batch, upper=upper + 1)
        assert here.kept == 0
        assert rows_of(await asyncio.wait_for(wait, 10)) == sorted(batch)


@BOTH
@pytest.mark.parametrize(("limit", "value"), [("KEPT_BATCHES", 3), ("KEPT_BYTES", 4_000)])
async def test_a_slow_listener_finds_in_the_store_what_is_kept_no_more(
    lake: ReadLake, store: Counted, appends: Appends, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledged, limit, value)
    here = Together(lake, appends)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    for time in range(20):
        await writer.append(rows(time), upper=time + 1)
    assert 0 < here.kept < 10
    before = store.requests()
    deltas = await take(listener, 20)
    assert store.requests() > before
    assert [row for delta in deltas for row in rows_of(delta)] == rows(*range(20))


@BOTH
async def test_a_cancelled_wait_loses_nothing_of_it(lake: ReadLake, appends: Appends) -> None:
    here = Together(lake, appends)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    given = []
    for time in range(12):
        wait = await waiting(listener)
        await writer.append(rows(time), upper=time + 1)
        for _ in range(time % 4):
            await asyncio.sleep(0)
        wait.cancel()
        await asyncio.wait([wait])
        if not wait.cancelled():
            given.append(wait.result())
        given += await take(listener, time + 1)
    assert [row for delta in given for row in rows_of(delta)] == [row for time in range(12) for row in rows(time)]


async def test_it_is_given_under_a_hold_that_no_longer_stands_if_it_is_acknowledged(lake: ReadLake) -> None:
    """C14 is for what was found in the store: what was acknowledged is in for ever."""
    here = Together(lake, Appends.COMPARE)
    writer, far = await here.writer(), await lake.writer(Appends.COMPARE, "far")
    listener = (await here.reader()).listen(start=0)
    wait = await waiting(listener)
    await revoke(lake)
    await writer.append(rows(1), upper=2)
    assert rows_of(await asyncio.wait_for(wait, 10)) == rows(1)
    await far.append(rows(3), lower=2, upper=4)
    with pytest.raises(LeaseLostError):
        await anext(listener)


async def test_rows_are_those_that_were_put_whatever_becomes_of_the_buffers(lake: ReadLake) -> None:
    here = Together(lake, Appends.DEFINITE)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    times, diffs = np.array([1, 2], np.uint64), np.array([1, 1])
    data = pa.array([b"a", b"b"], pa.binary())
    await writer.append(pa.record_batch([data, pa.array(times), pa.array(diffs)], schema=BYTES.arrow), upper=3)
    diffs[:] = 7
    assert here.kept == 1
    assert rows_of(*await take(listener, 3)) == [(b"a", 1, 1), (b"b", 2, 1)]


async def test_nothing_is_kept_without_a_listener(lake: ReadLake) -> None:
    here = Together(lake, Appends.DEFINITE)
    writer, reader = await here.writer(), await here.reader()
    await writer.append(rows(0), upper=1)
    assert here.kept == 0
    listener, dropped = reader.listen(start=0), reader.listen(start=0)
    await writer.append(rows(1), upper=2)
    assert here.kept == 1
    listener.close()
    assert here.kept == 1
    del dropped
    gc.collect()
    await writer.append(rows(2), upper=3)
    assert here.kept == 0


async def test_a_listener_that_is_handed_over_all_lists_no_more_than_it_has_to(lake: ReadLake, store: Counted) -> None:
    """A look at a quiet shard begins after the last batch, also if that was handed over."""
    here = Together(lake, Appends.DEFINITE)
    writer, listener = await here.writer(), (await here.reader()).listen(start=0)
    wait = await waiting(listener)
    await writer.append(rows(0), upper=1)
    await wait
    store.lists.clear()
    await waiting(listener)
    assert store.lists == ["pending_batches/near/"]
    assert str(listener._follower._last).startswith("pending_batches/near/")  # type: ignore[attr-defined]
