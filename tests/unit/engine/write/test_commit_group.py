"""Commit groups: each waiting write learns of the end, once."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.engine.write.commit_group import GROUP_COMMIT_WAITERS, CommitGroup
from slate_async.errors import ClosedError


async def test_a_full_group_is_reported_once() -> None:
    reported: list[int] = []
    group = CommitGroup(lambda: reported.append(1))
    tasks = [asyncio.create_task(group.wait()) for _ in range(GROUP_COMMIT_WAITERS - 1)]
    await asyncio.sleep(0)
    assert (reported, group.waiting) == ([], GROUP_COMMIT_WAITERS - 1)
    tasks += [asyncio.create_task(group.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    assert (reported, group.waiting) == ([1], GROUP_COMMIT_WAITERS + 9)
    group.resolve()
    await asyncio.gather(*tasks)


async def test_a_failure_is_unreported_until_each_write_was_reported() -> None:
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
        assert group.unreported
        with pytest.raises(ClosedError):
            await group.wait(write)
    assert not group.unreported


async def test_waits_are_not_counted_but_writes_that_were_reported() -> None:
    group = CommitGroup()
    group.writes = 2
    waiting = [asyncio.create_task(group.wait(write)) for write in (1, 1, None)]
    await asyncio.sleep(0)
    group.fail(lambda: ClosedError("closed"))
    assert [type(end) for end in await asyncio.gather(*waiting, return_exceptions=True)] == [ClosedError] * 3
    for write in (1, None):
        with pytest.raises(ClosedError):
            await group.wait(write)
    assert group.unreported
    with pytest.raises(ClosedError):
        await group.wait(2)
    assert not group.unreported
