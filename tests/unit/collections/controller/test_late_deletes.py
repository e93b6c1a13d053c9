"""Deletions of garbage that land late, or twice: every one hits what was dead, and is dead for ever (C5, C23, C25)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.reader.handle import open_reader
from tests.unit.collections.kept import KeptLake, Rows, at


@pytest.mark.parametrize("appends", list(Appends))
async def test_deletions_that_land_late_or_twice_hit_nothing(
    lake: KeptLake, appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[list[str]] = []
    delete = lake.store.delete

    async def noted(keys: Sequence[str]) -> None:
        late.append(list(keys))
        await delete(keys)

    monkeypatch.setattr(lake.store, "delete", noted)
    rows: Rows = [(b"%d" % (number % 3), number, (-1) ** number * (1 + number % 2)) for number in range(30)]
    zombie = await lake.writer(appends, "z")
    reader = await open_reader(lake.reading(appends, deadline_ms=600_000))
    controller = await lake.controller(appends)
    for lower in range(0, 30, 3):
        await lake.put(rows[lower : lower + 3], lower, lower + 3, appends=appends)
        if appends is Appends.DEFINITE and lower == 12:
            await zombie.append(rows[:9], lower=0, upper=9)  # below what was collected
        await reader.downgrade_since(max(lower - 2, 0))
        await controller.settle()
        for keys in late:  # all that ever was to be deleted, again
            await delete(keys)
        end = lower + 2
        snapshot = await reader.snapshot(end)
        found = [(row["data"], row["_time"], row["_diff"]) for row in (await snapshot.to_arrow()).to_pylist()]
        snapshot.close()
        assert found == at(rows, end)
    assert any(key.startswith("pending_batches/") for keys in late for key in keys)
    assert any(key.startswith("merged_batches/") for keys in late for key in keys)
    await reader.expire()
    await controller.settle()
    assert await lake.keys("merged_batches/") == list((await lake.head()).names())
