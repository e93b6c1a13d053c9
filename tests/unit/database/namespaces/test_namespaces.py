"""Namespaces: the calls of a database on keys below a prefix, each namespace by itself."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import slate_async as slate
from slate_async.database.namespaces import clearing
from tests.engine import CONTIGUOUS, CONTIGUOUS_SST, ManualClock, contents, memory_store, open_db, open_reader


async def test_no_namespace_sees_another(db: slate.Db) -> None:
    names = ["a", "ab", "b", "a\x01", "\u00ff", "\U0010ffff"]
    spaces = {name: db.namespace(name) for name in names}
    await db.put(b"a", b"root")
    for name, space in spaces.items():
        await space.put(b"a", name.encode())
        await space.put(b"\xff\xff", b"last")
    inner = spaces["a"].namespace("a")
    await inner.put(b"k", b"inner")
    for name, space in spaces.items():
        own = {b"a": name.encode(), b"\xff\xff": b"last"}
        assert await contents(space) == (
            own | {inner.prefix[len(space.prefix) :] + b"k": b"inner"} if name == "a" else own
        )
    assert await contents(inner) == {b"k": b"inner"}
    assert [row async for row in db.scan(limit=1)] == [(b"a", b"root")]
    assert await db.get(b"\xfea\0a") == b"a", "the bytes are those of docs/format/namespace.md"
    await db.flush(l0=True)
    assert [key async for key, _ in spaces["ab"].scan(reverse=True)] == [b"\xff\xff", b"a"]


async def test_reads_are_those_of_a_database(db: slate.Db) -> None:
    space = db.namespace("t")
    await db.namespace("s").put(b"k5", b"other")
    await db.namespace("u").put(b"k5", b"other")
    model = {b"k%d" % number: b"%d" % number for number in range(10)}
    batch = slate.WriteBatch()
    for key, value in model.items():
        batch.put(key, value)
    handle = await space.write(batch)
    for flushed in (False, True):
        if flushed:
            await db.flush(l0=True)
        assert await space.get_many([b"k1", b"none", b"k2"]) == [b"1", None, b"2"]
        row = await space.get_row(b"k9")
        assert row is not None
        assert (row.key, row.value, row.seq) == (b"k9", b"9", handle.seq)
        assert await space.get_row(b"none") is None
        assert [key async for key, _ in space.scan(b"k3", b"k5")] == [b"k3", b"k4"]
        assert [key async for key, _ in space.scan(prefix=b"k", reverse=True, limit=2)] == [b"k9", b"k8"]
        assert [row.key async for row in space.scan(b"k8").rows()] == [b"k8", b"k9"]
        found = [batch async for batch in space.scan().batches(times=True)]
        assert [key for batch in found for key in batch.column("key").to_pylist()] == list(model)
        assert found[0].column_names == ["key", "value", "seq", "create_time", "expire_time"]
        assert (await space.stats()).live == 10
        assert (await space.row_statistics(prefix=b"k1")).live == 1
        splits = await space.splits(target_bytes=64)
        assert (splits[0].start, splits[-1].end) == (None, None)
        keys = [key for split in splits for key, _ in [row async for row in space.scan(split.start, split.end)]]
        assert keys == list(model)
    async with space.snapshot() as snapshot:
        await space.delete(b"k0")
        assert await snapshot.get(b"k0") == b"0"
        assert await contents(snapshot) == model
    assert await contents(space.as_of(seq=handle.seq)) == model


async def test_a_scan_of_a_namespace_gives_nothing_once_it_is_closed(db: slate.Db) -> None:
    space = db.namespace("t")
    for number in range(20):
        await space.put(b"%02d" % number, b"", await_durable=False)
    scan = space.scan()
    rows = aiter(scan)
    assert await anext(rows) == (b"00", b"")
    await scan.aclose()
    with pytest.raises(slate.InvalidError):
        await anext(rows)


async def test_writes_are_those_of_a_database(db: slate.Db) -> None:
    space = db.namespace("t")
    await space.put(b"n", b"1", if_absent=True)
    with pytest.raises(slate.ConflictError) as caught:
        await space.put(b"n", b"2", if_absent=True)
    assert (caught.value.key, caught.value.reason) == (space.prefix + b"n", "present")
    made = await space.update(b"n", lambda value: b"%d" % (int(value or b"0") + 1))
    assert made.value == b"2"
    await space.delete(b"n", if_value=b"2")
    assert await contents(db) == {}


async def test_transactions_have_the_keys_of_the_namespace(db: slate.Db) -> None:
    space = db.namespace("t")
    await space.put(b"a", b"1")
    async with space.transaction() as tx:
        assert await tx.get_many([b"a", b"b"]) == [b"1", None]
        tx.put(b"b", b"2")
        assert [row async for row in tx.scan()] == [(b"a", b"1"), (b"b", b"2")]
        assert [row async for row in tx.scan(prefix=b"b", reverse=True)] == [(b"b", b"2")]
        row = await tx.get_row(b"a")
        assert row is not None
        assert row.key == b"a"
        tx.delete(b"a")
    assert await contents(space) == {b"b": b"2"}

    async def increment(tx: slate.Transaction) -> None:
        value = int(await tx.get(b"n") or b"0")
        await asyncio.sleep(0)
        tx.put(b"n", b"%d" % (value + 1))

    await asyncio.gather(*(space.transact(increment) for _ in range(20)))
    assert await space.get(b"n") == b"20"
    tx = space.transaction()
    await tx.get(b"n")
    tx.put(b"m", b"")
    await space.put(b"n", b"0")
    with pytest.raises(slate.ConflictError) as caught:
        await tx.commit()
    assert caught.value.key == space.prefix + b"n"


async def test_clear_deletes_all_of_it_and_nothing_else(db: slate.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one row, or, without a write-ahead log, in batches."""
    monkeypatch.setattr(clearing, "BATCH_ROWS", 7)
    space = db.namespace("t")
    await db.put(b"t", b"")
    await db.namespace("t2").put(b"a", b"")
    await space.namespace("in").put(b"a", b"")
    for number in range(30):
        await space.put(b"%d" % number, b"", await_durable=False)
    others = {key: value for key, value in (await contents(db)).items() if not key.startswith(space.prefix)}
    before = db.snapshot().seq
    handle = await space.clear()
    assert handle.is_durable
    assert handle.seq - before == (1 if db._writer.state.manifest.wal_enabled else 31)
    assert await contents(space) == {}
    assert await contents(db) == others
    await space.put(b"new", b"")
    await (await space.clear(await_durable=False)).durable()
    assert await contents(space) == {}


async def test_clear_by_key_ends_beside_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "BATCH_ROWS", 2)
    async with open_db(memory_store(), CONTIGUOUS_SST) as db:
        space = db.namespace("t")
        for number in range(10):
            await space.put(b"%d" % number, b"")
        write, more = type(db).write, iter(range(100))

        async def beside(self: slate.Db, batch: slate.WriteBatch, **options: Any) -> slate.WriteHandle:
            await space.put(b"later-%03d" % next(more), b"")
            return await write(self, batch, **options)

        monkeypatch.setattr(type(db), "write", beside)
        await space.clear()
        assert all(key.startswith(b"later") for key in await contents(space))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, "\ud800", b"a", None, 7])
async def test_names_are_checked(name: Any) -> None:
    async with open_db(memory_store()) as db:
        for space in (db, db.namespace("t")):
            with pytest.raises(slate.InvalidError, match="name"):
                space.namespace(name)


async def test_bad_arguments_are_refused_and_nothing_is_applied() -> None:
    async with open_db(memory_store()) as db:
        space = db.namespace("t")
        batch = slate.WriteBatch()
        batch.put(b"k" * 65_535, b"")
        batch.put(b"ok", b"")
        for call in (
            lambda: space.put(b"", b""),
            lambda: space.put(b"k" * 65_535, b""),
            lambda: space.put("k", b""),  # type: ignore[arg-type]
            lambda: space.write(batch),
            lambda: space.write({}),  # type: ignore[arg-type]
            lambda: space.delete(b""),
            lambda: space.get(b""),
            lambda: space.get(b"k" * 65_535),
            lambda: db.namespace("t", default_ttl=0),
            lambda: db.namespace("t", default_ttl=-math.inf),
            lambda: db.namespace("t", default_ttl="1"),  # type: ignore[arg-type]
            lambda: space.touch(b"k"),
            lambda: db.touch(b"k"),
            lambda: db.touch(b"k", ttl=0),
            lambda: db.put(b"k", b"", ttl=math.nan),
        ):
            with pytest.raises(slate.InvalidError):
                call()
        with pytest.raises(slate.InvalidError, match="outside"):
            space.scan(b"a", prefix=b"b")
        assert await contents(db) == {}


async def test_a_reader_has_namespaces() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.namespace("t").namespace("u").put(b"a", b"1")
        async with open_reader(store) as reader:
            view = reader.namespace("t").namespace("u")
            assert await view.get(b"a") == b"1"
            assert await contents(view) == {b"a": b"1"}
            async with view.snapshot() as snapshot:
                assert await contents(snapshot) == {b"a": b"1"}


# ---- time to live


async def lives_for(db: slate.Readable, key: bytes) -> float | None:
    row = await db.get_row(key)
    assert row is not None
    return None if row.expire_time is None else round(row.expire_time - row.create_time, 3)


async def test_the_nearest_default_counts() -> None:
    async with open_db(memory_store(), CONTIGUOUS, default_ttl_ms=60_000) as db:
        space = db.namespace("t", default_ttl=30)
        wanted = [
            (db, 60),
            (db.namespace("t"), 60),
            (space, 30),
            (space.namespace("in"), 30),
            (space.namespace("in", default_ttl=10), 10),
            (db.namespace("t", default_ttl=math.inf), None),
        ]
        for part, seconds in wanted:
            batch = slate.WriteBatch()
            batch.put(b"batch", b"")
            batch.put(b"batch-5", b"", ttl=5)
            batch.put(b"batch-ever", b"", ttl=math.inf)
            batch.delete(b"none")
            await part.write(batch)
            plain = slate.WriteBatch()
            plain.put(b"plain", b"")
            await part.write(plain)
            await part.put(b"put", b"")
            await part.put(b"put-if", b"", if_absent=True)
            await part.update(b"update", lambda value: b"")
            async with part.transaction() as tx:
                tx.put(b"tx", b"")
                tx.put(b"tx-ever", b"", ttl=math.inf)
            for key in (b"batch", b"plain", b"put", b"put-if", b"update", b"tx"):
                assert await lives_for(part, key) == seconds, (part, key)
            await part.put(b"put-5", b"", ttl=5)
            await part.put(b"put-ever", b"", ttl=math.inf)
            for key in (b"batch-ever", b"put-ever", b"tx-ever"):
                assert await lives_for(part, key) is None
            for key in (b"batch-5", b"put-5"):
                assert await lives_for(part, key) == 5
            await part.delete(b"put-if")


async def test_touch_renews_the_life_of_a_row(db: slate.Db, clock: ManualClock) -> None:
    for part in (db, db.namespace("t")):
        await part.put(b"a", b"v", ttl=10)
        clock.wall_ms += 8_000
        assert (await part.touch(b"a", ttl=10)).value == b"v"
        clock.wall_ms += 8_000
        assert await part.get(b"a") == b"v"
        await db.flush(l0=True)
        assert (await part.touch(b"a", ttl=math.inf)).value == b"v"
        clock.wall_ms += 100_000
        assert await lives_for(part, b"a") is None
        await part.touch(b"a", ttl=1)
        clock.wall_ms += 2_000
        last = db.status().last_seq
        assert (await part.touch(b"a", ttl=10)).value is None
        assert (await part.touch(b"none", ttl=10)).value is None
        assert await part.get(b"a") is None
        assert db.status().last_seq == last, "nothing was written"


async def test_a_watch_gives_keys_of_the_namespace(db: slate.Db) -> None:
    space, other = db.namespace("t"), db.namespace("t2")
    inner = space.namespace("in")
    async with space.watch() as all_of, space.watch(prefix=b"a") as some, inner.watch(from_seq=0) as below:
        await other.put(b"a1", b"")
        await space.put(b"a1", b"1")
        await inner.put(b"k", b"2")
        await db.put(b"a1", b"")
        await space.delete(b"b")
        async with asyncio.timeout(10):
            found = [await anext(all_of) for _ in range(3)]
            assert [(change.op, change.key, change.seq) for change in found] == [
                ("put", b"a1", 2),
                ("put", inner.prefix[len(space.prefix) :] + b"k", 3),
                ("delete", b"b", 5),
            ]
            assert ((await anext(some)).key, (await anext(below)).key) == (b"a1", b"k")
    with pytest.raises(slate.InvalidError, match="a prefix is bytes-like"):
        space.watch(prefix="a")  # type: ignore[arg-type]


async def test_a_reader_watches_a_namespace() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db, open_reader(store, manifest_poll_interval_ms=10) as reader:
        async with reader.namespace("t").watch() as watch, asyncio.timeout(10):
            await db.put(b"k", b"")
            await db.namespace("t").put(b"k", b"1")
            assert (await anext(watch)).key == b"k"
            assert watch.last_seq == 2


async def test_a_range_that_was_deleted_is_clipped_for_a_watch_of_a_namespace() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db, asyncio.timeout(10):
        space = db.namespace("t")
        watch = space.watch()
        await db.delete_range(space.prefix + b"a", space.prefix + b"c")
        await db.delete_range(b"a", space.prefix + b"c")
        await db.delete_range(space.prefix + b"a", b"\xff\xff")
        await db.delete_range(b"a", b"b")
        await db.delete_range(b"a", b"\xff\xff")
        found = [await anext(watch) for _ in range(4)]
    assert [(change.op, change.key, change.value, change.seq) for change in found] == [
        ("delete_range", b"a", b"c", 1),
        ("delete_range", b"", b"c", 2),
        ("delete_range", b"a", None, 3),
        ("delete_range", b"", None, 5),
    ]
