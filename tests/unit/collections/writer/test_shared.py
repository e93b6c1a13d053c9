"""Batches that several processes put and one commits: `slate_async.collections.writer.shared` over real stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pyarrow as pa
import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.names import PendingName
from slate_async.collections.writer import shared
from slate_async.collections.writer.batches import bounds_of
from slate_async.collections.writer.shared import PutParts, commit_parts, put_parts, stamp_of
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from tests.support.collection_bytes import BYTES, byte_updates, frontier, put_batch
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.lake import Lake

COMPARE = Appends.COMPARE
OURS, THEIRS = stamp_of("query 1"), stamp_of("query 2")


def bounds(lower: int = 0, upper: int = 1) -> Bounds:
    return bounds_of(lower, upper, BYTES)


async def batches(*updates: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    for some in updates:
        yield some


async def put(lake: Lake, *data: str, time: int = 0, span: Bounds | None = None) -> PutParts:
    """What one attempt of a task puts."""
    rows = [byte_updates((text.encode(), time, 1)) for text in data]
    return await put_parts(lake.context(COMPARE), span or bounds(), batches(*rows))


async def commit(lake: Lake, *parts: PutParts, stamp: str = OURS, span: Bounds | None = None) -> bool:
    """What one attempt of a driver does."""
    return await commit_parts(lake.context(COMPARE), span or bounds(), parts, stamp)


def rows(data: str, time: int = 0) -> list[tuple[bytes, int, int]]:
    return [(text.encode(), time, 1) for text in data]


async def test_what_several_processes_put_comes_in_as_one_batch(lake: Lake) -> None:
    lake.knobs["part_bytes"] = 30
    first, second, late = await put(lake, "a", "b", "c"), await put(lake, "d"), await put(lake, "a", "x")
    assert [len(found.parts) for found in (first, second, late)] == [3, 1, 2]
    assert await lake.rows(["main"]) == (frontier(0), []), "nothing is in before the commit"
    assert await commit(lake, first, second)
    assert await lake.rows(["main"]) == (frontier(1), rows("abcd"))
    found = await lake.pending().describe(PendingName("main", frontier(0), None))
    assert found is not None
    assert (found.rows, found.diff_sum) == (4, 4)


async def test_a_batch_of_nothing_is_progress(lake: Lake) -> None:
    assert await commit(lake, PutParts((), 0))
    assert await lake.rows(["main"]) == (frontier(1), [])


async def test_attempts_to_commit_one_batch_are_one(lake: Lake) -> None:
    """A retry, or a driver that was thought dead: whoever is first decides, and the rest find it."""
    first, other = await put(lake, "a"), await put(lake, "b")
    assert sorted(await asyncio.gather(commit(lake, first), commit(lake, other))) == [False, True]
    _, found = await lake.rows(["main"])
    assert found in (rows("a"), rows("b"))
    assert not await commit(lake, other)
    assert await lake.rows(["main"]) == (frontier(1), found)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_commit_whose_answer_is_lost_is_in_once(lake: Lake, fault: str) -> None:
    parts = await put(lake, "a")
    next_put(lake.store, fault)
    await commit(lake, parts)
    assert not await commit(lake, await put(lake, "b"))
    assert await lake.rows(["main"]) == (frontier(1), rows("a"))


async def test_a_commit_that_nobody_answers_is_unknown_and_may_be_repeated(lake: Lake) -> None:
    parts = await put(lake, "a")
    lake.store.fail_before = lambda key: UnavailableError("no answer", outcome="unknown")
    with pytest.raises(UnavailableError) as raised:
        await commit(lake, parts)
    assert raised.value.outcome == "unknown"
    lake.store.fail_before = lambda key: None
    assert await commit(lake, parts)
    assert await lake.rows(["main"]) == (frontier(1), rows("a"))


@pytest.mark.parametrize("absorbed", [False, True])
async def test_a_batch_of_somebody_else_is_no_repetition(lake: Lake, absorbed: bool) -> None:
    assert await commit(lake, await put(lake, "a"), stamp=THEIRS)
    if absorbed:
        await lake.absorb(frontier(1), last=await lake.last_of(frontier(0), frontier(1)), collect="main")
    with pytest.raises(UpperMismatchError, match="was expected to end at 0, and ends at 1") as raised:
        await commit(lake, await put(lake, "b"))
    assert raised.value.outcome == "not_applied"


async def test_a_batch_is_found_after_it_was_absorbed_or_followed(lake: Lake) -> None:
    assert await commit(lake, await put(lake, "a"))
    await lake.absorb(frontier(1), last=await lake.last_of(frontier(0), frontier(1)), collect="main")
    assert not await commit(lake, await put(lake, "b"))
    after = bounds(1, 2)
    assert await commit(lake, await put(lake, "c", time=1, span=after), span=after)
    assert await commit(lake, PutParts((), 0), span=bounds(2, 3))
    assert not await commit(lake, PutParts((), 0), span=after), "it is pending, in the middle of the chain"
    with pytest.raises(UpperMismatchError):
        await commit(lake, PutParts((), 0))  # what a merged batch was made of is not known any more


async def test_a_dead_batch_of_a_collected_name_is_not_taken_for_it(lake: Lake) -> None:
    """C7, C8: a process that slept put it where nobody looks."""
    assert await commit(lake, PutParts((), 0), stamp=THEIRS, span=bounds(0, 3))
    await lake.absorb(frontier(3), last=await lake.last_of(frontier(0), frontier(3)), collect="main")
    parts, pending = await put(lake, "a"), lake.pending()
    name = PendingName("main", frontier(0), None)
    token = OURS + "0" * shared.STAMP_DIGITS
    description = Description(frontier(0), frontier(1), token, "main", parts.rows, parts.diff_sum, parts=parts.parts)
    await put_batch(pending, name, description, None)
    with pytest.raises(UpperMismatchError):
        await commit(lake, parts)


async def test_a_gap_below_the_batch_is_refused(lake: Lake) -> None:
    with pytest.raises(UpperMismatchError, match="was expected to end at 4, and ends at 0"):
        await commit(lake, PutParts((), 0), span=bounds(4, 5))


async def test_updates_that_are_wrong_are_refused_and_nothing_is_in(lake: Lake) -> None:
    with pytest.raises(InvalidError, match="at or beyond upper 1"):
        await put(lake, "a", time=1)
    too_many = PutParts((replace((await put(lake, "a")).parts[0]),) * 10_001, 1)
    with pytest.raises(InvalidError, match="at most 10000 parts, not 10001"):
        await commit(lake, too_many)
    assert await lake.rows(["main"]) == (frontier(0), [])


async def test_a_deleted_collection_takes_nothing(lake: Lake) -> None:
    parts = await put(lake, "a")
    await lake.versions().commits.commit(Tombstone("d" * 32))
    with pytest.raises(ClosedError):
        await commit(lake, parts)
