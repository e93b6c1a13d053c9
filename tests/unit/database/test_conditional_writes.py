"""`put` and `delete` under a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import slate_async as slate
from slate_async.database.transact import Transact
from tests.engine import CONTIGUOUS, ManualClock, contents, memory_store, open_db


async def refused(write: Awaitable[object], key: bytes, reason: str) -> None:
    with pytest.raises(slate.ConflictError) as caught:
        await write
    assert (caught.value.key, caught.value.reason, caught.value.outcome) == (key, reason, "not_applied")


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_write_is_applied_if_its_condition_holds(db: slate.Db, flushed: bool) -> None:
    async def settled() -> None:
        await db.flush(l0=flushed)

    first = await db.put(b"k", b"1", if_absent=True)
    await settled()
    await refused(db.put(b"k", b"2", if_absent=True), b"k", "present")
    await refused(db.put(b"k", b"2", if_seq=first.seq + 1), b"k", "changed")
    await refused(db.put(b"k", b"2", if_value=b"2"), b"k", "changed")
    await refused(db.put(b"other", b"2", if_seq=first.seq), b"other", "absent")
    await refused(db.put(b"other", b"2", if_value=b""), b"other", "absent")
    await refused(db.delete(b"k", if_seq=first.seq + 1), b"k", "changed")
    await refused(db.delete(b"k", if_value=b""), b"k", "changed")
    await refused(db.delete(b"other", if_value=b""), b"other", "absent")
    assert await contents(db) == {b"k": b"1"}
    second = await db.put(b"k", b"2", if_seq=first.seq)
    await settled()
    await refused(db.put(b"k", b"3", if_seq=first.seq), b"k", "changed")
    third = await db.put(b"k", b"3", if_value=bytearray(b"2"))
    assert third.seq > second.seq
    await settled()
    await db.delete(b"k", if_seq=third.seq)
    await settled()
    await db.put(b"k", b"4", if_absent=True, ttl=10)
    await db.delete(b"k", if_value=b"4")
    assert await contents(db) == {}
    metrics = db.metrics()
    assert (metrics["transactions.conditional"], metrics["transactions.conflicts"]) == (15, 9)
    assert metrics["transactions.open"] == 0


async def test_an_expired_row_is_absent(db: slate.Db, clock: ManualClock) -> None:
    await db.put(b"k", b"1", ttl=10)
    await refused(db.put(b"k", b"2", if_absent=True), b"k", "present")
    clock.wall_ms += 10_000
    await refused(db.put(b"k", b"2", if_value=b"1"), b"k", "absent")
    await db.put(b"k", b"2", if_absent=True)
    assert await db.get(b"k") == b"2"


@pytest.mark.parametrize("in_one_step", [True, False])
async def test_its_row_lives_as_long_as_any_other(
    db: slate.Db, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(Transact, "_write_now", lambda *arguments: None)
    first = await db.put(b"k", b"1", if_absent=True, ttl=10)
    row = await db.get_row(b"k")
    assert row is not None
    assert row.expire_time == (clock.wall_ms + 10_000) / 1000
    second = await db.put(b"k", b"1", if_seq=first.seq)
    row = await db.get_row(b"k")
    assert row is not None
    assert row.expire_time is None
    await db.put(b"k", b"2", if_seq=second.seq, ttl=5)
    clock.wall_ms += 5_000
    await refused(db.put(b"k", b"3", if_seq=second.seq + 1), b"k", "absent")
    await refused(db.delete(b"k", if_value=b"2"), b"k", "absent")
    await db.put(b"k", b"3", if_absent=True)


@pytest.mark.parametrize("in_one_step", [True, False])
async def test_of_many_at_once_one_gets_the_key(monkeypatch: pytest.MonkeyPatch, in_one_step: bool) -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"other", b"")
        await db.flush(l0=True)
    async with open_db(store) as db:
        if not in_one_step:
            monkeypatch.setattr(Transact, "_write_now", lambda *arguments: None)
        done = await asyncio.gather(
            *(db.put(b"key", b"%d" % number, if_absent=True) for number in range(50)), return_exceptions=True
        )
        winners = [number for number, result in enumerate(done) if isinstance(result, slate.WriteHandle)]
        assert len(winners) == 1
        assert await db.get(b"key") == b"%d" % winners[0]
        assert all(isinstance(result, slate.ConflictError) for result in done if result is not done[winners[0]])


async def test_a_condition_is_judged_when_the_write_is_applied_not_before() -> None:
    async with open_db(
        memory_store(), CONTIGUOUS, max_unflushed_bytes=1 << 16, l0_sst_bytes=1 << 14, max_value_bytes=1 << 15
    ) as db:
        filling = [asyncio.ensure_future(db.put(b"f", bytes(12_000))) for _ in range(12)]
        await asyncio.sleep(0)
        puts = [asyncio.ensure_future(db.put(b"k", b"%d" % number, if_absent=True)) for number in range(5)]
        done = await asyncio.gather(*puts, return_exceptions=True)
        await asyncio.gather(*filling)
        assert sum(isinstance(result, slate.ConflictError) for result in done) == 4
        assert db.metrics()["backpressure.stalls"] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db, any_: db.put(b"k", b"", if_absent=True, if_seq=1),
        lambda db, any_: db.put(b"k", b"", if_seq=1, if_value=b""),
        lambda db, any_: db.put(b"k", b"", if_seq=0),
        lambda db, any_: db.put(b"k", b"", if_absent=any_),
        lambda db, any_: db.put(b"k", b"", if_value=any_),
        lambda db, any_: db.delete(b"k", if_seq=any_),
        lambda db, any_: db.delete(b"k", if_seq=1, if_value=b""),
        lambda db, any_: db.put(b"", b"", if_absent=True),
        lambda db, any_: db.put(b"k", b"", if_value=None),
        lambda db, any_: db.put(b"k", b"", if_seq=None),
        lambda db, any_: db.delete(b"k", if_value=None),
        lambda db, any_: db.namespace("n").delete(b"k", if_seq=None),
    ],
)
async def test_wrong_conditions_are_refused_at_the_call(wrong: Callable[[slate.Db, Any], object]) -> None:
    async with open_db(memory_store()) as db:
        with pytest.raises(slate.InvalidError) as caught:
            wrong(db, "text")
        assert caught.value.outcome == "not_applied"
        assert await contents(db) == {}
