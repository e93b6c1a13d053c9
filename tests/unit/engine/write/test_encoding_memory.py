"""What encoding takes of Arrow's memory is given back, by the thread that took it."""

from __future__ import annotations

import pytest

import slate_async as slate
from slate_async.engine.write import encoding


@pytest.mark.parametrize(("count", "given_back"), [(10, 0), (2 * encoding.RELEASED_BYTES // 100_000, 1)])
async def test_large_segments_and_tables_give_memory_back(
    count: int, given_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(encoding, "release_memory", lambda: calls.append(None))
    async with slate.open("memory://encoding-memory", create=True) as db:
        batch = slate.WriteBatch()
        for number in range(count):
            batch.put(b"%d" % number, bytes(100_000 if given_back else 10))
        await db.write(batch)
        assert len(calls) == given_back
        await db.flush(l0=True)
        assert len(calls) == 2 * given_back
