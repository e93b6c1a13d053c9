"""`slate_async.spark.collection_plan` and what its tasks read, without Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.collections.core import sweep
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.holding import StoredHold
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


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            {"asOf": "5", "timeout": "0.01"},
            slate.UnavailableError,
            r"definite up to 5, and asOf=5 was not within 0\.01 s",
        ),
        ({"asOf": "(1,2)"}, slate.InvalidError, "no frontier of u64 times"),
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


async def test_a_time_that_was_compacted_is_refused(tmp_path: Path, environment: slate.Environment) -> None:
    await make(tmp_path, ROWS, 5)
    async with slate.open_collections(tmp_path) as lake:
        orders = lake.collection("orders")
        async with orders.reader() as reader, orders.controller(background=False) as controller:
            await reader.downgrade_since(4)
            for _ in range(3):
                await controller.settle()
    with pytest.raises(SinceError, match="as_of 1 is not beyond since 4 of orders"):
        await plan_partitions(options(tmp_path, asOf="1"), [], environment)
    assert len(await read(await plan_partitions(options(tmp_path), [], environment), environment)) == 300
