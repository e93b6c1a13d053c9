"""`slate_async.spark.collection_stream_plan`: where micro-batches begin and end, through restarts, without Spark."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.reader.split import SnapshotSplit
from slate_async.spark.collection_offset import Offset
from slate_async.spark.collection_options import CollectionStream
from slate_async.spark.collection_place import open_collection
from slate_async.spark.collection_stream_plan import StreamPlanner

Rows = list[tuple[bytes, int, int]]


@pytest.fixture
async def environment() -> AsyncIterator[slate.Environment]:
    async with slate.Environment() as made:
        yield made


def options(path: Path, **given: str) -> CollectionStream:
    return CollectionStream.of({"path": str(path), "collection": "orders", **given})


async def append(path: Path, rows: Rows, upper: Any, **kind: Any) -> None:
    async with slate.open_collections(path) as lake:
        await (await lake.create("orders", **kind)).expire()
        async with lake.collection("orders").writer() as writer:
            await writer.append(rows, upper=upper)


async def compact(path: Path) -> None:
    """As far as holds allow."""
    async with slate.open_collections(path) as lake:
        async with lake.collection("orders").controller(background=False) as controller:
            await controller.settle()


async def rows_of(planner: StreamPlanner, start: Offset, end: Offset, environment: slate.Environment) -> Rows:
    """What the tasks of a micro-batch read."""
    found: Rows = []
    for partition in await planner.partitions(start, end):
        async with open_collection(partition.place, environment) as stores:
            split = partition.split
            context = stores.reading()
            batches = split.open(context).batches() if isinstance(split, SnapshotSplit) else split.batches(context)
            async for batch in batches:
                found += [(row["data"], row["_time"], row["_diff"]) for row in batch.to_pylist()]
    return sorted(found)


def stored(offset: Offset) -> Offset:
    """As Spark's checkpoint gives it back."""
    return Offset.of(json.loads(json.dumps(offset.fields())))


def text(offset: Offset) -> str:
    return str(offset.at.frontier)


async def test_a_query_goes_on_through_restarts_and_compaction(tmp_path: Path, environment: slate.Environment) -> None:
    await append(tmp_path, [(b"a", 0, 1), (b"b", 1, 2)], 2)
    first = StreamPlanner(options(tmp_path), environment)
    start = await first.begin()
    assert (text(start), start.at.since) == ("0", 0)
    assert await first.begin() == start
    end = await first.latest(start, None)
    assert (text(end), end.at.since) == ("2", None)
    assert await rows_of(first, start, end, environment) == [(b"a", 0, 1), (b"b", 1, 2)]
    await first.close()

    await append(tmp_path, [(b"b", 3, -1)], 5)
    await compact(tmp_path)
    second = StreamPlanner(options(tmp_path), environment)
    assert await rows_of(second, stored(start), stored(end), environment) == [(b"a", 0, 1), (b"b", 1, 2)], (
        "a repetition"
    )
    await second.done(stored(end))
    await compact(tmp_path)
    last = await second.latest(stored(end), None)
    assert text(last) == "5"
    assert await rows_of(second, stored(end), last, environment) == [(b"b", 3, -1)]
    assert await second.latest(last, None) is last
    await second.close()


@pytest.mark.parametrize("begin", ["now", "since", "1"])
async def test_a_first_micro_batch_that_is_done_again_begins_where_it_began(
    tmp_path: Path, environment: slate.Environment, begin: str
) -> None:
    """Spark wrote down where it ends. It asks again where the query begins, when more has been appended."""
    await append(tmp_path, [(b"a", 0, 1)], 2)
    first = StreamPlanner(options(tmp_path, startAt=begin), environment)
    start = await first.begin()
    await append(tmp_path, [(b"b", 3, 1)], 4)
    first._looked_ms = float("-inf")
    end = await first.latest(start, None)
    assert text(end) == "4"
    rows = await rows_of(first, start, end, environment)
    await first.close()

    await append(tmp_path, [(b"c", 5, 1)], 6)
    second = StreamPlanner(options(tmp_path, startAt=begin), environment)
    assert await rows_of(second, stored(await second.begin()), stored(end), environment) == rows
    last = await second.latest(stored(end), None)
    assert await rows_of(second, stored(end), last, environment) == [(b"c", 5, 1)]
    async with open_collection(options(tmp_path).place, environment) as stores:
        assert list(await stores.holds.list()) == [end.hold], "what the second beginning held is given up"
    await second.close()


async def test_appends_that_are_missing_end_a_query(tmp_path: Path, environment: slate.Environment) -> None:
    """C15: where the hold stands, what it keeps is there."""
    await append(tmp_path, [(b"a", 0, 1)], 2)
    first = StreamPlanner(options(tmp_path), environment)
    start = await first.begin()
    end = await first.latest(start, None)
    await first.close()
    for file in (tmp_path / "orders/1/pending_batches").glob("*/batch_*"):
        file.unlink()
    second = StreamPlanner(options(tmp_path), environment)
    with pytest.raises(slate.CorruptionError, match="checkpoint of this query is at 2, and orders ends at 0"):
        await second.partitions(stored(start), stored(end))
    await second.close()


async def test_limits_and_an_end(tmp_path: Path, environment: slate.Environment) -> None:
    await append(tmp_path, [(b"a", time, 1) for time in range(4)], 4)
    await append(tmp_path, [(b"z", 9, 1)], slate.DONE)
    planner = StreamPlanner(options(tmp_path), environment)
    at, found, ends = await planner.begin(), list[Rows](), list[str]()
    while (end := await planner.latest(at, 2)) is not at:
        found.append(await rows_of(planner, at, end, environment))
        await planner.done(end)
        ends.append(text(end))
        at = end
    assert ends == ["2", "4", "done"]
    assert found == [[(b"a", 0, 1), (b"a", 1, 1)], [(b"a", 2, 1), (b"a", 3, 1)], [(b"z", 9, 1)]]
    await planner.close()


async def test_a_query_that_ends_at_present_reads_no_more(tmp_path: Path, environment: slate.Environment) -> None:
    await append(tmp_path, [(b"a", 0, 1)], 2)
    planner = StreamPlanner(options(tmp_path), environment)
    start = await planner.begin()
    await planner.stop_at_present()
    await append(tmp_path, [(b"b", 2, 1)], 5)
    end = await planner.latest(start, None)
    assert text(end) == "2"
    assert await planner.latest(end, None) is end
    await planner.close()


@pytest.mark.parametrize(("given", "begins", "found"), [("now", "5", []), ("3", "3", [(b"c", 4, 1)])])
async def test_where_a_query_begins(
    tmp_path: Path, environment: slate.Environment, given: str, begins: str, found: Rows
) -> None:
    await append(tmp_path, [(b"a", 0, 1), (b"c", 4, 1)], 5)
    planner = StreamPlanner(options(tmp_path, startAt=given), environment)
    start = await planner.begin()
    assert (text(start), start.at.since) == (begins, None)
    await append(tmp_path, [(b"d", 6, 1)], 7)
    planner._looked_ms = float("-inf")
    end = await planner.latest(start, None)
    assert text(end) == "7"
    assert await rows_of(planner, start, end, environment) == [*found, (b"d", 6, 1)]
    await planner.close()


async def test_contents_come_first_where_times_were_compacted(tmp_path: Path, environment: slate.Environment) -> None:
    await append(tmp_path, [(b"a", 0, 1), (b"a", 2, 1), (b"b", 4, 1)], 5)
    async with slate.open_collections(tmp_path) as lake:
        async with lake.collection("orders").reader() as reader:
            await reader.downgrade_since(3)
            await compact(tmp_path)
    planner = StreamPlanner(options(tmp_path), environment)
    start = await planner.begin()
    assert start.at.since == 3
    end = await planner.latest(start, None)
    assert await rows_of(planner, start, end, environment) == [(b"a", 3, 2), (b"b", 4, 1)]
    await planner.close()
    with pytest.raises(SinceError, match="option startAt=2: orders is compacted to 3"):
        await StreamPlanner(options(tmp_path, startAt="2"), environment).begin()


async def test_another_collection_of_that_name_is_refused_and_both_are_named(
    tmp_path: Path, environment: slate.Environment
) -> None:
    await append(tmp_path, [(b"a", 0, 1)], 2)
    planner = StreamPlanner(options(tmp_path), environment)
    start = await planner.begin()
    await planner.close()
    async with slate.open_collections(tmp_path) as lake:
        await lake.delete("orders", force=True)
        info = await (await lake.create("orders")).expire() or await lake.collection("orders").info()
    assert info.life == 2
    with pytest.raises(slate.InvalidError, match=rf"\(life 1\) is of collection {start.collection}, and .* life 2"):
        await StreamPlanner(options(tmp_path), environment).latest(stored(start), None)


async def test_the_older_of_two_queries_with_one_checkpoint_is_evicted(
    tmp_path: Path, environment: slate.Environment
) -> None:
    await append(tmp_path, [(b"a", 0, 1)], 2)
    first, second = (StreamPlanner(options(tmp_path), environment) for _ in range(2))
    start = await first.begin()
    end = await first.latest(start, None)
    assert await rows_of(second, stored(start), stored(end), environment) == [(b"a", 0, 1)]
    with pytest.raises(LeaseLostError):
        await first.done(end)
    await second.close()
    await first.close()


async def test_a_query_whose_hold_is_gone_says_so(tmp_path: Path, environment: slate.Environment) -> None:
    await append(tmp_path, [(b"a", 0, 1)], 2)
    first = StreamPlanner(options(tmp_path), environment)
    start = await first.begin()
    await first.close()  # Spark never heard of it: nothing is kept
    with pytest.raises(
        LeaseLostError, match=r"was revoked or given up.* begin the query anew, with another checkpointLocation"
    ):
        await StreamPlanner(options(tmp_path), environment).latest(stored(start), None)


async def test_times_that_are_pairs_and_offsets_of_others_are_refused(
    tmp_path: Path, environment: slate.Environment
) -> None:
    await append(tmp_path, [], [(1, 1)], time="u64x2")
    with pytest.raises(slate.InvalidError, match="times of orders are pairs, and a stream's offsets are numbers"):
        await StreamPlanner(options(tmp_path), environment).begin()
    for fields in ({}, {"seq": 4}, {"frontier": "(1,2)", "since": None}):
        with pytest.raises(slate.InvalidError, match="this is no offset of a collection's stream"):
            Offset.of(fields)
