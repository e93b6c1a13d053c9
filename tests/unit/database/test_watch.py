"""Watches of a writer and of a reader: every durable change once, in order, from one source."""

from __future__ import annotations

import asyncio
import gc

import pytest

import slate_async as slate
from slate_async.engine.changes.change import Change
from slate_async.objectstore.memory import MemoryStore
from tests.engine import CONTIGUOUS, KINDS, Kind, memory_store, open_db, open_reader
from tests.support.manifests import head
from tests.unit.database.test_feed_ingests import ingest, rows_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Told = list[tuple[int, bytes, bytes | None]]


async def taken(watch: slate.Watch, count: int) -> list[Change]:
    """The next ``count`` changes."""
    async with asyncio.timeout(10):
        return [await anext(watch) for _ in range(count)]


def told(changes: list[Change]) -> Told:
    return [(change.seq, change.key, change.value) for change in changes]


async def nothing_more(watch: slate.Watch) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(watch)


@KIND
async def test_a_watch_gives_what_is_written_from_then_on(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        await db.put(b"a", b"before")
        watch = db.watch()
        assert watch.last_seq == 1
        await db.put(b"a", b"1", ttl=1000)
        await db.delete(b"a")
        first, second = await taken(watch, 2)
        assert told([first, second]) == [(2, b"a", b"1"), (3, b"a", None)]
        assert (first.op, second.op) == ("put", "delete")
        assert first.expire_time is not None
        assert second.expire_time is None
        assert watch.last_seq == 3
        await nothing_more(watch)


@KIND
async def test_watchers_get_what_matches_their_prefix(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        watches = {prefix: db.watch(prefix=prefix) for prefix in (b"", b"a", b"ab", b"b", b"abc")}
        async with asyncio.TaskGroup() as group:
            waiting = {
                prefix: group.create_task(taken(watch, count))
                for (prefix, watch), count in zip(watches.items(), (5, 3, 2, 1, 1), strict=True)
            }
            await asyncio.sleep(0)
            for key in (b"a", b"ab", b"abc", b"b", b"c"):
                await db.put(key, key)
        for prefix, task in waiting.items():
            expected = [key for key in (b"a", b"ab", b"abc", b"b", b"c") if key.startswith(prefix)]
            assert [change.key for change in task.result()] == expected
        assert watches[b"b"].last_seq == 5, "what does not match is done with, too"


@KIND
async def test_rows_are_given_once_they_are_durable(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, flush_interval_ms=60_000, flush_at_once=False) as db:
        async with db.watch() as watch:
            await db.put(b"z", b"")
            await taken(watch, 1)
            await db.put(b"a", b"1", await_durable=False)
            await nothing_more(watch)
            await db.flush()
            assert told(await taken(watch, 1)) == [(2, b"a", b"1")]


@KIND
async def test_a_number_in_memory_is_no_request(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        async with db.watch():
            for number in range(20):
                await db.put(b"%02d" % number, b"")
            requests = db.metrics()
            async with db.watch(from_seq=5) as watch:
                assert [change.seq for change in await taken(watch, 15)] == list(range(6, 21))
            after = db.metrics()
            assert after["watch.feeds"] == 0
            assert {name: after[name] for name in after if name.startswith(("store.", "metadata."))} == {
                name: requests[name] for name in requests if name.startswith(("store.", "metadata."))
            }


async def test_a_thousand_watchers_are_no_request() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db, asyncio.TaskGroup() as group:
        for number in range(200):  # what is written without watchers
            await db.put(b"%d" % (number % 10), b"")
        without = requests_of(db)
        watches = [db.watch(prefix=b"%d" % (number % 10)) for number in range(1_000)]
        tasks = [group.create_task(taken(watch, 20)) for watch in watches]
        await asyncio.sleep(0)
        for number in range(200):
            await db.put(b"%d" % (number % 10), b"")
        for number, task in enumerate(tasks):
            found = [change.seq for change in await task]
            assert found == list(range(201 + number % 10, 401, 10))
        after = requests_of(db)
        assert {name: after[name] - without[name] for name in after if after[name] != without[name]} == {
            "store.requests.put_if": 200
        }, "the log objects of the writes"


def requests_of(db: slate.Db) -> dict[str, int | float]:
    """What was asked of the store so far, and of the metastore, which is there, too."""
    return {name: count for name, count in db.metrics().items() if ".requests" in name}


@KIND
async def test_a_number_that_has_left_memory_is_read_by_a_feed(kind: Kind) -> None:
    async with open_db(memory_store(), kind, watch_buffer_rows=4, retention_ms=3_600_000) as db:
        for number in range(20):
            await db.put(b"%02d" % number, b"")
        await db.flush(l0=True)
        async with db.watch(from_seq=0) as watch, db.watch(from_seq=3) as other:
            assert [change.seq for change in await taken(watch, 20)] == list(range(1, 21))
            assert [change.seq for change in await taken(other, 17)] == list(range(4, 21))
            await db.put(b"more", b"")
            assert [change.seq for change in await taken(watch, 1)] == [21]
            assert db.metrics()["watch.behind"] == 0, "they go on from memory"


@KIND
async def test_a_slow_watcher_goes_over_to_the_feed_and_back(kind: Kind) -> None:
    async with open_db(memory_store(), kind, watch_buffer_rows=4) as db:
        async with db.watch() as slow, db.watch() as fast:
            seen = []
            for number in range(40):
                await db.put(b"%02d" % number, b"")
                seen += await taken(fast, 1)
            assert [change.seq for change in seen] == list(range(1, 41))
            assert db.metrics()["watch.lagged"] == 1
            assert [change.seq for change in await taken(slow, 40)] == list(range(1, 41))
            feeds = db.metrics()["watch.feeds"]
            assert feeds >= 1
            await db.put(b"more", b"")
            assert [change.seq for change in await taken(slow, 1)] == [41]
            assert db.metrics()["watch.feeds"] == feeds


async def retained(store: MemoryStore) -> list[int]:
    """Up to where feeds have no need of changes, of each subscription."""
    return [checkpoint.feed.seq for checkpoint in (await head(store)).checkpoints if checkpoint.feed is not None]


async def nothing_retained(store: MemoryStore) -> None:
    async with asyncio.timeout(10):
        while await retained(store):  # noqa: ASYNC110 - of the store
            await asyncio.sleep(0.01)


@KIND
async def test_what_a_slow_watcher_needs_is_there_whatever_is_compacted(kind: Kind) -> None:
    """Nothing else would retain it."""
    store = memory_store()
    async with open_db(store, kind, watch_buffer_rows=4, retention_ms=0) as db:
        async with db.watch() as slow:
            for number in range(30):
                await db.put(b"%02d" % (number % 3), b"%d" % number)
                await db.compact(full=True)
            assert await retained(store)
            assert [change.seq for change in await taken(slow, 10)] == list(range(1, 11))
            for number in range(30, 60):
                await db.put(b"%02d" % (number % 3), b"%d" % number)
                await db.compact(full=True)
            found = await taken(slow, 50)
            assert [(change.seq, change.value) for change in found] == [
                (number + 1, b"%d" % number) for number in range(10, 60)
            ]
            await nothing_retained(store)
            assert db.metrics()["watch.behind"] == 0


@KIND
async def test_a_watcher_within_what_memory_keeps_is_no_feed(kind: Kind) -> None:
    async with open_db(memory_store(), kind, watch_buffer_rows=100) as db:
        async with db.watch() as slow:
            for number in range(100):
                await db.put(b"%02d" % number, b"", await_durable=False)
            await db.flush()
            await taken(slow, 100)
            await db.put(b"more", b"")
            assert [change.seq for change in await taken(slow, 1)] == [101]
            assert db.metrics()["watch.feeds"] == 0


@KIND
async def test_a_watcher_that_is_passed_over_gets_all(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, watch_buffer_rows=8, retention_ms=0) as db:
        async with db.watch() as slow, db.watch() as slower:
            for number in range(3_000):
                await db.put(b"%02d" % (number % 3), b"", await_durable=number % 500 == 0)
            await db.compact(full=True)
            assert [change.seq for change in await taken(slow, 3_000)] == list(range(1, 3_001))
            await db.put(b"more", b"")
            assert [change.seq for change in await taken(slow, 1)] == [3_001]
            await db.compact(full=True)
            assert [change.seq for change in await taken(slower, 3_001)] == list(range(1, 3_002))
            await nothing_retained(store)


@KIND
async def test_a_watch_that_is_left_while_it_is_behind_retains_nothing(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, watch_buffer_rows=4, retention_ms=0) as db:
        async with db.watch() as slow:
            for number in range(30):
                await db.put(b"%02d" % number, b"")
            await taken(slow, 6)
        await nothing_retained(store)
        watch = db.watch()
        await nothing_more(watch)
        for number in range(30):
            await db.put(b"%02d" % number, b"")
        await taken(watch, 6)
        assert await retained(store)
    assert not await retained(store), "closing the database lets go of it"
    with pytest.raises(slate.ClosedError) as caught:
        await taken(watch, 1)
    assert caught.value.last_seq == watch.last_seq == 36


@KIND
async def test_a_slow_watcher_that_wants_an_error_gets_it_behind_what_waited(kind: Kind) -> None:
    async with open_db(memory_store(), kind, watch_buffer_rows=4) as db:
        async with db.watch(on_lag="error") as watch:
            for number in range(10):
                await db.put(b"%02d" % number, b"")
            assert [change.seq for change in await taken(watch, 4)] == [1, 2, 3, 4]
            for _ in range(2):
                with pytest.raises(slate.ConflictError, match="too slow") as caught:
                    await anext(watch)
                assert (caught.value.reason, caught.value.last_seq) == ("lagged", 4)


@KIND
async def test_the_bytes_that_wait_are_limited(kind: Kind) -> None:
    async with open_db(memory_store(), kind, watch_buffer_bytes=10_000) as db:
        async with db.watch(on_lag="error") as watch:
            for _ in range(4):
                await db.put(b"k", bytes(4_000))
            assert len(await taken(watch, 2)) == 2
            with pytest.raises(slate.ConflictError, match="too slow"):
                await anext(watch)


@KIND
async def test_an_ingest_is_read_once_for_all_watchers(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        async with db.watch() as one, db.watch(prefix=b"i00") as other:
            await db.put(b"a", b"before")
            assert await ingest(store, db, "one", rows_of(b"i", 20)) == 2
            await db.put(b"a", b"after")
            found = await taken(one, 22)
            assert told(found) == [
                (1, b"a", b"before"),
                *((2, key, b"i") for key in rows_of(b"i", 20)),
                (3, b"a", b"after"),
            ]
            assert told(await taken(other, 10)) == [(2, key, b"i") for key in rows_of(b"i", 10)]
            assert db.metrics()["watch.feeds"] == db.metrics()["watch.lost"] == 0


@KIND
async def test_a_watcher_that_is_slow_within_an_ingest_gets_the_rest_of_it(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, watch_buffer_rows=8, retention_ms=3_600_000) as db:
        async with db.watch() as watch:
            await db.put(b"a", b"before")
            await ingest(store, db, "one", rows_of(b"i", 60))
            await db.put(b"a", b"after")
            assert told(await taken(watch, 62)) == [
                (1, b"a", b"before"),
                *((2, key, b"i") for key in rows_of(b"i", 60)),
                (3, b"a", b"after"),
            ]
            await nothing_more(watch)


@KIND
async def test_a_number_below_the_floor_is_refused_by_name(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        for number in range(5):
            await db.put(b"a", b"%d" % number)
        await db.compact(full=True)
        await db.put(b"b", b"")
        for seq in (0, 2):
            with pytest.raises(slate.InvalidError, match="changes are kept from sequence number 5 on") as caught:
                await anext(db.watch(from_seq=seq))
            assert caught.value.last_seq == seq
            watch = db.watch(from_seq=seq, initial="snapshot")
            assert told(await taken(watch, 2)) == [(5, b"a", b"4"), (6, b"b", b"")]
        assert told(await taken(db.watch(from_seq=5), 1)) == [(6, b"b", b"")]


@KIND
async def test_a_step_that_is_cancelled_loses_nothing(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        async with db.watch() as watch:
            await nothing_more(watch)
            step = asyncio.ensure_future(anext(watch))
            await db.put(b"a", b"")
            step.cancel()
            found: list[Change] = []
            try:
                found.append(await step)
            except asyncio.CancelledError:
                found += await taken(watch, 1)
            assert [change.seq for change in found] == [1]


@KIND
async def test_closing_ends_watches(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        watch = db.watch()
        await db.put(b"a", b"")
        await taken(watch, 1)
        step = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
    with pytest.raises(slate.ClosedError) as caught:
        await step
    assert caught.value.last_seq == 1
    with pytest.raises(slate.ClosedError):
        await anext(watch)


@KIND
async def test_a_take_over_ends_watches(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        async with db.watch() as watch:
            await db.put(b"a", b"")
            await taken(watch, 1)
            step = asyncio.ensure_future(anext(watch))
            async with open_db(store, kind) as other:
                await other.put(b"b", b"")
                with pytest.raises(slate.FencedError):
                    await db.confirm()
                with pytest.raises(slate.FencedError) as caught:
                    await step
                assert caught.value.last_seq == 1
                assert told(await taken(other.watch(from_seq=1), 1)) == [(2, b"b", b"")]


async def test_bad_arguments_are_refused() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        for arguments, said in (
            ({"prefix": "text"}, "a prefix is bytes-like, not str"),
            ({"from_seq": -1}, "a sequence number is"),
            ({"from_seq": "then"}, "a sequence number is"),
            ({"from_seq": True}, "a sequence number is"),
            ({"initial": "all"}, "initial is 'snapshot' or 'error', not 'all'"),
            ({"on_lag": "wait"}, "on_lag is 'feed' or 'error', not 'wait'"),
        ):
            with pytest.raises(slate.InvalidError, match=said):
                db.watch(**arguments)  # type: ignore[arg-type]
        with pytest.raises(slate.InvalidError, match="7 is not durable yet, the newest durable one is 0"):
            await anext(db.watch(from_seq=7))


async def test_two_tasks_are_not_served() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        async with db.watch() as watch:
            step = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            with pytest.raises(slate.InvalidError, match="another task is waiting"):
                await anext(watch)
            step.cancel()


async def test_closing_a_watch_ends_its_wait() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        async with db.watch() as watch:
            step = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
        with pytest.raises(slate.ClosedError, match="the watch is closed"):
            await step


async def test_a_watch_that_is_closed_while_it_begins_leaves_nothing() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db, open_reader(store, manifest_poll_interval_ms=60_000) as reader:
        await db.put(b"a", b"")
        watch = reader.watch(from_seq=1)  # which it has not seen
        step = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        watch.close()
        with pytest.raises(slate.ClosedError, match="the watch is closed"):
            await step
        assert reader.metrics()["watch.watchers"] == 0


async def test_each_step_says_how_far_the_watch_is() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        with pytest.raises(slate.InvalidError, match="not durable yet") as caught:
            async with db.watch(from_seq=7):
                pass
        assert caught.value.last_seq == 7
        watch = db.watch()
        batch = slate.WriteBatch()
        for number in range(3):
            batch.put(b"%d" % number, b"")
        await db.write(batch)
        await taken(watch, 1)
    with pytest.raises(slate.ClosedError) as closed:
        await watch.next_changes()
    assert closed.value.last_seq == watch.last_seq == 1
    for from_seq, last_seq in ((1, 1), ("now", 3)):
        with pytest.raises(slate.ClosedError) as refused:
            db.watch(from_seq=from_seq)
        assert refused.value.last_seq == last_seq, "another one begins where this one was to begin"


async def test_a_watcher_that_joins_a_snapshot_gets_what_it_asked_for() -> None:
    """Alone or beside one that begins with a snapshot; nobody misses deletes without an error."""
    async with open_db(memory_store(), CONTIGUOUS, watch_buffer_rows=8) as db:
        for number in range(3_000):
            await db.put(b"%04d" % number, b"", await_durable=False)
        for number in range(1_000):
            await db.delete(b"%04d" % number, await_durable=False)
        await db.compact(full=True)
        async with db.watch(from_seq=0, initial="snapshot") as slow:
            found = await taken(slow, 10)
            with pytest.raises(slate.NotFoundError, match="changes are kept from"):
                await taken(db.watch(from_seq=2_500), 1)
            async with db.watch(from_seq=0, initial="snapshot") as other:
                assert len(await taken(other, 2_000)) == 2_000
            found += await taken(slow, 1_990)
            assert [change.seq for change in found] == list(range(1_001, 3_001))


async def test_a_watcher_that_pauses_inside_an_ingest_gets_each_row_once() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, watch_buffer_rows=100, retention_ms=3_600_000) as db:
        rows = {b"%05d" % number: bytes(10 + number % 50) for number in range(3_000)}
        await ingest(store, db, "one", rows)
        await db.flush(l0=True)
        async with db.watch(from_seq=0) as slow, db.watch(from_seq=0) as fast:
            early = await taken(slow, 1_500)
            assert [change.key for change in await taken(fast, 3_000)] == list(rows)
            assert [change.key for change in early + await taken(slow, 1_500)] == list(rows)


async def test_nothing_is_kept_without_a_watch() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        watch = db.watch()
        await db.put(b"a", b"")
        await taken(watch, 1)
        assert (db.metrics()["watch.watchers"], db.metrics()["watch.recent_bytes"] > 0) == (1, True)
        del watch
        gc.collect()
        await asyncio.sleep(0.01)
        await db.put(b"b", b"")
        assert (db.metrics()["watch.watchers"], db.metrics()["watch.recent_bytes"]) == (0, 0)


@KIND
async def test_a_reader_is_watched_one_poll_later(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db, open_reader(store, manifest_poll_interval_ms=10) as reader:
        async with reader.watch(prefix=b"a") as one, reader.watch() as other:
            await db.put(b"a", b"1")
            await db.put(b"b", b"2")
            assert told(await taken(one, 1)) == [(1, b"a", b"1")]
            assert told(await taken(other, 2)) == [(1, b"a", b"1"), (2, b"b", b"2")]
            await ingest(store, db, "one", rows_of(b"a", 20))
            assert told(await taken(one, 20)) == [(3, key, b"a") for key in rows_of(b"a", 20)]
            await db.delete(b"a")
            assert told(await taken(one, 1)) == [(4, b"a", None)]
            assert [change.seq for change in await taken(other, 21)] == [3] * 20 + [4]
        async with reader.watch(from_seq=1) as late:
            assert [change.seq for change in await taken(late, 22)] == [2] + [3] * 20 + [4]


async def test_a_checkpoint_has_nothing_to_watch() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"")
        made = await db.checkpoints.create()
        async with open_reader(store, checkpoint=made.id) as reader:
            with pytest.raises(slate.InvalidError, match="sees no changes"):
                reader.watch()
