"""Followers beside a writer: what they see, what they write, what they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    Kind,
    ManualClock,
    contents,
    memory_store,
    open_db,
    open_reader,
    settle,
)


async def test_its_reads_are_counted_snapshots_among_them() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"1")
        async with open_reader(store) as reader:
            assert await reader.get(b"a") == b"1"
            async with reader.snapshot():
                assert reader.metrics()["db.reads"] == 2


async def test_a_follower_sees_what_is_durable_in_memory_log_and_l0(
    db: slate.Db, store: ObjectStore, clock: ManualClock
) -> None:
    await db.put(b"a", b"1")
    async with open_reader(store, clock=clock, reader_memtable_bytes=2_000) as reader:
        assert await reader.get(b"a") == b"1"
        expected = {b"a": b"1"}
        for number in range(200):
            key, value = b"%03d" % (number % 70), b"%d" % number * 20
            await db.put(key, value, await_durable=number % 10 == 9)
            expected[key] = value
            if number % 60 == 59:
                await db.flush(l0=True)
        await db.delete(b"a")
        del expected[b"a"]
        assert await reader.get(b"a") == b"1", "nothing new before it looks"
        await reader.refresh()
        assert await contents(reader) == await contents(db) == expected
        assert await reader.get_many([b"a", b"000", b"069"]) == [None, expected[b"000"], expected[b"069"]]
        row = await reader.get_row(b"069")
        assert row == await db.get_row(b"069")
        status = reader.status()
        assert (status.last_seq, status.following, status.state) == (201 + 1, True, "open")


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_replayed_rows_are_held_in_tables_of_bounded_size(kind: Kind) -> None:
    memory, limit, row = memory_store(), 5_000, 500
    async with open_db(memory, kind) as db, open_reader(memory, reader_memtable_bytes=limit) as reader:
        for number in range(60):
            await db.put(b"%03d" % number, bytes(row))
        await reader.refresh()
        tables = [table for table in reader._source.reader_state.memtables if len(table)]
        assert sum(len(table) for table in tables) == 60
        assert max(table.nbytes for table in tables) < limit + 2 * row
        assert reader.status().memtables == len(tables)


async def test_a_follower_that_finds_nothing_changed_writes_nothing(
    db: slate.Db, store: ObjectStore, clock: ManualClock
) -> None:
    await db.put(b"a", b"1")
    await db.flush(l0=True)
    async with open_reader(store, clock=clock) as reader:
        version = reader.status().manifest_version
        for _ in range(5):
            await db.put(b"b", b"2")
            await reader.refresh()
        assert await reader.get(b"b") == b"2"
        assert reader.metrics()["manifest.commits"] == 1, "its checkpoint"
        await db.confirm()
        assert db.status().manifest_version == version


async def test_expiry_is_judged_by_the_readers_clock(db: slate.Db, store: ObjectStore, clock: ManualClock) -> None:
    await db.put(b"a", b"1", ttl=10)
    async with open_reader(store, clock=clock) as reader:
        snapshot = reader.snapshot()
        assert await reader.get(b"a") == b"1"
        clock.wall_ms += 10_000
        assert await reader.get(b"a") is None
        assert await snapshot.get(b"a") == b"1"
        snapshot.close()


async def test_a_follower_through_take_overs(store: ObjectStore, kind: Kind) -> None:
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
    async with open_reader(store) as reader:
        for number in range(3):
            async with open_db(store, kind) as db:
                await db.put(b"%d" % number, b"x")
            await reader.refresh()
            assert await reader.get(b"%d" % number) == b"x"
        assert len(await contents(reader)) == 4


async def test_many_readers_of_one_environment_follow_by_themselves(tmp_path: Path, kind: Kind) -> None:
    path, polling = tmp_path / "db", slate.Settings(manifest_poll_interval_ms=20)
    async with slate.Environment() as environment:
        async with environment.open(path, settings=kind.settings()) as db:
            readers = [await environment.open_reader(path, settings=polling, pin=number < 5) for number in range(10)]
            waiting = [asyncio.ensure_future(reader.wait_for(21)) for reader in readers]
            for number in range(20):
                await db.put(b"%d" % number, b"x")
            await db.flush(l0=True)
            await db.put(b"last", b"x")
            await asyncio.gather(*waiting)
            for reader in readers:
                assert len(await contents(reader)) == 21
                assert reader.status().failed_polls == 0
        with pytest.raises(slate.InvalidError, match="no database"):
            await environment.open_reader(tmp_path / "nothing")
        assert not (tmp_path / "nothing").exists()


async def test_a_closed_reader_says_so(db: slate.Db, store: ObjectStore) -> None:
    reader = await open_reader(store)
    scan, waiting = reader.scan(), asyncio.ensure_future(reader.wait_for(1))
    await settle()
    await reader.close()
    await reader.close()
    with pytest.raises(slate.ClosedError):
        await waiting
    with pytest.raises(slate.ClosedError):
        await reader.get(b"a")
    with pytest.raises(slate.ClosedError):
        await anext(aiter(scan))
    assert reader.status().state == "closed"


@pytest.mark.parametrize("lifetime", [1, 2_000])
def test_a_lifetime_within_two_polls_is_a_contradiction(lifetime: int) -> None:
    with pytest.raises(slate.InvalidError, match=r"checkpoint_lifetime_ms .* twice manifest_poll_interval_ms"):
        slate.Settings(checkpoint_lifetime_ms=lifetime, manifest_poll_interval_ms=1_000)


async def test_a_snapshot_shows_rows_that_have_expired_if_asked_to(
    db: slate.Db, store: ObjectStore, clock: ManualClock
) -> None:
    await db.put(b"short", b"1", ttl=1.0)
    await db.put(b"long", b"2")
    await db.flush(l0=True)
    async with open_reader(store, clock=clock) as reader:
        clock.wall_ms += 2_000
        for view in (db, reader):
            assert await contents(view.snapshot()) == {b"long": b"2"}
            assert await contents(view.snapshot(include_expired=True)) == {b"short": b"1", b"long": b"2"}
            assert await contents(view.snapshot(durable=True, include_expired=True)) == {b"short": b"1", b"long": b"2"}
