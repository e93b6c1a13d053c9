"""A newer writer takes over: the older one acknowledges nothing more, says so, and closes itself."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from tests.engine import EPOCHS, Kind, StoreInHand, contents, memory_store, open_db, settle, starts, until


async def test_the_older_writer_is_fenced(kind: Kind) -> None:
    store = memory_store()
    older = await open_db(store, kind)
    await older.put(b"a", b"old")
    async with open_db(store, kind) as newer:
        assert newer.status().epoch == 2
        with pytest.raises(slate.FencedError) as caught:
            await older.put(b"a", b"zombie")
        assert caught.value.outcome in ("unknown", "not_applied")
        for call in (older.get(b"a"), older.put(b"b", b"1"), older.flush(), older.confirm(), older.get_many([b"a"])):
            with pytest.raises(slate.FencedError):
                await call
        with pytest.raises(slate.FencedError):
            older.scan()
        with pytest.raises(slate.FencedError):
            await older.wait_closed()
        assert older.status().state == "fenced"
        await older.close()
        await newer.put(b"b", b"new")
        assert await contents(newer) == {b"a": b"old", b"b": b"new"}
    async with open_db(store, kind) as again:
        assert await contents(again) == {b"a": b"old", b"b": b"new"}


async def test_pending_writes_of_a_fenced_writer_fail_and_reads_in_flight_too(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    older = await open_db(store, kind, flush_parallelism=2, flush_interval_ms=0)
    await older.put(b"a", b"1")
    snap, scan = older.snapshot(), older.scan()
    store.hold = True
    pending = []
    for number in range(4):
        pending += starts(older.put(b"pending %d" % number, b"1"))
        await settle(60)
    assert len(store.held) == 2
    held, store.hold = dict(store.held), False
    store.held.clear()
    async with open_db(store.inner, kind) as newer:
        for gate in held.values():
            gate.set()
        results = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(result, slate.FencedError) for result in results)
        outcomes = [getattr(result, "outcome", None) for result in results]
        if kind.log_protocol == "contiguous":  # else the two land at their old names, and the others are sent
            assert outcomes == ["unknown", "unknown", "not_applied", "not_applied"]
        assert outcomes[:2] == ["unknown", "unknown"]
        with pytest.raises(slate.FencedError):
            await snap.get(b"a")
        with pytest.raises(slate.FencedError):
            await anext(aiter(scan))
        await until(lambda: older.status().state == "fenced", "the older one to close")
        await older.close()
        assert await contents(newer) == {b"a": b"1"}
        await newer.put(b"after", b"2")
    async with open_db(store.inner, kind) as again:
        assert await contents(again) == {b"a": b"1", b"after": b"2"}


async def test_an_idle_fenced_writer_closes_itself_within_one_poll(kind: Kind) -> None:
    store = memory_store()
    older = await open_db(store, kind, manifest_poll_interval_ms=20)
    await older.put(b"a", b"1")
    async with open_db(store, kind) as newer:
        async with asyncio.timeout(10):
            with pytest.raises(slate.FencedError):
                await older.wait_closed()
        assert older.status().state == "fenced"
        await newer.put(b"b", b"2")
    await older.close()


async def test_confirm_sees_a_take_over_at_once(kind: Kind) -> None:
    store = memory_store()
    older = await open_db(store, kind)
    await older.confirm()
    async with open_db(store, kind) as newer:
        await newer.confirm()
        assert older.status().state == "open"  # it has not noticed
        with pytest.raises(slate.FencedError):
            await older.confirm()
        assert older.status().state == "fenced"
    await older.close()


async def test_a_fenced_writer_closes_quietly_when_every_write_got_its_error(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as older:
        newer = await open_db(store, kind)
        with pytest.raises(slate.FencedError):
            await older.put(b"a", b"1")
    await newer.close()


async def test_a_fenced_writer_closes_loudly_when_writes_were_lost_unheard(kind: Kind) -> None:
    store = memory_store()
    older = await open_db(store, kind)
    newer = await open_db(store, kind)
    await older.put(b"a", b"1", await_durable=False)
    with pytest.raises(slate.FencedError) as caught:
        await older.close()
    assert caught.value.outcome == "unknown"
    assert older.status().state == "fenced"
    await newer.close()


async def test_closing_a_writer_fenced_meanwhile_leaves_the_newer_ones_data(kind: Kind) -> None:
    store = memory_store()
    older = await open_db(store, kind)
    for number in range(5):
        await older.put(b"%d" % number, b"old")
    newer = await open_db(store, kind)
    await newer.put(b"0", b"new")
    await older.close()
    await newer.put(b"1", b"new")
    await newer.close()
    async with open_db(store, kind) as again:
        assert await contents(again) == {b"0": b"new", b"1": b"new", **{b"%d" % n: b"old" for n in range(2, 5)}}


async def test_an_l0_flush_of_a_fenced_writer_is_refused(kind: Kind) -> None:
    store = StoreInHand(memory_store(), watch="sst/")
    older = await open_db(store, kind)
    await older.put(b"a", b"old")
    store.hold = True
    (flushing,) = starts(older.flush(l0=True))
    if kind.wal_enabled:
        await until(lambda: bool(store.held), "the SST")
    else:
        await flushing
    newer = await open_db(store.inner, kind)
    await newer.put(b"a", b"new")
    await newer.flush(l0=True)
    store.release()
    if kind.wal_enabled:
        with pytest.raises(slate.FencedError):
            await flushing
    await older.close()
    await newer.close()
    async with open_db(store.inner, kind) as again:
        assert await contents(again) == {b"a": b"new"}


async def test_of_two_writers_opened_at_once_one_lives(kind: Kind) -> None:
    for _ in range(5):
        store = memory_store()
        opened = await asyncio.gather(
            _opened(store, kind), _opened(store, kind), _opened(store, kind), return_exceptions=True
        )
        alive = []
        for number, db in enumerate(opened):
            if isinstance(db, slate.FencedError):
                continue
            assert isinstance(db, slate.Db)
            try:
                await db.put(b"%d" % number, b"1")
            except slate.FencedError:
                await db.close()
            else:
                alive.append(db)
        assert len(alive) == 1
        assert len(await contents(alive[0])) == 1
        await alive[0].close()


async def _opened(store: slate.environment.Path, kind: Kind) -> slate.Db:
    return await open_db(store, kind)  # type: ignore[arg-type]


async def test_writers_that_take_over_from_each_other_lose_nothing(kind: Kind) -> None:
    """A chain of takeovers while the one before still writes: what each acknowledged is in the last."""
    store = memory_store()
    acknowledged: dict[bytes, bytes] = {}

    async def write(db: slate.Db, name: int) -> None:
        for number in range(1000):
            key = b"%d.%d" % (name, number)
            try:
                await db.put(key, b"v")
            except slate.FencedError:
                return
            acknowledged[key] = b"v"
        raise AssertionError("was never fenced")

    writers = []
    databases = []
    for name in range(5):
        db = await open_db(store, kind, flush_parallelism=1 + name % 3, flush_interval_ms=0)
        databases.append(db)
        writers += starts(write(db, name))
        await until(lambda wanted=5 * (name + 1): len(acknowledged) >= wanted, "some writes")  # type: ignore[misc]
    last = await open_db(store, kind)
    await asyncio.gather(*writers)
    found = await contents(last)
    assert acknowledged.keys() <= found.keys()
    for db in databases:
        await db.close()
    await last.close()


async def test_a_flush_that_fails_does_not_say_that_nothing_is_in() -> None:
    memory = memory_store()
    store = StoreInHand(memory, watch="writer/")
    older = await open_db(store, EPOCHS)
    store.hold = True
    handle = await older.put(b"a", b"1", await_durable=False)
    await until(lambda: bool(store.held), "the register")
    async with open_db(memory, EPOCHS) as newer:
        assert await newer.get(b"a") == b"1"
        store.release()
        for call in (handle.durable, older.flush, older.flush):
            with pytest.raises(slate.FencedError) as caught:
                await call()
            assert caught.value.outcome == "unknown"
        await older.close()
