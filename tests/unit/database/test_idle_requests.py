"""What a database costs that nobody uses: the requests of a poll that finds nothing new."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

import slate_async as slate
from metastores.factories import IfMatchFactory
from slate_async.engine.follow.follower import FULL_ROUND_S
from slate_async.objectstore.costs import MonthlyRequests, RequestPrices, of_a_month
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectInfo
from slate_async.runtime.idle import IdlePoll
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    Kind,
    ManualClock,
    StoreInHand,
    memory_store,
    open_db,
    open_reader,
    settle,
    until,
)


class Seconds(ManualClock):
    """Monotonic time by hand, too."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class CountingStore(StoreInHand):
    """Counts requests."""

    asked: Counter[str] = field(default_factory=Counter)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self.asked["get"] += 1
        return await super().get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        self.asked["head"] += 1
        return await super().head(key)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.asked["list"] += 1
        async for info in super().list(prefix, start_after=start_after):
            yield info


async def poll_once(handle: slate.Db | slate.DbReader) -> None:
    """As when the time for it has come."""
    if isinstance(handle, slate.DbReader):
        assert handle._polling is not None
        await handle._polling.poll_once()
    else:
        await handle._head.poll_once()


async def polled(handle: slate.Db | slate.DbReader, store: CountingStore, times: int = 3) -> Counter[str]:
    """The requests of so many polls."""
    store.asked.clear()
    for _ in range(times):
        await poll_once(handle)
    return store.asked


async def test_an_idle_writer_reads_the_next_version_and_lists_nothing() -> None:
    store = CountingStore(memory_store())
    async with open_db(store) as db:
        await db.put(b"a", b"1")
        await db._head.poll_once()
        assert await polled(db, store) == {"get": 3}


async def test_without_the_keep_an_idle_writer_lists() -> None:
    store = CountingStore(memory_store())
    async with open_db(store, version_keep_ms=0) as db:
        await db._head.poll_once()
        assert await polled(db, store) == {"list": 3}


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_an_idle_reader_reads_the_next_version_and_the_next_log_object(kind: Kind) -> None:
    store = CountingStore(memory_store())
    async with open_db(store, kind) as db, open_reader(store) as reader:
        await db.put(b"a", b"1")
        await poll_once(reader)
        await poll_once(reader)
        asked = await polled(reader, store)
        assert asked["list"] == 0
        assert asked["get"] + asked["head"] == 6
        await db.put(b"b", b"2")
        await poll_once(reader)
        assert await reader.get(b"b") == b"2"
        await poll_once(reader)
        await db.flush(l0=True)
        await db.put(b"c", b"3")
        await poll_once(reader)
        assert await reader.get(b"c") == b"3"


async def test_a_register_is_read_once_and_the_log_is_not_listed() -> None:
    store = CountingStore(memory_store())
    factory = IfMatchFactory()
    async with open_db(store, metastore=factory) as db, open_reader(store, metastore=factory) as reader:
        await db.put(b"a", b"1")
        await poll_once(reader)
        await poll_once(reader)
        assert await polled(reader, store) == {"head": 3, "get": 3}


async def test_a_reader_that_met_nothing_for_long_lists_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore(memory_store())
    async with open_db(store) as db, open_reader(store) as reader:
        await db.put(b"a", b"1")
        await poll_once(reader)
        await poll_once(reader)
        assert (await polled(reader, store))["list"] == 0
        follower = reader._follower
        assert follower is not None
        assert follower._quiet is not None
        began, head = follower._quiet
        follower._quiet = began - FULL_ROUND_S - 1, head
        assert (await polled(reader, store))["list"] == 2


async def test_confirm_lists_whatever_polls_do() -> None:
    store = CountingStore(memory_store())
    async with open_db(store) as db:
        await db._head.poll_once()
        await polled(db, store)
        store.asked.clear()
        await db.confirm()
        assert store.asked["list"] == 1


def test_an_idle_writer_may_poll_less_and_the_first_write_ends_that() -> None:
    clock, seqs, polls = Seconds(), [5], []
    idle = IdlePoll(
        lambda: polls.append(seqs[-1]),
        lambda: seqs[-1],
        slate.Settings(idle_poll_interval_ms=10_000),
        clock,
        lambda: False,
    )
    for _ in range(9):
        idle.tick()
        clock.seconds += 1
    assert polls == [5]
    seqs.append(6)
    idle.tick()
    assert polls == [5, 6]
    clock.seconds += 10
    idle.tick()
    idle.tick()
    assert polls == [5, 6, 6]


def test_a_writer_that_may_not_poll_less_polls_at_each_tick() -> None:
    polls: list[None] = []
    idle = IdlePoll(lambda: polls.append(None), lambda: 5, slate.Settings(), Seconds(), lambda: False)
    for _ in range(3):
        idle.tick()
    assert len(polls) == 3


def test_an_idle_writer_that_expects_an_ingest_leaves_out_no_poll() -> None:
    polls: list[None] = []
    expected = [True]
    idle = IdlePoll(
        lambda: polls.append(None),
        lambda: 5,
        slate.Settings(idle_poll_interval_ms=10_000),
        Seconds(),
        lambda: expected[-1],
    )
    assert idle.interval_s == 0.125
    for _ in range(3):
        idle.tick()
    assert len(polls) == 3
    expected.append(False)
    idle.tick()
    assert (idle.interval_s, len(polls)) == (1.0, 3)


async def test_an_idle_writer_polls_as_often_as_its_settings_say() -> None:
    store = CountingStore(memory_store())
    async with open_db(store, manifest_poll_interval_ms=5, idle_poll_interval_ms=10_000) as db:
        head = db._head
        await until(lambda: head.poll is not None and head.poll.due > 0 and not head.polling, "the first poll")
        await asyncio.sleep(0.05)
        store.asked.clear()
        await asyncio.sleep(0.1)
        assert not store.asked
        await db.put(b"a", b"1")
        await until(lambda: store.asked.total() > 0, "a poll after a write")


@pytest.mark.parametrize("at_once", [True, False])
async def test_flush_at_once_reaches_the_flusher(at_once: bool) -> None:
    store = StoreInHand(memory_store())
    async with open_db(store, flush_interval_ms=3_600_000, flush_at_once=at_once) as db:
        store.puts.clear()
        await db.put(b"first", b"1")
        second = await db.put(b"second", b"2", await_durable=False)
        await settle()
        assert len(store.puts) == (2 if at_once else 1)
        await db.flush()
        await second.durable()
        assert len(store.puts) == 2


async def test_status_tells_a_month_of_what_was_seen() -> None:
    requests = {"get": 100, "put": 30, "put_if": 20, "list": 10, "head": 100, "delete": 7}
    assert of_a_month(requests, 9.9) is None
    month = of_a_month(requests, 100)
    assert month == MonthlyRequests(puts=50 * 25_920, gets=200 * 25_920, lists=10 * 25_920)
    assert month.dollars() == pytest.approx((60 * 5.0 + 200 * 0.4) * 25_920 / 1_000_000)
    assert month.dollars(RequestPrices(puts=1.0, gets=0.0, lists=0.0)) == pytest.approx(50 * 25_920 / 1_000_000)
    store = memory_store()
    async with open_db(store) as db, open_reader(store) as reader:
        for handle in (db, reader):
            assert handle.status().monthly_requests is None
            handle._context.store_stats.opened -= 100
            seen = handle.status().monthly_requests
            assert seen is not None
            assert seen.gets > 0
