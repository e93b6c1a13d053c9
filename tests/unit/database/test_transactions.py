"""`Db.transaction`: what is documented of SlateDB's and FoundationDB's transactions, and what is ours."""

from __future__ import annotations

from typing import Any

import pytest

import slate_async as slate
from tests.engine import START_MS, Kind, ManualClock, StoreInHand, contents, memory_store, open_db, settle, starts

ISOLATIONS: list[Any] = ["serializable", "snapshot"]


async def conflict(tx: slate.Transaction) -> slate.ConflictError:
    """How the commit of ``tx`` fails."""
    with pytest.raises(slate.ConflictError) as caught:
        await tx.commit()
    assert caught.value.outcome == "not_applied"
    return caught.value


async def rows(scan: slate.TransactionScan) -> list[tuple[bytes, bytes]]:
    return [row async for row in scan]


async def fill(db: slate.Db, *keys: bytes) -> None:
    for key in keys:
        await db.put(key, b"old " + key)


# ---- one transaction


async def test_a_block_commits_at_its_end_and_gives_up_by_an_error(db: slate.Db) -> None:
    await fill(db, b"a", b"b")
    async with db.transaction() as tx:
        assert await tx.get(b"a") == b"old a"
        tx.put(b"a", b"new")
        tx.delete(b"b")
        tx.put(b"c", b"new")
        assert await db.get(b"a") == b"old a"
    assert await contents(db) == {b"a": b"new", b"c": b"new"}

    async def fails() -> None:
        async with db.transaction() as tx:
            tx.put(b"a", b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert await db.get(b"a") == b"new"
    metrics = db.metrics()
    assert (metrics["transactions.begun"], metrics["transactions.committed"]) == (2, 1)
    assert (metrics["transactions.open"], metrics["transactions.tracked_bytes"]) == (0, 0)


async def test_all_of_it_has_neighbouring_numbers_and_one_time(db: slate.Db) -> None:
    tx = db.transaction()
    for number in range(5):
        tx.put(b"k%d" % number, b"")
        tx.put(b"k%d" % number, b"again")
    handle = await tx.commit()
    found = [await db.get_row(b"k%d" % number) for number in range(5)]
    assert [row.seq for row in found if row is not None] == list(range(handle.seq - 4, handle.seq + 1))
    assert handle.is_durable


@pytest.mark.parametrize("flushed", [False, True])
async def test_own_writes_are_seen_by_every_read(db: slate.Db, flushed: bool) -> None:
    await fill(db, b"b", b"d", b"f", b"h")
    if flushed:
        await db.flush(l0=True)
    tx = db.transaction()
    tx.put(b"a", b"1")
    tx.put(b"d", b"2")
    tx.delete(b"f")
    tx.put(b"z", b"3")
    tx.delete(b"nothing")
    assert [await tx.get(key) for key in (b"a", b"b", b"d", b"f")] == [b"1", b"old b", b"2", None]
    assert await tx.get_many([b"f", b"b", b"z", b"b"]) == [None, b"old b", b"3", b"old b"]
    seen = [(b"a", b"1"), (b"b", b"old b"), (b"d", b"2"), (b"h", b"old h"), (b"z", b"3")]
    assert await rows(tx.scan()) == seen
    assert await rows(tx.scan(reverse=True)) == seen[::-1]
    for limit in range(7):
        assert await rows(tx.scan(limit=limit)) == seen[:limit]
        assert await rows(tx.scan(limit=limit, reverse=True)) == seen[::-1][:limit]
    assert await rows(tx.scan(b"b", b"f")) == seen[1:3]
    assert await rows(tx.scan(b"c", b"h", reverse=True)) == [(b"d", b"2")]
    assert await rows(tx.scan(prefix=b"f")) == []
    row = await tx.get_row(b"b")
    assert row is not None
    assert row.value == b"old b"
    with pytest.raises(slate.InvalidError, match="no sequence number yet"):
        await tx.get_row(b"a")
    await tx.commit()
    assert await contents(db) == dict(seen)


async def test_a_scan_sees_the_writes_before_it_and_a_key_that_vanishes_is_gone(db: slate.Db) -> None:
    await fill(db, b"a", b"b", b"c")
    async with db.transaction() as tx:
        async with tx.scan() as scan:
            assert (await anext(scan))[0] == b"a"
            tx.put(b"bb", b"later")
            assert [key async for key, _ in scan] == [b"b", b"c"]
        assert [key for key, _ in await rows(tx.scan())] == [b"a", b"b", b"bb", b"c"]


async def test_reads_are_of_the_time_it_began(db: slate.Db) -> None:
    await fill(db, b"a", b"b")
    async with db.transaction() as tx:
        await db.put(b"a", b"new")
        await db.delete(b"b")
        await db.put(b"c", b"new")
        assert await tx.get_many([b"a", b"b", b"c"]) == [b"old a", b"old b", None]
        assert [await tx.get(key) for key in (b"a", b"b", b"c")] == [b"old a", b"old b", None]
        assert await rows(tx.scan()) == [(b"a", b"old a"), (b"b", b"old b")]


async def test_it_is_over_once(db: slate.Db) -> None:
    tx = db.transaction()
    tx.put(b"a", b"1")
    scan = tx.scan()
    await tx.commit()
    for call in (tx.commit, lambda: tx.get(b"a"), lambda: tx.get_many([b"a"]), lambda: tx.get_row(b"a")):
        with pytest.raises(slate.ClosedError, match="transaction is over"):
            await call()
    for called in (lambda: tx.put(b"a", b""), lambda: tx.delete(b"a"), lambda: tx.scan()):
        with pytest.raises(slate.ClosedError, match="transaction is over"):
            called()
    with pytest.raises(slate.ClosedError):
        await anext(scan)
    tx.rollback()
    given_up = db.transaction()
    given_up.put(b"a", b"2")
    given_up.rollback()
    given_up.rollback()
    with pytest.raises(slate.ClosedError, match="transaction is over"):
        await given_up.commit()
    assert await db.get(b"a") == b"1"
    async with db.transaction() as tx:
        tx.put(b"a", b"3")
        await tx.commit()
    assert await db.get(b"a") == b"3"
    assert repr(tx).endswith("over>")


# ---- conflicts


async def test_of_two_that_read_and_write_a_key_one_fails_and_names_it(db: slate.Db) -> None:
    await fill(db, b"n")
    for isolation in ISOLATIONS:
        first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
        for tx in (first, second):
            await tx.get(b"n")
            tx.put(b"n", b"new")
        await first.commit()
        failed = await conflict(second)
        assert (failed.key, failed.reason) == (b"n", "written")
        assert "b'n'" in str(failed)


async def test_blind_writes_conflict_only_under_snapshot(db: slate.Db) -> None:
    for isolation in ISOLATIONS:
        first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
        first.put(b"n", b"first")
        second.put(b"n", b"second")
        await first.commit()
        if isolation == "snapshot":
            await conflict(second)
        else:
            await second.commit()
            assert await db.get(b"n") == b"second"


async def test_write_skew_is_impossible_under_serializable_and_possible_under_snapshot(db: slate.Db) -> None:
    for isolation in ISOLATIONS:
        await fill(db, b"ann on call", b"bob on call")
        ann, bob = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
        for tx, leaver in ((ann, b"ann on call"), (bob, b"bob on call")):
            assert len(await rows(tx.scan())) == 2  # so that one may leave
            tx.delete(leaver)
        await ann.commit()
        if isolation == "snapshot":
            await bob.commit()
            assert await contents(db) == {}
        else:
            assert (await conflict(bob)).key == b"ann on call"
            assert set(await contents(db)) == {b"bob on call"}


async def test_a_phantom_is_a_conflict_inside_the_range_and_not_beside_it(db: slate.Db) -> None:
    await fill(db, b"b", b"d", b"x")
    for reverse in (False, True):
        for key, met in ((b"a", False), (b"b5", True), (b"c", True), (b"e", False), (b"x", False)):
            tx = db.transaction()
            assert len(await rows(tx.scan(b"b", b"e", reverse=reverse))) == 2
            tx.put(b"sum", b"2")
            await db.put(key, b"phantom")
            if met:
                failed = await conflict(tx)
                assert failed.key == key
            else:
                await tx.commit()
            await db.delete(b"b5")
            await db.delete(b"c")


async def test_what_a_scan_has_not_reached_is_not_read(db: slate.Db) -> None:
    await fill(db, b"b", b"d", b"f", b"h")
    for reverse, reached, beyond in ((False, (b"a", b"b", b"c", b"d"), b"d\0"), (True, (b"h", b"g", b"f"), b"e")):
        for key in (*reached, beyond):
            for way in ("limit", "break", "close"):
                tx = db.transaction()
                if way == "limit":
                    assert len(await rows(tx.scan(reverse=reverse, limit=2))) == 2
                else:
                    scan = tx.scan(reverse=reverse)
                    for _ in range(2):
                        await anext(scan)
                    if way == "close":
                        await scan.aclose()
                tx.put(b"zz", b"2")
                await db.put(key, b"written")
                if key == beyond:
                    await tx.commit()
                    await db.delete(key)
                else:
                    assert (await conflict(tx)).key == key
                if key not in (b"b", b"d", b"f", b"h"):
                    await db.delete(key)
                await db.delete(b"zz")


async def test_what_a_scan_has_reached_counts_while_it_is_open(db: slate.Db) -> None:
    """Also of a commit of one row, which takes no waiting."""
    await fill(db, b"b", b"d", b"f")
    await db.put(b"zz", b"", await_durable=False)  # so that there is room for rows that come
    for key, meets in ((b"c", True), (b"e", False)):
        tx = db.transaction(await_durable=False)
        scan = tx.scan()
        assert [(await anext(scan))[0] for _ in range(2)] == [b"b", b"d"]
        tx.put(b"sum", b"2")
        await db.put(key, b"phantom", await_durable=False)
        if meets:
            assert (await conflict(tx)).key == key
            await db.delete(key, await_durable=False)
        else:
            await tx.commit()


async def test_a_delete_and_an_absent_key_conflict_as_well(db: slate.Db) -> None:
    await fill(db, b"a")
    tx = db.transaction()
    assert await tx.get(b"b") is None
    tx.put(b"c", b"")
    await db.put(b"b", b"")
    assert (await conflict(tx)).key == b"b"
    tx = db.transaction()
    assert await tx.get_many([b"a"]) == [b"old a"]
    tx.put(b"c", b"")
    await db.delete(b"a")
    assert (await conflict(tx)).key == b"a"


async def test_transactions_that_only_read_never_conflict(db: slate.Db) -> None:
    await fill(db, b"a")
    for isolation in ISOLATIONS:
        async with db.transaction(isolation=isolation) as tx:
            await tx.get(b"a")
            await rows(tx.scan())
            await db.put(b"a", b"new")
            await db.put(b"b", b"new")


async def test_reads_of_others_keys_and_own_writes_do_not_conflict(db: slate.Db) -> None:
    await fill(db, b"a", b"b")
    async with db.transaction() as tx:
        tx.put(b"a", b"mine")
        assert await tx.get(b"a") == b"mine"  # which says nothing of what was there
        await db.put(b"a", b"theirs")
        await db.put(b"c", b"theirs")
        await tx.get(b"b")
    assert await db.get(b"a") == b"mine"


async def test_conflicts_are_found_across_flushes_and_compactions(db: slate.Db) -> None:
    await fill(db, *(b"k%02d" % number for number in range(30)))
    touched, free = db.transaction(), db.transaction()
    await touched.get(b"k07")
    await touched.get(b"k20")
    await free.get(b"k08")
    await rows(free.scan(b"k10", b"k15"))
    for number in (7, 9, 15, 20):
        await db.put(b"k%02d" % number, b"new")
    for tx in (touched, free):
        tx.put(b"sum", b"")
    await db.flush(l0=True)
    await db.compact(full=True)
    await db.put(b"other", b"")
    await db.flush(l0=True)
    assert await free.get(b"k09") == b"old k09"  # also reads go on
    assert (await conflict(touched)).key == b"k07"
    failed = await conflict(free)
    assert failed.key == b"k09"


async def test_a_value_that_expires_before_the_commit_is_a_conflict(db: slate.Db, clock: ManualClock) -> None:
    for way in ("get", "get_many", "get_row", "scan"):
        for flushed in (False, True):
            await db.put(b"lease", b"mine", ttl=10)
            if flushed:
                await db.flush(l0=True)
            for waits, expired in ((9_999, False), (10_000, True)):
                tx = db.transaction()
                if way == "get":
                    assert await tx.get(b"lease") == b"mine"
                elif way == "get_many":
                    assert await tx.get_many([b"lease", b"other"]) == [b"mine", None]
                elif way == "get_row":
                    assert await tx.get_row(b"lease") is not None
                else:
                    assert (b"lease", b"mine") in await rows(tx.scan())
                tx.put(b"done", b"")
                before, clock.wall_ms = clock.wall_ms, clock.wall_ms + waits
                if expired:
                    failed = await conflict(tx)
                    assert (failed.key, failed.reason) == (b"lease", "expired")
                    assert await db.get(b"lease") is None
                else:
                    await tx.commit()
                    clock.wall_ms = before
    assert clock.wall_ms > START_MS


async def test_a_row_with_a_time_to_live_expires_after_its_commit(db: slate.Db, clock: ManualClock) -> None:
    tx = db.transaction()
    tx.put(b"a", b"1", ttl=10)
    clock.wall_ms += 60_000
    assert await tx.get(b"a") == b"1"
    await tx.commit()
    row = await db.get_row(b"a")
    assert row is not None
    assert row.expire_time == (clock.wall_ms + 10_000) / 1000


# ---- durability


async def test_a_commit_returns_when_what_it_read_is_durable(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        store.hold = True
        await db.put(b"a", b"2", await_durable=False)
        reading, not_waiting = db.transaction(), db.transaction(await_durable=False)
        for tx in (reading, not_waiting):
            assert await tx.get(b"a") == b"2"
        handle = await not_waiting.commit()
        assert not handle.is_durable
        (committing,) = starts(reading.commit())
        await settle()
        assert not committing.done()
        async with db.transaction(await_durable=False) as tx:
            tx.put(b"a", b"3")
        assert await db.get(b"a", durable=True) == b"1"
        (writing,) = starts(db.update(b"a", lambda value: (value or b"") + b"4"))
        await settle()
        assert not writing.done()
        store.release()
        assert (await committing).is_durable
        assert (await writing).value == b"34"
        assert handle.is_durable
        async with db.transaction() as tx:
            assert await tx.get(b"a") == b"34"  # which is durable, so that nothing is waited for
