"""What a change feed retains: against compaction and collectors, across closing, takeovers and crashes."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from slate_async.engine.changes.source import ChangeSource
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.state import Checkpoint
from tests.engine import KINDS, START_MS, Kind, ManualClock, abandon, memory_store, open_db, open_reader, until
from tests.support.feeds import all_of, taken
from tests.support.manifests import collect, commit, head

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
QUICK = {"manifest_poll_interval_ms": 10, "checkpoint_lifetime_ms": 80}
"""A subscription looks at the clock every 10 ms; the clock is turned by hand."""


async def subscriptions(store: MemoryStore) -> list[Checkpoint]:
    return [checkpoint for checkpoint in (await head(store)).checkpoints if checkpoint.owner == "feed"]


async def write(db: slate.Db, first: int, last: int) -> None:
    """Overwrite one key, each version in an L0 SST of its own."""
    for number in range(first, last + 1):
        assert (await db.put(b"key", b"%d" % number)).seq == number
        await db.flush(l0=True)


@KIND
async def test_a_subscription_by_name_keeps_what_was_not_acknowledged_while_nobody_reads(kind: Kind) -> None:
    """Writers come and go, everything is compacted into the newest version, and the log collected, twice."""
    store = memory_store()
    db = await open_db(store, kind)
    await write(db, 1, 6)
    async with db.changes(subscription="copy") as feed:
        assert [change.seq for change in await taken(feed, 5)] == [1, 2, 3, 4, 5]
        await feed.acknowledge(3)
    for round_ in range(2):
        await write(db, 7 + 3 * round_, 9 + 3 * round_)
        await abandon(db)
        db = await open_db(store, kind)
        await db.compact(full=True)
        await collect(store, START_MS)
    await db.put(b"key", b"13")
    async with db.changes(subscription="copy", follow=False) as feed:
        found = [change async for change in feed]
        await feed.acknowledge(13, now=True)
    assert [(change.seq, change.value) for change in found] == [(n, b"%d" % n) for n in range(4, 14)]
    [subscription] = await subscriptions(store)
    assert subscription.feed is not None
    assert (subscription.feed.seq, subscription.expire_ms, subscription.name) == (13, None, "copy")
    await db.close()


@KIND
async def test_resuming_inside_the_log_delivers_each_row_once(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        seen: list[int] = []
        async with db.changes(subscription="copy"):
            pass
        for number in range(12):
            await db.put(b"key", b"%d" % number)
            if number % 4 == 3:
                await db.compact(full=True)
                await collect(store, START_MS)
            async with db.changes(subscription="copy") as feed:
                [change] = await taken(feed, 1)
                seen.append(change.seq)
                await feed.acknowledge(change.seq)
        assert seen == list(range(1, 13))


async def test_opening_a_subscription_takes_it_over() -> None:
    async with open_db(memory_store()) as db, db.changes(subscription="copy") as before:
        await db.put(b"a", b"1")
        await db.put(b"a", b"2")
        assert [change.seq for change in await taken(before, 1)] == [1]
        async with db.changes(subscription="copy") as after:
            assert [change.seq for change in await taken(after, 2)] == [1, 2]
            await db.put(b"a", b"3")
            await taken(before, 1)  # read before
            with pytest.raises(slate.InvalidError, match=r"'copy'.*no longer exists.*another feed"):
                await taken(before, 1)
            with pytest.raises(slate.InvalidError, match="no longer exists"):
                await before.acknowledge(2, now=True)
            assert [change.seq for change in await taken(after, 1)] == [3]


async def test_from_seq_goes_before_the_subscription_and_not_below_it() -> None:
    async with open_db(memory_store()) as db:
        for _ in range(5):
            await db.put(b"a", b"1")
        async with db.changes(subscription="copy") as feed:
            await taken(feed, 4)
            await feed.acknowledge(2)
        assert [change.seq for change in await all_of(db.changes(subscription="copy", from_seq=4, follow=False))] == [5]
        with pytest.raises(slate.InvalidError, match="acknowledged up to sequence number 2"):
            await all_of(db.changes(subscription="copy", from_seq=1, follow=False))
        async with db.changes(subscription="copy") as feed:
            with pytest.raises(slate.InvalidError, match="not given"):
                await feed.acknowledge(3)


@KIND
async def test_a_feed_without_a_name_moves_at_half_life_and_removes_its_subscription(kind: Kind) -> None:
    store, clock = memory_store(), ManualClock()
    async with open_db(store, kind, clock=clock, **QUICK) as db:
        await write(db, 1, 3)
        async with db.changes() as feed:
            await taken(feed, 3)
            await write(db, 4, 6)
            await taken(feed, 2)  # which counts the three before as consumed
            [before] = await subscriptions(store)
            assert before.feed is not None
            assert (before.feed.seq, before.expire_ms) == (0, START_MS + 80)
            clock.wall_ms += 50
            moved = db.metrics()
            await until(
                lambda: db.metrics()["changes.subscriptions_moved"] > moved["changes.subscriptions_moved"],
                "the subscription to move",
            )
            [after] = await subscriptions(store)
            assert after.feed is not None
            assert (after.id, after.feed.seq, after.expire_ms) == (before.id, 3, START_MS + 130)
            assert after.ref.version > before.ref.version
        assert await subscriptions(store) == []


async def test_a_subscription_of_a_short_life_is_lengthened_in_time() -> None:
    """A feed looks at the clock as often as the shorter of two lives asks for: its subscription's, and a
    checkpoint's."""
    store, clock = memory_store(), ManualClock()
    async with open_db(store, clock=clock) as db:
        await write(db, 1, 2)
        async with db.changes(subscription="copy", from_seq=0, subscription_lifetime=0.04) as feed:
            await taken(feed, 1)
            clock.wall_ms += 30
            await until(lambda: db.metrics()["changes.subscriptions_moved"] > 0, "the subscription to be lengthened")
            [subscription] = await subscriptions(store)
            assert subscription.expire_ms == START_MS + 70


@KIND
async def test_a_lost_subscription_is_made_anew_if_nothing_is_missing(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db, db.changes() as feed:
        await write(db, 1, 2)
        assert [change.seq for change in await taken(feed, 2)] == [1, 2]
        [subscription] = await subscriptions(store)
        await commit(store, DeleteCheckpoints(frozenset((subscription.id,))))
        await write(db, 3, 5)
        await collect(store, START_MS)
        assert [change.seq for change in await taken(feed, 3)] == [3, 4, 5]
        assert db.metrics()["changes.subscriptions_lost"] == 1
        [subscription] = await subscriptions(store)
        await commit(store, DeleteCheckpoints(frozenset((subscription.id,))))
        await write(db, 6, 8)
        await db.compact(full=True)
        await collect(store, START_MS)
        with pytest.raises(slate.InvalidError, match=r"from sequence number 8 on.*from 5 on"):
            await taken(feed, 1)


async def test_a_subscription_that_expired_and_was_collected_is_reported() -> None:
    store, clock = memory_store(), ManualClock()
    async with open_db(store, clock=clock) as db:
        await write(db, 1, 3)
        with pytest.raises(slate.InvalidError, match="no subscription 'copy'"):
            await all_of(db.changes(subscription="copy", subscription_lifetime=60))
        async with db.changes(subscription="copy", from_seq=0, subscription_lifetime=60) as feed:
            await taken(feed, 2)
            await feed.acknowledge(1)
        clock.wall_ms += 61_000
        await commit(store, AdvanceGc(clock.wall_ms, skew_ms=0))
        await db.compact(full=True)
        with pytest.raises(slate.InvalidError, match="no subscription 'copy'"):
            await all_of(db.changes(subscription="copy", subscription_lifetime=60))
        with pytest.raises(slate.InvalidError, match=r"from sequence number 3 on"):
            await all_of(db.changes(subscription="copy", from_seq=1, subscription_lifetime=60))


async def test_a_subscription_is_listed_and_deleted_by_its_name() -> None:
    async with open_db(memory_store()) as db:
        await db.put(b"a", b"1")
        async with db.changes(subscription="copy") as named, db.changes() as nameless:
            await taken(named, 1)
            await taken(nameless, 1)
            [one, other] = [checkpoint for checkpoint in await db.checkpoints.list() if checkpoint.owner == "feed"]
            assert (one.name, other.name) == ("copy", None)
            with pytest.raises(slate.InvalidError, match="a feed made it for itself"):
                await db.checkpoints.delete(other.id)
            await db.checkpoints.delete("copy")
            await db.put(b"a", b"2")
            with pytest.raises(slate.InvalidError, match="no longer exists"):
                await taken(named, 1)
            assert [change.seq for change in await taken(nameless, 1)] == [2]


async def none_held(store: MemoryStore) -> None:
    for _ in range(2_000):
        if not await subscriptions(store):
            return
        await asyncio.sleep(0.005)
    pytest.fail("the subscription is still there")


async def test_a_dropped_feed_frees_its_subscription() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"a", b"1")
        feed = db.changes()
        await taken(feed, 1)
        assert len(await subscriptions(store)) == 1
        del feed
        await none_held(store)


async def test_closing_that_is_cancelled_frees_the_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cancelled scope of anyio, where the task that closes is cancelled at once."""
    begun = asyncio.Event()

    async def never(source: ChangeSource, until: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    store = memory_store()
    async with open_db(store) as db:
        monkeypatch.setattr(ChangeSource, "read", never)
        feed = await db.changes().__aenter__()
        reading = asyncio.ensure_future(anext(feed.batches()))
        await begun.wait()
        reading.cancel()
        closing = asyncio.ensure_future(feed.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await none_held(store)


@pytest.mark.parametrize("way", ["closed", "dropped"])
async def test_a_feed_given_up_before_it_has_begun_frees_its_subscription(way: str) -> None:
    store = memory_store()
    async with open_db(store) as db:
        feed = db.changes()
        first = asyncio.ensure_future(anext(aiter(feed)))
        for _ in range(2):  # the second is needed where the feed finds its budget of the loop's time spent
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        if way == "closed":
            closing = asyncio.ensure_future(feed.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
        del feed, first
        await until(lambda: db.metrics()["changes.subscriptions_made"] > 0, "the subscription")
        await none_held(store)


@KIND
async def test_a_reader_that_writes_nothing_goes_on_while_it_can(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await write(db, 1, 3)
        async with open_reader(store, pin=False) as reader, reader.changes() as feed:
            with pytest.raises(slate.InvalidError, match="pin=False"):
                reader.changes(subscription="copy")
            assert [change.seq for change in await taken(feed, 3)] == [1, 2, 3]
            await write(db, 4, 6)
            await collect(store, START_MS)
            await reader.refresh()
            assert [change.seq for change in await taken(feed, 3)] == [4, 5, 6]
            await write(db, 7, 9)
            await db.compact(full=True)
            await collect(store, START_MS)
            await reader.refresh()
            with pytest.raises(slate.InvalidError, match=r"from sequence number 9 on.*from 6 on"):
                await taken(feed, 1)
        assert await subscriptions(store) == []


async def test_how_long_a_subscription_lives_may_change() -> None:
    store, clock = memory_store(), ManualClock()
    async with open_db(store, clock=clock) as db:
        async with db.changes(subscription="copy", from_seq=0, subscription_lifetime=60) as feed:
            assert [subscription.expire_ms for subscription in await subscriptions(store)] == [START_MS + 60_000]
            clock.wall_ms += 1_000
            await feed.renew(3_600)
            assert [subscription.expire_ms for subscription in await subscriptions(store)] == [START_MS + 3_601_000]
            await feed.renew(None)
            assert [subscription.expire_ms for subscription in await subscriptions(store)] == [None]
        async with db.changes() as feed:
            with pytest.raises(slate.InvalidError, match="no subscription with a name"):
                await feed.renew(60)
