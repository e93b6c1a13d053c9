"""`slate_async.spark.collection_plan` and what its tasks read, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.collections.core import sweep
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.holding import StoredHold
from slate_async.spark import collection_frames
from slate_async.spark.collection_frames import _Kept
from slate_async.spark.collection_options import CollectionRead
from slate_async.spark.collection_place import open_collection
from slate_async.spark.collection_plan import CollectionPartition, kept, plan_partitions
from slate_async.spark.collection_read import _rows
from slate_async.spark.collection_types import rows_of

ROWS = [(b"%03d" % number, number % 5, 1) for number in range(300)]


@pytest.fixture
async def environment() -> AsyncIterator[slate.Environment]:
    async with slate.Environment() as made:
        yield made


def options(path: Path, **given: str) -> CollectionRead:
    return CollectionRead.of({"path": str(path), "collection": "orders", **given})


async def make(path: Path, rows: list[Any], upper: int, **kind: Any) -> None:
    async with slate.open_collections(path) as lake:
        await (await lake.create("orders", **kind)).expire()
        async with lake.collection("orders").writer() as writer:
            if upper:
                await writer.append(rows, upper=upper)


async def compacted(path: Path, since: int) -> None:
    await make(path, ROWS, 5)
    async with slate.open_collections(path) as lake:
        orders = lake.collection("orders")
        async with orders.reader() as reader, orders.controller(background=False) as controller:
            await reader.downgrade_since(since)
            for _ in range(3):
                await controller.settle()


async def holds(path: Path, environment: slate.Environment) -> dict[str, StoredHold]:
    async with open_collection(options(path).place, environment) as stores:
        return await stores.holds.read_all(await stores.holds.list())


async def read(parts: list[CollectionPartition], environment: slate.Environment) -> list[tuple[bytes, int, int]]:
    found = []
    for part in parts:
        async with open_collection(part.place, environment) as stores:
            schema = rows_of(stores.schema)
        async for batch in _rows(part, schema, environment):
            found += [(row["data"], row["_time"], row["_diff"]) for row in batch.to_pylist()]
    return found


@pytest.mark.parametrize("appends", ["definite", "compare"])
async def test_tasks_read_under_the_hold_of_the_planner(
    tmp_path: Path, environment: slate.Environment, appends: str
) -> None:
    await make(tmp_path, ROWS, 5, appends=appends)
    parts = await plan_partitions(options(tmp_path, asOf="2"), [], environment)
    [(name, stored)] = (await holds(tmp_path, environment)).items()
    assert (stored.hold.lease_ms, stored.hold.note) == (3_600_000, "spark read")
    wanted = [(data, 2, 1) for data, time, _ in ROWS if time <= 2]
    assert await read(parts, environment) == wanted
    assert parts[0].lease is not None
    late = replace(parts[0].lease, made_ms=parts[0].lease.made_ms - 1_000_000)
    async with open_collection(parts[0].place, environment) as stores:
        async with kept(stores.reading(), late):
            pass
        assert (await holds(tmp_path, environment))[name].hold.beat == stored.hold.beat + 1, "it was time"
        async with kept(stores.reading(), parts[0].lease):
            pass
        assert (await holds(tmp_path, environment))[name].hold.beat == stored.hold.beat + 1
    assert await read(parts, environment) == wanted


async def test_a_lost_lease_is_an_error_and_no_wrong_rows(tmp_path: Path, environment: slate.Environment) -> None:
    await make(tmp_path, ROWS, 5, appends="compare")
    parts = await plan_partitions(options(tmp_path), [], environment)
    async with open_collection(parts[0].place, environment) as stores:
        for name, stored in (await holds(tmp_path, environment)).items():
            await stores.holds.write(name, sweep.revoking(stored.hold, "f" * 32), stored.etag)
    with pytest.raises(LeaseLostError, match=r"the hold .* of orders, under which this is read, was revoked"):
        await read(parts, environment)


async def test_nothing_is_read_of_a_collection_without_appends(tmp_path: Path, environment: slate.Environment) -> None:
    await make(tmp_path, [], 0)
    assert await plan_partitions(options(tmp_path), [], environment) == []
    assert await holds(tmp_path, environment) == {}, "there is nothing to keep"


async def test_a_batch_in_parts_is_cut_by_the_bytes_of_its_parts(
    tmp_path: Path, environment: slate.Environment
) -> None:
    """Of such a batch a version has the bytes of the index alone."""
    settings = slate.CollectionSettings(merge_memory_bytes=8 << 20)
    numbers = np.random.default_rng(7).integers(0, 2**63, 250_000)
    columns = [numbers, np.zeros(len(numbers), np.uint64), np.ones(len(numbers), np.int64)]
    async with slate.open_collections(tmp_path, settings=settings) as lake:
        await (await lake.create("orders", data=pa.schema([("number", pa.int64())]))).expire()
        orders = lake.collection("orders")
        async with orders.writer() as writer:
            await writer.append(pa.record_batch(columns, names=["number", "_time", "_diff"]), upper=1)
        async with orders.controller(background=False) as controller:
            await controller.settle()
    parts = await plan_partitions(options(tmp_path, partitionBytes="500000"), [], environment)
    assert len(parts) >= 3
    async with open_collection(parts[0].place, environment) as stores:
        [batch], schema = (await stores.versions.load()).batches, rows_of(stores.schema)
    assert (batch.parts > 2, batch.nbytes < 10_000) == (True, True)
    rows = [[batch.num_rows async for batch in _rows(part, schema, environment)] for part in parts]
    assert sum(map(sum, rows)) == len(set(numbers))


async def test_what_is_pending_does_not_travel_with_each_partition(
    tmp_path: Path, environment: slate.Environment
) -> None:
    await make(tmp_path, ROWS, 5, appends="compare")
    [part] = await plan_partitions(options(tmp_path), [], environment)
    [taken] = part.split.source.taken
    assert taken.batch.content is None
    assert len(await read([part], environment)) == len(ROWS)


async def test_a_filter_that_a_column_cannot_hold_is_left_to_spark(
    tmp_path: Path, environment: slate.Environment
) -> None:
    async with slate.open_collections(tmp_path) as lake:
        await (await lake.create("orders", data=pa.schema([("small", pa.uint8()), ("large", pa.uint64())]))).expire()
        async with lake.collection("orders").writer() as writer:
            await writer.append([((number, 2**63 + number), 0, 1) for number in range(9)], upper=1)
    where = [("small", "<", 300), ("small", ">=", -5), ("large", ">", 2**63 + 3)]
    [part] = await plan_partitions(options(tmp_path), where, environment)
    assert part.split.where == (("large", ">", 2**63 + 3),)
    async with open_collection(part.place, environment) as stores:
        schema = rows_of(stores.schema)
    assert sum([batch.num_rows async for batch in _rows(part, schema, environment)]) == 5


async def test_queries_of_a_block_are_refused_a_time_that_may_be_compacted_between_them(
    tmp_path: Path, environment: slate.Environment
) -> None:
    await compacted(tmp_path, 4)
    kept_hold = _Kept(options(tmp_path, asOf="1"))
    await kept_hold.keep(environment)
    with pytest.raises(SinceError, match=r"as_of 1 is before since 4 of orders: earlier .* read at 4 or later"):
        kept_hold.as_of.result()
    assert await holds(tmp_path, environment) == {}


async def test_a_block_that_is_left_while_it_waits_for_its_time_keeps_nothing(
    tmp_path: Path, environment: slate.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def definite(*_: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(collection_frames, "definite", definite)
    await make(tmp_path, ROWS, 5)
    kept_hold = _Kept(options(tmp_path, asOf="77"))
    keeping = asyncio.create_task(kept_hold.keep(environment))
    await waiting.wait()
    assert len(await holds(tmp_path, environment)) == 1
    await kept_hold.end(environment)
    async with asyncio.timeout(20):
        await keeping
    with pytest.raises(asyncio.CancelledError):
        kept_hold.as_of.result()
    assert await holds(tmp_path, environment) == {}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            {"asOf": "5", "timeout": "0.01"},
            slate.UnavailableError,
            r"definite up to 5, and asOf=5 was not within 0\.01 s",
        ),
        ({"asOf": "(1,2)"}, slate.InvalidError, "option asOf=.*: a time of this collection is a number"),
        ({"hold": "none:3"}, LeaseLostError, "the hold none of orders"),
        ({"collection": "other"}, slate.NotFoundError, "other"),
    ],
)
async def test_a_plan_that_fails_leaves_no_hold(
    tmp_path: Path, environment: slate.Environment, given: dict[str, str], error: type[Exception], words: str
) -> None:
    await make(tmp_path, ROWS, 5)
    with pytest.raises(error, match=words):
        await plan_partitions(options(tmp_path, **given), [], environment)
    assert await holds(tmp_path, environment) == {}


async def test_of_pairs_a_time_is_asked_for(tmp_path: Path, environment: slate.Environment) -> None:
    await make(tmp_path, [], 0, time="u64x2")
    with pytest.raises(slate.InvalidError, match=r"times of orders are pairs, .*: give option asOf, such as \(3,0\)"):
        await plan_partitions(options(tmp_path), [], environment)


async def test_a_time_that_was_compacted_is_refused(tmp_path: Path, environment: slate.Environment) -> None:
    await compacted(tmp_path, 4)
    with pytest.raises(SinceError, match="as_of 1 is before since 4 of orders"):
        await plan_partitions(options(tmp_path, asOf="1"), [], environment)
    assert len(await read(await plan_partitions(options(tmp_path), [], environment), environment)) == 300
