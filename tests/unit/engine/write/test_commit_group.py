"""Commit groups: who waits hears of the end, once."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.engine.write.commit_group import CROWD, CommitGroup
from slate_async.errors import ClosedError


async def test_a_crowd_is_told_of_once() -> None:
    told: list[int] = []
    group = CommitGroup(lambda: told.append(1))
    tasks = [asyncio.create_task(group.wait()) for _ in range(CROWD - 1)]
    await asyncio.sleep(0)
    assert (told, group.waiting) == ([], CROWD - 1)
    tasks += [asyncio.create_task(group.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    assert (told, group.waiting) == ([1], CROWD + 9)
    group.resolve()
    await asyncio.gather(*tasks)


async def test_a_failure_is_untold_until_each_write_was_told() -> None:
    group = CommitGroup()
    group.writes = 3
    waiting = asyncio.create_task(group.wait(1))
    cancelled = asyncio.create_task(group.wait(2))
    await asyncio.sleep(0)
    group.fail(lambda: ClosedError("closed"))
    cancelled.cancel()  # in the turn in which it failed: it has not heard
    with pytest.raises(ClosedError):
        await waiting
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    for write in (2, 3):
        assert group.untold
        with pytest.raises(ClosedError):
            await group.wait(write)
    assert not group.untold


async def test_waits_are_not_counted_but_writes_that_were_told() -> None:
    group = CommitGroup()
    group.writes = 2
    waiting = [asyncio.create_task(group.wait(write)) for write in (1, 1, None)]
    await asyncio.sleep(0)
    group.fail(lambda: ClosedError("closed"))
    assert [type(end) for end in await asyncio.gather(*waiting, return_exceptions=True)] == [ClosedError] * 3
    for write in (1, None):
        with pytest.raises(ClosedError):
            await group.wait(write)
    assert group.untold
    with pytest.raises(ClosedError):
        await group.wait(2)
    assert not group.untold
