"""What transactions meet: bounds, bad input, ingests, an outage of the store, and the end of their database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.transactions import recent_writes, tracked_reads
from slate_async.engine.write import open_transactions
from slate_async.runtime.yield_budget import YieldBudget
from tests.engine import Kind, StoreInHand, contents, memory_store, on, open_db, runtime, starts, until
from tests.unit.database.away import SHORT, back, out, outages


async def conflict(tx: slate.Transaction) -> slate.ConflictError:
    """How the commit of ``tx`` fails."""
    with pytest.raises(slate.ConflictError) as caught:
        await tx.commit()
    assert caught.value.outcome == "not_applied"
    return caught.value


# ---- bounds


async def test_one_that_is_open_too_long_is_too_old(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_db(memory_store(), kind, transaction_lifetime_ms=50) as db:
        tx, reader = db.transaction(), db.transaction()
        await tx.get(b"a")
        await reader.get(b"a")
        tx.put(b"a", b"1")
        await asyncio.sleep(0.06)
        assert (await conflict(tx)).reason == "too_old"
        async with db.transaction() as other:  # which makes room
            other.put(b"b", b"1")
        assert await reader.get(b"b") is None  # as of its beginning
        assert [row async for row in reader.scan()] == []
        for write in (lambda: reader.put(b"b", b"2"), lambda: reader.delete(b"b")):
            with pytest.raises(slate.ConflictError) as caught:
                write()
            assert caught.value.reason == "too_old"
            assert "transaction_lifetime_ms" in str(caught.value)
        await reader.commit()
        assert db.metrics()["transactions.evicted"] == 2
        assert await contents(db) == {b"b": b"1"}


async def test_one_that_nobody_ends_keeps_nothing_in_memory_beyond_its_lifetime() -> None:
    async with open_db(memory_store(), transaction_lifetime_ms=50) as db:
        forgotten = db.transaction()
        await forgotten.get(b"a")
        await db.put(b"a", b"1")
        assert db.metrics()["transactions.open"] == 1
        await asyncio.sleep(0.06)
        await db.put(b"a", b"2")  # no other transaction begins
        metrics = db.metrics()
        assert (metrics["transactions.open"], metrics["transactions.tracked_bytes"]) == (0, 0)
        assert await forgotten.get(b"a") is None
        with pytest.raises(slate.ConflictError):
            forgotten.put(b"a", b"3")


async def test_one_that_is_too_old_goes_when_another_begins() -> None:
    async with open_db(memory_store(), transaction_lifetime_ms=50) as db:
        forgotten = db.transaction()
        await forgotten.get(b"a")
        await asyncio.sleep(0.06)
        db.transaction()
        metrics = db.metrics()
        assert (metrics["transactions.open"], metrics["transactions.evicted"]) == (1, 1)


async def test_that_many_have_begun_is_bounded() -> None:
    async with open_db(memory_store(), transaction_memory_bytes=1 << 20) as db:
        many = [db.transaction() for _ in range(3_000)]
        metrics = db.metrics()
        assert metrics["transactions.tracked_bytes"] <= 1 << 20
        assert metrics["transactions.open"] + metrics["transactions.evicted"] == len(many)
        many[-1].put(b"a", b"1")
        await many[-1].commit()


async def test_the_one_that_has_read_most_goes_first() -> None:
    async with open_db(memory_store(), transaction_memory_bytes=1 << 20) as db:
        oldest, greedy, youngest = (db.transaction() for _ in range(3))
        for tx in (oldest, greedy, youngest):
            await tx.get(b"a")
            tx.put(b"sum", b"")

        async def read_on() -> None:
            for number in range(20_000):
                await greedy.get(b"%08d" % number)

        with pytest.raises(slate.ConflictError) as caught:
            await read_on()
        assert caught.value.reason == "too_large"
        await oldest.commit()
        await youngest.commit()


async def test_what_is_kept_for_old_ones_is_bounded(kind: Kind) -> None:
    async with open_db(memory_store(), kind, transaction_memory_bytes=1 << 20) as db:
        old = db.transaction()
        await old.get(b"a")
        old.put(b"a", b"1")
        batch = slate.WriteBatch()
        for number in range(3_000):
            batch.put(b"k%08d" % number, b"")
        await db.write(batch)
        young = db.transaction()
        await young.get(b"a")
        young.put(b"b", b"1")
        for _ in range(3):
            await db.write(batch)
        metrics = db.metrics()
        assert (metrics["transactions.open"], metrics["transactions.evicted"]) == (0, 2) or metrics[
            "transactions.tracked_bytes"
        ] <= 1 << 20
        assert (await conflict(old)).reason == "too_old"
        many, writing = db.transaction(), db.transaction()

        async def read_much(tx: slate.Transaction) -> None:
            for number in range(20_000):
                await tx.get(b"%08d" % number)

        writing.put(b"a", b"1")
        with pytest.raises(slate.ConflictError) as caught:
            await read_much(writing)
        assert caught.value.reason == "too_large"
        assert "transaction_memory_bytes" in str(caught.value)
        writing.rollback()
        await read_much(many)  # it only reads
        assert many._tracked.nbytes < (1 << 20) + 1024  # and not one key more
        assert not many._tracked.points
        with pytest.raises(slate.ConflictError) as caught:
            many.put(b"a", b"1")
        assert caught.value.reason == "too_large"
        await many.commit()
        young.rollback()
        metrics = db.metrics()
        assert (metrics["transactions.open"], metrics["transactions.tracked_bytes"]) == (0, 0)


async def test_nothing_is_kept_without_an_open_transaction(db: slate.Db) -> None:
    first, second = db.transaction(), db.transaction()
    await db.put(b"a", b"1")
    await db.flush(l0=True)
    assert db.metrics()["transactions.tracked_bytes"] > 2 * 1024
    first.rollback()
    third = db.transaction()
    second.rollback()
    assert db.metrics()["transactions.tracked_bytes"] == 1024  # the third's own
    third.rollback()
    assert db.metrics()["transactions.tracked_bytes"] == 0
    await db.put(b"a", b"2")
    assert db.metrics()["transactions.tracked_bytes"] == 0


async def test_many_rows_since_are_judged_in_steps(db: slate.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "JUDGED_AHEAD_ROWS", 100)
    for key in (b"k0000", b"k1999", b"k2000"):
        tx = db.transaction()
        await tx.get(key)
        tx.put(b"sum", b"")
        batch = slate.WriteBatch()
        for number in range(2_000):
            batch.put(b"k%04d" % number, b"")
        await db.write(batch)
        if key < b"k2000":
            assert (await conflict(tx)).key == key
        else:
            await tx.commit()


async def test_keys_become_ranges_while_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever read it is that has one too many; and what became ranges is judged in steps, too."""
    monkeypatch.setattr(tracked_reads, "MOST_POINTS", 300)
    monkeypatch.setattr(tracked_reads, "STEP_KEYS", 20)
    monkeypatch.setattr(recent_writes, "STEP_KEYS", 20)
    monkeypatch.setattr(tracked_reads, "MOST_AT_ONCE", 100)
    keys = [b"k%05d" % (number * 7919 % 330) for number in range(330)]
    async with open_db(memory_store()) as db:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        monkeypatch.setattr(YieldBudget, "exhausted", lambda _: True)
        try:
            for call in ("get", "get_row", "get_many"):
                tx = db.transaction()
                for key in keys[:300]:
                    await tx.get_many([key])  # one by one, and without a turn of its own for others
                assert len(tx._tracked.points) == 300
                before = turns
                if call == "get":  # which looks once for some reads
                    for key in keys[300:320]:
                        await tx.get(key)
                else:
                    await (tx.get_row(keys[-1]) if call == "get_row" else tx.get_many(keys))
                assert turns - before >= 2 * 300 / 20
                assert len(tx._tracked.points) < 20
                tx.put(b"sum", b"")
                await db.delete_range(b"l", b"m")
                before = turns
                handle = await tx.commit()
                assert turns - before >= 300 / 20, "300 ranges beside one that was deleted"
                assert await db.get(b"sum") == b""
                tx = db.transaction()
                await tx.get_many(keys)
                tx.put(b"sum", b"")
                await db.put(keys[200], b"")
                assert (await conflict(tx)).key == keys[200]
                assert handle.is_durable
        finally:
            counting.cancel()


# ---- bad input, and its database's end


async def test_wrong_arguments_are_refused(db: slate.Db) -> None:
    wrong: Any = "repeatable read"
    with pytest.raises(slate.InvalidError, match="isolation is 'serializable' or 'snapshot'"):
        db.transaction(isolation=wrong)
    async with db.transaction() as tx:
        text: Any = "text"
        for call in (
            lambda: tx.get(text),
            lambda: tx.get(b""),
            lambda: tx.get_many([b"a", text]),
            lambda: tx.put(text, b""),
            lambda: tx.put(b"a", text),
            lambda: tx.put(b"a" * 70_000, b""),
            lambda: tx.put(b"a", b"", ttl=0),
            lambda: tx.delete(b""),
            lambda: tx.scan(limit=-1),
            lambda: tx.scan(text),
            lambda: tx.scan(b"c", prefix=b"a"),
        ):
            with pytest.raises(slate.InvalidError):
                call()
    assert await contents(db) == {}


async def test_a_commit_that_is_too_large_applies_nothing(kind: Kind) -> None:
    async with open_db(
        memory_store(), kind, decode_memory_bytes=1 << 20, max_value_bytes=1 << 17, flush_bytes=1 << 16
    ) as db:
        tx = db.transaction()
        for number in range(10):
            tx.put(b"%d" % number, bytes(1 << 17))
        with pytest.raises(slate.InvalidError, match="split it") as caught:
            await tx.commit()
        assert caught.value.outcome == "not_applied"
        assert await contents(db) == {}
        assert db.metrics()["transactions.open"] == 0


async def test_a_closed_database_ends_its_transactions(kind: Kind) -> None:
    db = await open_db(memory_store(), kind)
    tx = db.transaction()
    await tx.get(b"a")
    tx.put(b"a", b"")
    scan = tx.scan()
    await db.close()
    for call in (lambda: tx.get(b"a"), tx.commit, lambda: anext(scan)):
        with pytest.raises(slate.ClosedError, match="is closed"):
            await call()
    with pytest.raises(slate.ClosedError):
        db.transaction()


async def test_a_writer_that_was_taken_over_commits_none(kind: Kind) -> None:
    store = memory_store()
    db = await open_db(store, kind)
    await db.put(b"a", b"1")
    tx = db.transaction()
    assert await tx.get(b"a") == b"1"
    tx.put(b"a", b"2")
    async with open_db(store, kind) as other:
        with pytest.raises(slate.FencedError):
            await tx.commit()
        with pytest.raises(slate.FencedError):
            db.transaction()
        assert await other.get(b"a") == b"1"
    with pytest.raises(slate.FencedError):
        await db.transact(lambda tx: tx.get(b"a"))
    await db.close()


# ---- what happens to the database meanwhile


async def ingest(store: Any, db: slate.Db, *parts: Sequence[str]) -> None:
    """One job that writes an SST for each of ``parts``, which are keys."""
    settings = slate.Settings(manifest_poll_interval_ms=10)
    async with on(runtime()).open_ingest(store, job_id=None, name="memory://test", settings=settings) as job:
        for keys in parts:
            await job.write([pa.table({"key": list(keys), "value": ["ingested"] * len(keys)})])
        await job.commit(wait=False)
        await db.confirm()
        await job.wait()


async def test_rows_before_an_ingest_are_not_forgotten_for_it(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        tx = db.transaction()
        assert await tx.get(b"a") == b"1"
        tx.put(b"a", b"mine")
        await db.put(b"a", b"theirs", await_durable=False)
        await ingest(store, db, ("x", "z"))
        failed = await conflict(tx)
        assert (failed.key, failed.reason) == (b"a", "written")


async def test_an_ingest_conflicts_with_what_it_may_have_written(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        inside, beside, ranged, before = (db.transaction() for _ in range(4))
        assert await inside.get(b"d") is None
        assert await beside.get(b"x") is None
        assert [row async for row in ranged.scan(b"e", b"g")] == []
        assert [row async for row in before.scan(b"a", b"b")] == [(b"a", b"1")]
        for tx in (inside, beside, ranged, before):
            tx.put(b"sum", b"")
        await ingest(store, db, ("c", "f"))
        for tx in (inside, ranged):
            assert (await conflict(tx)).reason == "ingested"
        for tx in (beside, before):
            await tx.commit()
        async with db.transaction() as tx:  # one that began afterwards
            assert await tx.get(b"c") == b"ingested"
            tx.put(b"c", b"2")
        assert db.metrics()["transactions.tracked_bytes"] == 0


async def test_an_ingest_that_was_compacted_before_it_was_seen_may_have_written_everything(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        tx = db.transaction()
        assert await tx.get(b"z") is None
        tx.put(b"sum", b"")
        ingested = open_transactions._ingested
        monkeypatch.setattr(open_transactions, "_ingested", lambda manifest, seq: ingested(_without_l0(manifest), seq))
        await ingest(store, db, ("c",))
        failed = await conflict(tx)
        assert (failed.key, failed.reason) == (b"z", "ingested")


def _without_l0(manifest: Any) -> Any:
    """As if a compaction had taken what is in L0."""
    return replace(manifest, l0=())


async def test_transactions_from_before_an_outage_cannot_commit(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        writing, reading = db.transaction(), db.transaction()
        for tx in (writing, reading):
            assert await tx.get(b"a") == b"1"
        writing.put(b"b", b"1")
        store.down = True
        starts(db.put(b"c", b"lost"))
        await out(db)
        refused = db.transaction()
        assert await refused.get(b"a") == b"1"
        refused.put(b"b", b"2")
        with pytest.raises(slate.UnavailableError) as caught:
            await refused.commit()
        assert caught.value.outcome == "not_applied"
        with pytest.raises(slate.UnavailableError):
            await db.update(b"a", lambda value: b"2")
        with pytest.raises(slate.UnavailableError):
            await db.put(b"n", b"2", if_absent=True)
        store.down = False
        await back(db)
        for tx in (writing, reading):
            assert (await conflict(tx)).reason == "reopened"
        async with db.transaction() as tx:
            assert await tx.get(b"a") == b"1"
            tx.put(b"a", b"2")
        assert (await db.update(b"a", lambda value: (value or b"") + b"3")).value == b"23"
        assert await contents(db) == {b"a": b"23"}
        metrics = db.metrics()
        assert (metrics["transactions.evicted"], metrics["transactions.open"]) == (2, 0)


async def test_a_commit_in_flight_when_the_writer_is_taken_over_is_unknown_or_refused(kind: Kind) -> None:
    shared = memory_store()
    store = StoreInHand(shared)
    db = await open_db(store, kind)
    await db.put(b"n", b"0")
    store.hold = True
    tx = db.transaction(await_durable=False)
    tx.put(b"n", b"1")
    handle = await tx.commit()
    await until(lambda: bool(store.held), "the log object to be sent")
    async with open_db(shared, kind) as other:
        store.release()
        with pytest.raises(slate.FencedError) as caught:
            await handle.durable()
        assert caught.value.outcome in ("unknown", "not_applied")
        if caught.value.outcome == "not_applied":
            assert await other.get(b"n") == b"0"
    await until(lambda: db.status().state == "fenced", "the old writer to notice")
    await db.close()
