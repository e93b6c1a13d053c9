"""Watches see rows of every kind of write, whatever the store does, and end with the database's epoch."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from tests.engine import CONTIGUOUS, KINDS, Kind, memory_store, open_db, open_reader, starts
from tests.unit.database.away import SHORT, Outages, back, failed, outages
from tests.unit.database.test_feed_ingests import ingest, rows_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)


async def taken(watch: slate.Watch, count: int) -> list[slate.Change]:
    """The next ``count`` changes."""
    async with asyncio.timeout(10):
        return [await anext(watch) for _ in range(count)]


@KIND
async def test_rows_of_all_writes_are_given(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db, db.watch() as watch:
        batch = slate.WriteBatch()
        batch.put(b"a", b"1")
        batch.delete(b"b")
        await db.write(batch)
        async with db.transaction() as tx:
            tx.put(b"c", b"2")
            tx.delete(b"a")
        await db.put(b"d", b"3", if_absent=True)
        with pytest.raises(slate.ConflictError):
            await db.put(b"d", b"4", if_absent=True)
        await db.update(b"d", lambda value: (value or b"") + b"!")
        assert await db.increment(b"n") == 1
        found = [(change.seq, change.op, change.key, change.value) for change in await taken(watch, 7)]
        assert found == [
            (1, "put", b"a", b"1"),
            (2, "delete", b"b", None),
            (3, "put", b"c", b"2"),
            (4, "delete", b"a", None),
            (5, "put", b"d", b"3"),
            (6, "put", b"d", b"3!"),
            (7, found[6][1], b"n", found[6][3]),
        ]


async def test_a_transaction_that_failed_gives_nothing() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db, db.watch() as watch:
        tx = db.transaction()
        await tx.get(b"a")
        tx.put(b"b", b"lost")
        await db.put(b"a", b"between")
        with pytest.raises(slate.ConflictError):
            await tx.commit()
        await db.put(b"c", b"")
        assert [change.key for change in await taken(watch, 2)] == [b"a", b"c"]


@KIND
async def test_an_outage_ends_watches(kind: Kind) -> None:
    """What was unknown may be in, so each watcher has to say from where it goes on."""
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        async with db.watch() as watch:
            await db.put(b"a", b"1")
            assert (await taken(watch, 1))[0].key == b"a"
            store.down = True
            (sent,) = starts(db.put(b"b", b"1"))
            await failed(sent)
            store.down = False
            await back(db)
            await db.put(b"c", b"1")
            for _ in range(2):
                with pytest.raises(slate.ConflictError, match="opened again") as caught:
                    await taken(watch, 1)
                assert (caught.value.reason, caught.value.last_seq) == ("reopened", 1)
        async with db.watch(from_seq=1) as again:
            async with asyncio.timeout(10):
                while (change := await anext(again)).key != b"c":
                    assert change.key == b"b"


async def test_watchers_that_come_back_at_once_take_turns() -> None:
    """Each looks through all that memory has for it, so other tasks run between them."""
    async with open_db(memory_store(), CONTIGUOUS) as db, db.watch() as first:
        for number in range(2_000):
            await db.put(b"%d" % (number % 10), b"", await_durable=False)
        await db.flush()
        await taken(first, 2_000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        watches = [db.watch(prefix=b"%d" % (number % 10), from_seq=100) for number in range(100)]
        found = await asyncio.gather(*(taken(watch, 190) for watch in watches))
        counting.cancel()
        assert turns >= 100
        assert [change.seq for change in found[3]] == list(range(104, 2_001, 10))
        for watch in watches:
            watch.close()


def without_ssts(store: Outages) -> Outages:
    """What a reader reads by, that does not get at SSTs now and then."""
    store.away = lambda key: "sst/" in key
    return store


async def all_taken(watch: slate.Watch, count: int) -> list[slate.Change]:
    """The next ``count`` changes, however often the store did not answer."""
    found: list[slate.Change] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            try:
                found.append(await anext(watch))
            except slate.UnavailableError:
                continue
    return found


async def test_a_watcher_that_was_busy_while_the_store_was_away_gets_all() -> None:
    store = memory_store()
    seen = without_ssts(Outages(store))
    async with open_db(store, CONTIGUOUS) as db:
        for number in range(50):
            await db.put(b"%d" % number, b"", await_durable=False)
        await db.flush(l0=True)
        async with open_reader(seen, retry_deadline_ms=100) as reader, reader.watch(from_seq=0) as watch:
            seen.down = True
            with pytest.raises(slate.UnavailableError):
                await anext(watch)
            await asyncio.sleep(0.8)  # another error waits by now
            seen.down = False
            await asyncio.sleep(0.1)
            assert [change.seq for change in await all_taken(watch, 50)] == list(range(1, 51))


async def test_an_ingest_comes_once_beside_a_reader_whose_store_was_away() -> None:
    store = memory_store()
    seen = without_ssts(Outages(store))
    async with open_db(store, CONTIGUOUS) as db:
        options = {"retry_deadline_ms": 100, "manifest_poll_interval_ms": 10, "watch_buffer_rows": 50}
        async with open_reader(seen, **options) as reader, reader.watch() as watch, reader.watch() as other:
            waiting = asyncio.ensure_future(all_taken(watch, 1_001))
            await ingest(store, db, "one", rows_of(b"i", 1_000))
            await db.put(b"z", b"")
            for _ in range(3):
                seen.down = not seen.down
                await asyncio.sleep(0.15)
            seen.down = False
            keys = [*rows_of(b"i", 1_000), b"z"]
            assert [change.key for change in await waiting] == keys
            assert [change.key for change in await all_taken(other, 1_001)] == keys
