"""`slate_async.collections.writer.backlog`: of too much that is pending, appends wait for the controller."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.errors import ClosedError, UnavailableError
from tests.engine import settle
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import Lake

KINDS = list(Appends)


@pytest.mark.parametrize("appends", KINDS)
async def test_appends_wait_until_the_controller_has_taken_others_in(lake: Lake, appends: Appends) -> None:
    lake.knobs |= {"max_pending": 3, "poll_interval_ms": 1, "deadline_ms": 3_600_000}
    writer = await lake.writer(appends)
    for upper in (1, 2, 3):
        await writer.append([(b"a", upper - 1, 1)], upper=upper)
    waiting = [asyncio.ensure_future(writer.append([(b"a", upper - 1, 1)], upper=upper)) for upper in (4, 5)]
    await settle()
    assert not any(call.done() for call in waiting)
    last = await lake.last_of(frontier(0), frontier(2)) if appends is Appends.COMPARE else "t" * 32
    await lake.absorb(frontier(2), last)
    await asyncio.gather(*waiting)
    assert writer.upper == frontier(5)


@pytest.mark.parametrize("appends", KINDS)
async def test_without_a_controller_they_fail_at_the_deadline_and_change_nothing(lake: Lake, appends: Appends) -> None:
    lake.knobs |= {"max_pending": 2}
    writer = await lake.writer(appends)
    for upper in (1, 2):
        await writer.append([], upper=upper)
    with pytest.raises(UnavailableError, match=r"2 appends to orders wait for its controller.* does one run") as raised:
        await writer.append([], upper=3)
    assert raised.value.outcome == "not_applied"
    with pytest.raises(UnavailableError):
        async with writer.batch(upper=3) as batch:
            await batch.add([(b"a", 2, 1)])
    assert (await lake.rows([shard(appends)]))[0] == frontier(2)


async def test_what_was_pending_before_it_was_opened_counts(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    for upper in (1, 2, 3):
        await writer.append([], upper=upper)
    lake.knobs |= {"max_pending": 3}
    again = await lake.writer(Appends.DEFINITE)
    with pytest.raises(UnavailableError):
        await again.append([], upper=4)
    await lake.absorb(frontier(3))
    await (await lake.writer(Appends.DEFINITE)).append([], upper=4)
    await again.append([], upper=5)


async def test_what_others_put_on_a_chain_counts_as_far_as_it_was_seen(lake: Lake) -> None:
    first = await lake.writer(Appends.COMPARE)
    for upper in (1, 2):
        await first.append([], upper=upper)
    lake.knobs |= {"max_pending": 3}
    again = await lake.writer(Appends.COMPARE)
    await first.append([], upper=3)
    with pytest.raises(UpperMismatchError):
        await again.append([], lower=2, upper=3)  # by which it sees the third one
    with pytest.raises(UnavailableError, match="3 appends to orders wait for its controller"):
        await again.append([], lower=3, upper=4)
    await lake.absorb(frontier(1), await lake.last_of(frontier(0), frontier(1)))
    await again.append([], lower=3, upper=4)


async def test_what_is_in_already_does_not_count(lake: Lake) -> None:
    lake.knobs |= {"max_pending": 3}
    writer = await lake.writer(Appends.DEFINITE)
    for _ in range(5):
        await writer.append([], lower=0, upper=1)
    await writer.append([], upper=2)


async def test_one_that_waits_learns_that_the_collection_was_deleted(lake: Lake) -> None:
    lake.knobs |= {"max_pending": 1, "deadline_ms": 3_600_000}
    writer = await lake.writer(Appends.DEFINITE)
    await writer.append([], upper=1)
    call = asyncio.ensure_future(writer.append([], upper=2))
    await settle()
    await lake.versions().commits.commit(Tombstone("d" * 32))
    with pytest.raises(ClosedError, match="orders was deleted") as raised:
        await call
    assert raised.value.outcome == "not_applied"


def shard(appends: Appends) -> str:
    """Of the writer of a test."""
    return "main" if appends is Appends.COMPARE else "relay-a"
