"""What is written is what is read: every call of the data interface, on every kind of database."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.read import merge
from tests.engine import START_MS, Kind, ManualClock, contents, memory_store, open_db

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("seq", pa.uint64())])
MODES = ["memory", "log", "l0"]


async def settled(db: slate.Db, mode: str) -> None:
    """Have what was written in memory, in the log, or in an SST."""
    if mode != "memory":
        await db.flush(l0=mode == "l0")


def pairs(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    return list(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))


async def fill(db: slate.Db, count: int) -> dict[bytes, bytes]:
    rows = {b"k%04d" % number: b"v%d" % number * 5 for number in range(count)}
    for key, value in rows.items():
        await db.put(key, value, await_durable=False)
    return rows


@pytest.mark.parametrize("mode", MODES)
async def test_put_get_delete(db: slate.Db, mode: str) -> None:
    assert await db.get(b"a") is None
    first = await db.put(b"a", b"1")
    await settled(db, mode)
    second = await db.put(b"a", b"2")
    assert (first.seq, second.seq) == (1, 2)
    assert await db.get(b"a") == b"2"
    await db.delete(b"a")
    await settled(db, mode)
    assert await db.get(b"a") is None
    assert await db.get_row(b"a") is None
    assert await contents(db) == {}


@pytest.mark.parametrize("mode", MODES)
async def test_get_many_keeps_the_order_asked_for(db: slate.Db, mode: str) -> None:
    await db.put(b"a", b"1")
    await db.put(b"b", b"")
    await db.put(b"c", b"3")
    await db.delete(b"c")
    await settled(db, mode)
    assert await db.get_many([b"z", b"b", b"a", b"c", b"b"]) == [None, b"", b"1", None, b""]
    assert await db.get_many([]) == []


@pytest.mark.parametrize("mode", MODES)
async def test_get_row_tells_number_and_times(db: slate.Db, clock: ManualClock, mode: str) -> None:
    handle = await db.put(b"a", b"1")
    clock.wall_ms += 1500
    await db.put(b"b", b"2", ttl=timedelta(seconds=2))
    await settled(db, mode)
    start = START_MS / 1000
    assert handle.create_time == start
    assert await db.get_row(b"a") == slate.Row(b"a", b"1", 1, start, None)
    assert await db.get_row(b"b") == slate.Row(b"b", b"2", 2, start + 1.5, start + 3.5)


async def test_write_times_never_go_back(db: slate.Db, clock: ManualClock) -> None:
    first = await db.put(b"a", b"1")
    clock.wall_ms -= 10_000
    second = await db.put(b"b", b"1")
    assert second.create_time == first.create_time


@pytest.mark.parametrize("mode", MODES)
async def test_scans(db: slate.Db, mode: str) -> None:
    rows = await fill(db, 300)
    await settled(db, mode)
    await db.put(b"k0003", b"new")
    await db.delete(b"k0004")
    rows[b"k0003"] = b"new"
    del rows[b"k0004"]
    expected = sorted(rows.items())

    async def pairs(scan: slate.Scan) -> list[tuple[bytes, bytes]]:
        return [pair async for pair in scan]

    assert await pairs(db.scan()) == expected
    assert await pairs(db.scan(reverse=True)) == expected[::-1]
    assert await pairs(db.scan(b"k0002", b"k0006")) == [pair for pair in expected if b"k0002" <= pair[0] < b"k0006"]
    assert await pairs(db.scan(b"k0290")) == [pair for pair in expected if pair[0] >= b"k0290"]
    assert await pairs(db.scan(None, b"k0002")) == expected[:2]
    assert await pairs(db.scan(prefix=b"k001")) == [pair for pair in expected if pair[0].startswith(b"k001")]
    assert await pairs(db.scan(prefix=b"k001", reverse=True, limit=3)) == [
        (key, rows[key]) for key in (b"k0019", b"k0018", b"k0017")
    ]
    assert await pairs(db.scan(limit=2)) == expected[:2]
    assert await pairs(db.scan(limit=0)) == []
    assert await pairs(db.scan(b"b", b"a")) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reverse", [False, True])
async def test_scans_as_rows_and_as_arrow_batches(db: slate.Db, mode: str, reverse: bool) -> None:
    rows = await fill(db, 100)
    await settled(db, mode)
    expected = sorted(rows.items(), reverse=reverse)
    seqs = {key: seq for seq, key in enumerate(rows, 1)}
    found = [row async for row in db.scan(reverse=reverse).rows()]
    assert [(row.key, row.value, row.seq) for row in found] == [(k, v, seqs[k]) for k, v in expected]
    batches = [batch async for batch in db.scan(reverse=reverse).batches(max_rows=33)]
    assert all(isinstance(batch, pa.RecordBatch) and batch.schema == SCHEMA for batch in batches)
    assert max(batch.num_rows for batch in batches) <= 33
    table = pa.Table.from_batches(batches)
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected
    assert table["seq"].to_pylist() == [seqs[key] for key, _ in expected]


@pytest.mark.parametrize("reverse", [False, True])
async def test_scans_of_rows_too_large_to_join(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each SST alone shows all of its rows, so what hides a row is in another one, and comes in a round of its own."""
    monkeypatch.setattr(merge, "MAX_JOINED_BYTES", 0)
    async with open_db(memory_store(), auto_compaction=False, block_cache_bytes=0) as db:
        for value in (b"old", b"new"):
            for key in (b"a", b"b", b"c"):
                await db.put(key, value, await_durable=False)
            await db.flush(l0=True)
        await db.delete(b"b")
        await db.flush(l0=True)
        expected = [(b"a", b"new"), (b"c", b"new")]
        found = [pair async for batch in db.scan(reverse=reverse).batches() for pair in pairs(batch)]
        assert found == (expected[::-1] if reverse else expected)


async def test_scan_arguments_are_checked(db: slate.Db) -> None:
    for bad in ({"limit": -1}, {"limit": True}, {"limit": 1.5}, {"start": "a"}, {"prefix": 3}):
        with pytest.raises(slate.InvalidError):
            db.scan(**bad)
    with pytest.raises(slate.InvalidError):
        db.scan(b"x", prefix=b"a")
    with pytest.raises(slate.InvalidError):
        db.scan().batches(0)


async def test_a_scan_is_closed_and_iterated_once(db: slate.Db) -> None:
    await fill(db, 3)
    async with db.scan() as scan:
        async for key, _ in scan:
            assert key == b"k0000"
            break
    await scan.aclose()
    with pytest.raises(slate.InvalidError):
        await anext(aiter(scan))


async def test_a_scan_shows_the_state_at_its_call(db: slate.Db) -> None:
    rows = await fill(db, 50)
    scan = db.scan()
    await db.put(b"k9", b"later")
    await db.delete(b"k0000")
    await db.flush(l0=True)
    assert {key: value async for key, value in scan} == rows


# batches


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_is_one_write(db: slate.Db, clock: ManualClock, mode: str) -> None:
    await db.put(b"gone", b"x")
    batch = slate.WriteBatch()
    batch.put(b"a", b"1")
    batch.put(b"a", b"2")
    batch.delete(b"gone")
    batch.put(b"short", b"s", ttl=1.0)
    assert len(batch) == 4
    handle = await db.write(batch)
    assert handle.seq == 5  # the last row's; the others' come right before
    await settled(db, mode)
    assert await contents(db) == {b"a": b"2", b"short": b"s"}
    row = await db.get_row(b"a")
    assert row is not None
    assert row.seq == 3
    clock.wall_ms += 1000
    assert await contents(db) == {b"a": b"2"}


async def test_a_batch_may_be_written_again_and_cleared(db: slate.Db, clock: ManualClock) -> None:
    batch = slate.WriteBatch()
    batch.put(b"a", b"1", ttl=1)
    await db.write(batch)
    clock.wall_ms += 1000
    assert await db.get(b"a") is None
    again = await db.write(batch)  # its life begins anew
    assert again.seq == 2
    assert await db.get(b"a") == b"1"
    batch.clear()
    batch.put(b"b", b"2")
    assert (await db.write(batch)).seq == 3
    row = await db.get_row(b"b")
    assert row is not None
    assert row.expire_time is None


def test_a_batch_shows_its_size_and_nothing_to_change() -> None:
    batch = slate.WriteBatch()
    batch.put(b"key", b"value")
    batch.delete(b"other")
    assert (len(batch), batch.nbytes) == (2, 13)
    writes = ["delete", "delete_prefix", "delete_range", "merge", "put"]
    assert {name for name in dir(batch) if not name.startswith("_")} == {"clear", "nbytes", *writes}
    with pytest.raises(AttributeError):
        batch.nbytes = 0  # type: ignore[misc]


async def test_an_empty_batch_is_durable_when_all_before_it_is(db: slate.Db) -> None:
    assert (await db.write(slate.WriteBatch())).seq == 0
    await db.put(b"a", b"1", await_durable=False)
    handle = await db.write(slate.WriteBatch())
    assert handle.is_durable
    assert handle.seq == 1
    assert db.status().durable_seq == 1


async def test_what_is_written_is_not_changed_by_changing_the_batch(db: slate.Db) -> None:
    batch = slate.WriteBatch()
    batch.put(b"a", b"1")
    writing = asyncio.ensure_future(db.write(batch))
    batch.put(b"b", b"2")
    assert (await writing).seq == 1
    assert await contents(db) == {b"a": b"1"}


async def test_only_a_batch_is_written(db: slate.Db) -> None:
    with pytest.raises(slate.InvalidError):
        await db.write([(b"a", b"1")])  # type: ignore[arg-type]


# keys and values

BAD_KEYS = ["text", 7, None, b"", b"x" * 65_536, ["list"], np.zeros(0, np.uint8)]


@pytest.mark.parametrize("key", BAD_KEYS, ids=["str", "int", "none", "empty", "too long", "list", "empty array"])
async def test_bad_keys_are_refused_everywhere(key: object) -> None:
    async with open_db(memory_store()) as db:
        batch = slate.WriteBatch()
        for call in (
            lambda: db.put(key, b""),  # type: ignore[arg-type]
            lambda: db.delete(key),  # type: ignore[arg-type]
            lambda: db.get(key),  # type: ignore[arg-type]
            lambda: db.get_row(key),  # type: ignore[arg-type]
            lambda: db.get_many([b"a", key]),  # type: ignore[list-item]
        ):
            with pytest.raises(slate.InvalidError) as caught:
                await call()
            assert isinstance(caught.value, ValueError)
        for refuse in (lambda: batch.put(key, b""), lambda: batch.delete(key)):  # type: ignore[arg-type]
            with pytest.raises(slate.InvalidError):
                refuse()
        assert len(batch) == 0
        assert db.status().last_seq == 0


@pytest.mark.parametrize("value", ["text", 7, None, 1.5], ids=str)
async def test_bad_values_are_refused(value: object) -> None:
    async with open_db(memory_store()) as db:
        with pytest.raises(slate.InvalidError):
            await db.put(b"a", value)  # type: ignore[arg-type]
        with pytest.raises(slate.InvalidError):
            slate.WriteBatch().put(b"a", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("-inf"), "1", True, timedelta(0), 1e300], ids=str)
async def test_bad_times_to_live_are_refused(ttl: object) -> None:
    async with open_db(memory_store()) as db:
        with pytest.raises(slate.InvalidError):
            await db.put(b"a", b"", ttl=ttl)  # type: ignore[arg-type]
        with pytest.raises(slate.InvalidError):
            slate.WriteBatch().put(b"a", b"", ttl=ttl)  # type: ignore[arg-type]


async def test_extreme_keys_and_empty_values_are_kept(db: slate.Db) -> None:
    rows = {b"\0": b"", b"\xff" * 65_535: b"long", b"a\0b": b"\0", b"v": b"x" * 100_000}
    for key, value in rows.items():
        await db.put(key, value)
    for mode in MODES:
        await settled(db, mode)
        assert await contents(db) == rows
        for key, value in rows.items():
            assert await db.get(key) == value


async def test_a_key_or_value_is_copied_at_the_call() -> None:
    async with open_db(memory_store()) as db:
        key, value = bytearray(b"key"), np.arange(4, dtype=np.uint8)
        wide = np.arange(8, dtype=np.uint16).reshape(2, 4)[:, ::2]  # not contiguous
        writes = [db.put(key, value), db.put(memoryview(b"wide"), wide), db.put(b"self", key)]
        key[:] = b"zzz"
        value[:] = 9
        wide[:] = 0
        for write in writes:
            await write
        assert await db.get(memoryview(b"key")) == bytes(range(4))
        assert await db.get(b"wide") == np.array([[0, 2], [4, 6]], np.uint16).tobytes()
        assert await db.get(b"self") == b"key"
        asked = bytearray(b"key")
        reading = db.get(asked)
        asked[:] = b"zzz"
        assert await reading == bytes(range(4))


# expiry


@pytest.mark.parametrize("mode", MODES)
async def test_a_row_is_hidden_as_soon_as_it_expires(db: slate.Db, clock: ManualClock, mode: str) -> None:
    await db.put(b"a", b"old")
    await settled(db, mode)
    await db.put(b"a", b"short", ttl=0.25)
    await db.put(b"b", b"long", ttl=timedelta(hours=1))
    await settled(db, mode)
    clock.wall_ms += 249
    assert await db.get(b"a") == b"short"
    clock.wall_ms += 1
    assert await db.get(b"a") is None  # and the older version does not come back
    assert await db.get_row(b"a") is None
    assert await db.get_many([b"a", b"b"]) == [None, b"long"]
    assert await contents(db) == {b"b": b"long"}
    assert [pair async for pair in db.scan(reverse=True)] == [(b"b", b"long")]
    await db.put(b"a", b"again")
    assert await db.get(b"a") == b"again"


async def test_a_snapshot_judges_expiry_at_its_own_time(db: slate.Db, clock: ManualClock) -> None:
    await db.put(b"a", b"1", ttl=1)
    async with db.snapshot() as snap:
        clock.wall_ms += 5000
        assert await db.get(b"a") is None
        assert await snap.get(b"a") == b"1"
        assert await contents(snap) == {b"a": b"1"}


# snapshots


async def test_a_snapshot_is_stable_across_writes_and_flushes(db: slate.Db) -> None:
    rows = await fill(db, 120)
    async with db.snapshot() as snap:
        assert snap.seq == 120
        for step in MODES * 2:
            for number in range(0, 120, 7):
                await db.put(b"k%04d" % number, step.encode(), await_durable=False)
                await db.delete(b"k%04d" % (number + 1), await_durable=False)
            await settled(db, step)
            assert await contents(snap) == rows
            assert [pair async for pair in snap.scan(reverse=True)] == sorted(rows.items(), reverse=True)
            assert await snap.get_many([b"k0000", b"k0001", b"k0002"]) == [rows[b"k000%d" % n] for n in range(3)]
            row = await snap.get_row(b"k0007")
            assert row is not None
            assert row.seq == 8
    assert await db.get(b"k0001") is None


async def test_a_closed_snapshot_answers_nothing(db: slate.Db) -> None:
    snap = db.snapshot()
    snap.close()
    snap.close()
    with pytest.raises(slate.ClosedError):
        await snap.get(b"a")
    with pytest.raises(slate.ClosedError):
        snap.scan()


async def test_a_snapshot_ends_with_its_database() -> None:
    async with open_db(memory_store()) as db:
        snap = db.snapshot()
        await db.put(b"a", b"1")
    with pytest.raises(slate.ClosedError):
        await snap.get(b"a")


# coming back


async def test_everything_is_there_after_opening_again(kind: Kind) -> None:
    store = memory_store()
    expected: dict[bytes, bytes] = {}
    seq = 0
    for generation in range(4):
        async with open_db(store, kind, l0_sst_bytes=2048, block_bytes=256, flush_bytes=512) as db:
            assert await contents(db) == expected
            assert db.status().last_seq == seq
            for number in range(30):
                key, value = b"k%02d" % (number * (generation + 1) % 50), b"%d.%d" % (generation, number)
                expected[key] = value
                seq = (await db.put(key, value, await_durable=False)).seq
            await settled(db, MODES[generation % 3])
            expected = dict(sorted(expected.items()))


async def test_times_to_live_survive_opening_again(kind: Kind, clock: ManualClock) -> None:
    store = memory_store()
    async with open_db(store, kind, clock=clock) as db:
        await db.put(b"a", b"1", ttl=10)
    clock.wall_ms += 9_999
    async with open_db(store, kind, clock=clock) as db:
        assert await db.get(b"a") == b"1"
        clock.wall_ms += 1
        assert await db.get(b"a") is None
