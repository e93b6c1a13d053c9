"""`slate_async.collections.store.merged` and `.spans`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.codec.merged import GROUP_BYTES, GROUP_ROWS
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.store import merged
from slate_async.collections.store.merged import MergedSource, MergedWriter, Stored, delete_merged, list_merged
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from tests.engine import InlineOffload, StoreInHand
from tests.support.collection_bytes import BYTES, UPDATES, many
from tests.support.merged_areas import FILE, of_file
from tests.unit.collections.faults import next_put


async def written(store: StoreInHand, *batches: pa.RecordBatch, part_bytes: int = 1 << 30) -> MergedBatch:
    """``batches`` as one batch, and what a version says of it."""
    writer = MergedWriter(store, BYTES, FILE, InlineOffload(), part_bytes=part_bytes)
    for batch in batches:
        await writer.add(batch)
    return of_file(await writer.finish())


async def opened(store: StoreInHand, batch: MergedBatch) -> MergedSource:
    return await MergedSource.open(store, BYTES, batch, InlineOffload())


async def contents(store: StoreInHand, batch: MergedBatch) -> pa.Table:
    return pa.concat_tables([table async for table in (await opened(store, batch)).updates()]).combine_chunks()


async def test_a_small_batch_is_one_object(store: StoreInHand) -> None:
    batch = await written(store, UPDATES)
    assert [info.key async for info in store.list()] == [str(FILE)]
    assert (batch.rows, batch.parts) == (4, 0)
    assert await contents(store, batch) == pa.Table.from_batches([UPDATES])
    assert (await opened(store, batch)).edges is None


@pytest.mark.parametrize("fetch_bytes", [1, 1 << 30])
@pytest.mark.parametrize("step", [1000, 70_000, 300_000])
async def test_a_large_batch_is_in_parts(
    store: StoreInHand, step: int, fetch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged, "FETCH_BYTES", fetch_bytes)
    updates = many(300_000)
    pieces = [updates.slice(start, step) for start in range(0, updates.num_rows, step)]
    batch = await written(store, *pieces, part_bytes=200_000)
    assert batch.parts == 3
    assert [put.key for put in store.puts] == [*(f"{FILE}.p{part:05}" for part in range(3)), str(FILE)]
    assert await contents(store, batch) == pa.Table.from_batches([updates])
    source = await opened(store, batch)
    assert source.edges is not None
    edges = source.edges.column("data").to_pylist()
    ends = [0]
    for part in source.parts:
        ends.append(ends[-1] + part.rows)
    data = updates.column("data").to_pylist()
    assert edges == [data[at] for start, end in itertools.pairwise(ends) for at in (start, end - 1)]


async def test_some_row_groups_and_columns_are_read(store: StoreInHand) -> None:
    updates = many(300_000)
    source = await opened(store, await written(store, updates))
    store.gets.clear()
    tables = [table async for table in source.read(0, range(1, 3), ["_diff", "data"])]
    assert [table.num_rows for table in tables] == [GROUP_ROWS, GROUP_ROWS]
    expected = pa.Table.from_batches([updates.slice(GROUP_ROWS, 2 * GROUP_ROWS)]).select(["_diff", "data"])
    assert pa.concat_tables(tables).combine_chunks() == expected.combine_chunks()
    assert store.gets == []


async def test_only_what_is_wanted_is_requested(store: StoreInHand) -> None:
    source = await opened(store, await written(store, many(300_000), part_bytes=200_000))
    store.gets.clear()
    assert [table.num_rows async for table in source.read(1, range(1))] == [GROUP_ROWS]
    assert store.gets == [source.key(1)] * 2  # the footer, the row group
    assert [table.num_rows async for table in source.read(1, range(1))] == [GROUP_ROWS]
    assert len(store.gets) == 3


async def test_long_rows_make_small_row_groups(store: StoreInHand) -> None:
    """What is decoded at once is bounded by bytes, not by rows alone."""
    rows, nbytes = 600, 100_000
    data = pa.array([number.to_bytes(4, "big") + bytes(nbytes) for number in range(rows)], pa.binary())
    zeros = np.zeros(rows, np.uint64)
    updates = pa.RecordBatch.from_arrays([data, pa.array(zeros), pa.array(np.ones(rows, np.int64))], schema=BYTES.arrow)
    batch = await written(store, updates)
    file = await (await opened(store, batch)).file(0)
    assert sum(group.rows for group in file.groups) == rows
    assert max(group.rows for group in file.groups) * nbytes <= 1.1 * GROUP_BYTES
    assert await contents(store, batch) == pa.Table.from_batches([updates])


async def test_a_batch_without_rows_has_no_object(store: StoreInHand) -> None:
    writer = MergedWriter(store, BYTES, FILE, InlineOffload())
    await writer.add(BYTES.empty())
    with pytest.raises(InvalidError, match="a batch without rows has no object"):
        await writer.finish()
    source = await opened(store, of_file(Stored(0, 0, 0, 0)))
    assert [table async for table in source.updates()] == []


async def test_too_many_parts_are_refused(store: StoreInHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "MAX_PARTS", 2)
    with pytest.raises(InvalidError, match="more than 2 parts"):
        await written(store, many(300_000), part_bytes=200_000)


@pytest.mark.parametrize("put", range(4))
async def test_a_put_that_fails_leaves_no_batch(store: StoreInHand, put: int) -> None:
    """The index comes last, so a batch that is there is whole; all may be written again under the same name."""
    count = 0

    def fail(key: str) -> Exception | None:
        nonlocal count
        count += 1
        return UnavailableError("no answer", outcome="unknown") if count == put + 1 else None

    store.fail_before = fail
    with pytest.raises(UnavailableError):
        await written(store, many(300_000), part_bytes=200_000)
    assert str(FILE) not in [info.key async for info in store.list()]
    next_put(store, None)
    batch = await written(store, many(300_000), part_bytes=200_000)
    assert await contents(store, batch) == pa.Table.from_batches([many(300_000)])


@pytest.mark.parametrize("parts", [0, 3])
async def test_what_is_missing_or_damaged_is_noticed(store: StoreInHand, parts: int) -> None:
    batch = await written(store, many(300_000), part_bytes=200_000 if parts else 1 << 30)
    assert batch.parts == parts
    keys = [info.key async for info in store.list()]
    assert len(keys) == parts + 1
    for key in keys:
        data = (await store.get(key)).data
        middle = len(data) // 2
        for wrong in (data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], data[:middle], data[:-1], b""):
            await store.put(key, wrong)
            with pytest.raises(CorruptionError, match=key):
                await contents(store, batch)
        await store.delete([key])
        with pytest.raises(ObjectNotFoundError):
            await contents(store, batch)
        await store.put(key, data)
    assert (await contents(store, batch)).num_rows == 300_000


@pytest.mark.parametrize("wrong", [{"rows": 5}, {"nbytes": 5}, {"crc": 5}])
@pytest.mark.parametrize("part_bytes", [200_000, 1 << 30])
async def test_a_batch_that_is_not_as_the_version_says_is_corruption(
    store: StoreInHand, wrong: dict[str, Any], part_bytes: int
) -> None:
    batch = await written(store, many(300_000), part_bytes=part_bytes)
    with pytest.raises(CorruptionError, match=str(FILE)):
        await opened(store, replace(batch, **wrong))


async def test_listed_files_say_their_batch_and_epoch(store: StoreInHand) -> None:
    await written(store, many(300_000), part_bytes=200_000)
    await store.put("merged_batches/README", b"foreign")
    files = await list_merged(store, BYTES)
    assert [file.key for file in files] == [str(FILE), *(f"{FILE}.p{part:05}" for part in range(3))]
    assert {(file.batch, file.epoch) for file in files} == {(str(FILE), 2)}
    await delete_merged(store, [file.key for file in files])
    assert [info.key async for info in store.list()] == ["merged_batches/README"]
