"""A writer that outruns compaction waits, says why, and goes on when compaction has caught up."""

from __future__ import annotations

import asyncio
import logging

import pytest

import slate_async as slate
from tests.engine import CONTIGUOUS, CONTIGUOUS_SST, EPOCHS_SST, Kind, memory_store, open_db, settle, starts, until

FULL = {"l0_max_ssts": 3, "l0_compact_ssts": 2, "manifest_poll_interval_ms": 5}


async def full_l0(db: slate.Db) -> None:
    for number in range(FULL["l0_max_ssts"]):
        await db.put(b"%d" % number, b"v")
        await db.flush(l0=True)


async def test_with_a_wal_l0_stays_within_its_limit_and_writes_wait_for_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = memory_store()
    with caplog.at_level(logging.INFO, logger="slate_async.engine.write.l0_pressure"):
        async with open_db(store, CONTIGUOUS, max_unflushed_bytes=3_000, **FULL) as db:
            await full_l0(db)
            assert db.status().l0_stall is None
            puts = starts(*(db.put(b"key %d" % number, bytes(500)) for number in range(12)))
            await until(lambda: db.status().waiting_writes > 0, "writes that wait")
            await settle()
            status = db.status()
            assert status.l0_ssts == FULL["l0_max_ssts"]
            assert status.l0_stall.startswith("L0 has 3 SSTs and may have 3; no compactor runs")
            assert db.metrics()["l0.stalls"] == 1
            async with slate.open_compactor(store, name="memory://test", settings=slate.Settings(**FULL)) as compactor:
                await asyncio.gather(*puts)
                await db.flush(l0=True)
                await compactor.compact()
            await db.confirm()
            assert db.status().l0_stall is None
            assert db.metrics()["l0.stalled_seconds"] > 0
            assert [key async for key, _ in db.scan(prefix=b"key")] == sorted(
                b"key %d" % number for number in range(12)
            )
    began = [record for record in caplog.records if record.levelno == logging.WARNING]
    ended = [record for record in caplog.records if record.levelno == logging.INFO]
    assert len(began) == len(ended) == db.metrics()["l0.stalls"]


@pytest.mark.parametrize("kind", [CONTIGUOUS_SST, EPOCHS_SST], ids=str)
async def test_without_a_wal_flushes_come_slower_but_never_stop(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, **FULL) as db:
        await full_l0(db)
        async with asyncio.timeout(60):
            for number in range(3):
                await db.put(b"more %d" % number, b"v")
        status = db.status()
        assert status.l0_stall is not None
        assert "no compactor runs" in status.l0_stall
        assert db.metrics()["l0.stalls"] == 1
        await db.compact()
        await until(lambda: db.status().l0_stall is None, "the end of the stall")


@pytest.mark.parametrize("kind", [CONTIGUOUS, CONTIGUOUS_SST, EPOCHS_SST], ids=str)
async def test_the_writers_own_compactor_keeps_up(kind: Kind) -> None:
    async with open_db(memory_store(), kind, **{**FULL, "auto_compaction": True}, l0_sst_bytes=2_000) as db:
        for number in range(100):
            await db.put(b"%03d" % number, bytes(200), await_durable=number % 10 == 0)
        await db.flush(l0=True)
        await until(lambda: db.status().l0_stall is None and db.status().l0_ssts <= 3, "compaction to catch up")
        assert [key async for key, _ in db.scan()] == [b"%03d" % number for number in range(100)]


async def test_closing_does_not_wait_for_compaction() -> None:
    async with open_db(memory_store(), CONTIGUOUS_SST, flush_bytes=100, **FULL) as db:
        await full_l0(db)
        for number in range(200):
            await db.put(b"%03d" % number, bytes(100), await_durable=False)
        async with asyncio.timeout(20):
            await db.close()


async def test_a_compaction_that_is_asked_for_makes_the_room_its_flush_needs() -> None:
    async with open_db(memory_store(), CONTIGUOUS, l0_sst_bytes=1_000, **FULL) as db:
        for number in range(30):
            await db.put(b"%03d" % number, bytes(500))
        await until(lambda: db.status().l0_stall is not None, "a stall")
        async with asyncio.timeout(60):
            assert await db.compact(full=True) > 1
        assert (db.status().l0_ssts, db.status().sorted_runs, db.status().l0_stall) == (0, 1, None)
        assert len([key async for key, _ in db.scan()]) == 30
