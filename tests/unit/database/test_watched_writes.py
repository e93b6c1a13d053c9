"""Watches see rows of every kind of write, and end with the database's epoch."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from tests.engine import CONTIGUOUS, KINDS, Kind, memory_store, open_db, starts
from tests.unit.database.away import SHORT, back, failed, outages

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
