"""Sums of differences beyond int64: appended, merged, read, and brought back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import slate_async as slate
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime

LARGEST = 2**63 - 1
COLUMNS = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.int64())])
KINDS = [
    pytest.param(appends, data, time, id=f"{appends}-{'bytes' if data is bytes else 'columns'}-{time}")
    for appends in ("definite", "compare")
    for data in (bytes, COLUMNS)
    for time in ("u64", "u64x2")
]


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    settings = slate.CollectionSettings(part_bytes=2_000_000)
    runtime = fast_runtime()
    async with open_collections(
        store, name="memory://lake", controller=False, runtime=runtime, settings=settings
    ) as made:
        yield made


def row(data: Any, name: str) -> Any:
    return name.encode() if data is bytes else (name, 7)


def at(time: str, number: int) -> Any:
    return number if time == "u64" else (number, 0)


def until(time: str, number: int) -> Any:
    return number if time == "u64" else [(number, 0)]


async def read(pin: slate.CriticalHandle, as_of: Any, **options: Any) -> list[tuple[Any, int]]:
    async with await pin.reader() as reader, await reader.snapshot(as_of, **options) as snapshot:
        return [row async for row in snapshot.rows()]


async def compacted(pin: slate.CriticalHandle, since: Any, controller: slate.Controller) -> None:
    await pin.compare_and_downgrade(pin.token, pin.token, since)
    await controller.settle()


@pytest.mark.parametrize(("appends", "data", "time"), KINDS)
async def test_sums_of_several_batches_are_kept_and_may_come_back(
    lake: Lake, appends: Any, data: Any, time: Any
) -> None:
    x, y = row(data, "x" * 300), row(data, "y")
    column, wanted = ("data", b"y") if data is bytes else ("key", "y")
    await (await lake.create("orders", data=data, time=time, appends=appends)).expire()
    orders = lake.collection("orders")
    pin = await orders.critical("pin")
    async with orders.writer("w") as writer, orders.controller(background=False) as controller:
        for number in range(3):
            rows = [(x, at(time, number), LARGEST), (y, at(time, number), 1)]
            await writer.append(rows, upper=until(time, number + 1))
        for _ in range(2):  # pending, then merged
            assert await read(pin, at(time, 0)) == [(x, LARGEST), (y, 1)]
            with pytest.raises(slate.SumError, match=r"a snapshot of orders as of .*does not fit int64") as raised:
                await read(pin, at(time, 2))
            assert str(3 * LARGEST) in str(raised.value)
            assert len(str(raised.value)) < 300
            assert await read(pin, at(time, 2), where=[(column, "==", wanted)]) == [(y, 3)]
            await controller.settle()
        for number in range(3, 5):  # merges that add such sums up with others
            await writer.append([(x, at(time, number), LARGEST)], upper=until(time, number + 1))
            await compacted(pin, at(time, number), controller)
        assert (await orders.inspect()).rows == 6  # five times the largest is as many rows
        assert (await orders.verify()).clean
        with pytest.raises(slate.SumError):
            await read(pin, at(time, 4))
        for number in range(5, 9):
            await writer.append([(x, at(time, number), -LARGEST)], upper=until(time, number + 1))
        assert await read(pin, at(time, 8)) == [(x, LARGEST), (y, 3)]
        await compacted(pin, at(time, 8), controller)
        assert await read(pin, at(time, 8)) == [(x, LARGEST), (y, 3)]
        assert (await orders.inspect()).rows == 2
        assert (await orders.verify()).clean


@pytest.mark.parametrize("appends", ["definite", "compare"])
async def test_what_one_part_shows_is_refused_and_the_rest_is_kept(lake: Lake, appends: Any) -> None:
    await (await lake.create("orders", appends=appends)).expire()
    orders = lake.collection("orders")
    pin = await orders.critical("pin")

    async def large(writer: slate.Writer, *adds: list[tuple[bytes, int, int]]) -> None:
        async with writer.batch(upper=5) as batch:
            for rows in adds:
                await batch.add(rows)

    one, other = [(b"x", 1, LARGEST)], [(b"x", 1, 1)]
    async with orders.writer("w") as writer:
        with pytest.raises(slate.SumError, match="does not fit int64: data=b'x', _time=1 add up to"):
            await large(writer, one, other)
        assert writer.upper == slate.Frontier([(0,)])
        await large(writer, one, [(b"%07d" % number * 20, 1, 1) for number in range(20_000)], other)
    async with orders.controller(background=False) as controller:
        for _ in range(2):
            with pytest.raises(slate.SumError, match=r"orders as of 4.*data=b'x', _time=4"):
                await read(pin, 4)
            async with await pin.reader() as reader:
                delta = await anext(aiter(reader.listen(as_of=0)))
                given = delta.updates.filter(pc.equal(delta.updates.column("data"), b"x"))
                assert sorted(given.column("_diff").to_pylist()) == [1, LARGEST]
            await controller.settle()
    assert (await orders.verify()).clean
