"""Rows that are in L0 leave memory, whatever the writer does next."""

from __future__ import annotations

import asyncio
import weakref

import pytest

import slate_async as slate
from slate_async.engine.compaction import output
from slate_async.engine.write import encoding
from tests.engine import CONTIGUOUS, memory_store, open_db

TURNS = 100


@pytest.mark.parametrize("batch", [True, False])
async def test_a_table_that_is_in_l0_leaves_memory(batch: bool) -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        rows = slate.WriteBatch()
        rows.put(b"key", b"value")
        if batch:
            await db.write(rows)
        else:
            await db.put(b"key", b"value")
            await db.put(b"other", b"value")
        table = weakref.ref(db._writer.state.memtables.active.table)
        await db.flush(l0=True)
        for _ in range(TURNS):
            if table() is None:
                break
            await asyncio.sleep(0)
        assert table() is None
        assert await db.get(b"key") == b"value"
        await db.put(b"key", b"newer", await_durable=False)
        assert await db.get(b"key") == b"newer"


async def test_after_large_objects_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(encoding, "give_back", lambda: calls.append("flush"))
    monkeypatch.setattr(output, "give_back", lambda: calls.append("compaction"))
    async with open_db(memory_store(), CONTIGUOUS, compression="none") as db:
        for large in (False, True):
            monkeypatch.setattr(encoding, "LARGE_BYTES", 0 if large else 1 << 20)
            monkeypatch.setattr(output, "LARGE_BYTES", 0 if large else 1 << 20)
            for _ in range(2):
                await db.put(b"key", bytes(encoding.INLINE_BYTES))
                await db.flush(l0=True)
            await db.compact(full=True)
            assert calls == (["flush", "flush", "compaction"] if large else [])
