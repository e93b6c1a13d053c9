"""Merges and absorbing in bounded memory, whatever is pending."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.arrays import number_array
from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.memory import at_once, fitting
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.store.merged import MergedSource
from slate_async.objectstore.local import LocalStore
from slate_async.runtime.system import end_threads, system_runtime
from tests.engine import InlineOffload, StoreInHand
from tests.support.collection_bytes import BYTES, frontier
from tests.support.merged_areas import merged
from tests.unit.collections.kept import KeptLake

MIB = 1 << 20
BUDGET = 64 * MIB
"""Less than what is pending: some 80 MiB."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[StoreInHand]:
    """In a folder: what is stored takes no memory."""
    runtime = system_runtime()
    local = LocalStore(tmp_path, runtime)
    yield StoreInHand(local, watch="merged_batches/")
    await local.close()
    end_threads(runtime)


def random_updates(rows: int, seed: int, time: int) -> pa.RecordBatch:
    """So many, of data of 60 bytes that compress badly, in no order."""
    rng = np.random.default_rng(seed)
    data = pa.Array.from_buffers(
        pa.binary(),
        rows,
        [None, pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * 60), pa.py_buffer(rng.bytes(60 * rows))],
    )
    times = number_array(np.full(rows, time, np.uint64))
    return pa.RecordBatch.from_arrays([data, times, number_array(np.ones(rows, np.int64))], schema=BYTES.arrow)


WATCHED: list[pa.MemoryPool] = []
"""Pools outlive what is taken from them."""


@contextmanager
def peak() -> Iterator[list[int]]:
    """How many bytes Arrow had in memory at most."""
    before, found = pa.default_memory_pool(), [0]
    watched = pa.proxy_memory_pool(before)
    WATCHED.append(watched)
    pa.set_memory_pool(watched)
    try:
        yield found
    finally:
        found[0] = watched.max_memory()
        pa.set_memory_pool(before)


async def stored_rows(lake: KeptLake) -> int:
    """Of all merged batches, read and checked."""
    count = 0
    for batch in (await lake.head()).batches:
        source = await MergedSource.open(lake.store, BYTES, batch, InlineOffload())
        async for table in source.updates():
            count += table.num_rows
    return count


async def test_much_that_is_pending_becomes_one_batch_in_bounded_memory(lake: KeptLake) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    for time in range(36):
        await writer.append(random_updates(30_000, time, time), lower=time, upper=time + 1)
    controller = await lake.controller(merge_memory_bytes=BUDGET)
    with peak() as found:
        report = await controller.round()
    assert (report.appends, report.rows) == (36, 1_080_000)
    head = await lake.head()
    assert len(head.batches) == 1
    assert head.batches[0].parts > 3
    assert await stored_rows(lake) == 1_080_000
    assert set(await lake.keys("merged_batches/")) == {
        head.batches[0].name,
        *(f"{head.batches[0].name}.p{part:05}" for part in range(head.batches[0].parts)),
    }
    assert found[0] < BUDGET


async def test_one_large_batch_of_parts_is_absorbed(lake: KeptLake) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    async with writer.batch(lower=0, upper=8) as batch:
        for time in range(8):
            await batch.add(random_updates(30_000, time, time))
    controller = await lake.controller(merge_memory_bytes=12 * MIB)
    report = await controller.round()
    assert (report.appends, report.rows, report.upper) == (1, 240_000, frontier(8))
    assert await stored_rows(lake) == 240_000


async def test_updates_that_cancel_out_are_left_out_across_runs(lake: KeptLake) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    rows = random_updates(60_000, 1, 0)
    undone = rows.set_column(2, BYTES.arrow.field(2), number_array(np.full(60_000, -1, np.int64)))
    for number, updates in enumerate([rows, undone, random_updates(10, 2, 0), rows, undone]):
        updates = updates.set_column(
            1, BYTES.arrow.field(1), number_array(np.full(updates.num_rows, number, np.uint64))
        )
        await writer.append(updates, lower=number, upper=number + 1)
    await lake.hold("pin", None, 9)
    controller = await lake.controller(merge_memory_bytes=12 * MIB)
    await controller.settle()
    head = await lake.head()
    assert [(batch.rows, batch.keys, batch.times, batch.diff_sum) for batch in head.batches] == [(10, 10, 1, 10)]


async def test_a_merge_of_large_batches_takes_bounded_memory(lake: KeptLake) -> None:
    controller = await lake.controller(merge_memory_bytes=BUDGET)
    for time in range(3):
        writer = await lake.writer(Appends.DEFINITE, "a")
        await writer.append(random_updates(350_000, time, time), lower=time, upper=time + 1)
        await writer.close()
        await controller.round()
    assert len((await lake.head()).batches) > 1
    with peak() as found:
        await controller.merge(everything=True)
    assert len((await lake.head()).batches) == 1
    assert found[0] < BUDGET
    assert await stored_rows(lake) == 1_050_000


def sized(name: str, rows: int) -> MergedBatch:
    """A batch of rows of 25 bytes."""
    return merged(name, 0, 1, rows, nbytes=25 * rows)


def test_of_what_does_not_fit_the_neighbours_with_the_fewest_rows_are_merged_first() -> None:
    batches = [sized("a", 10**6), *(sized(f"b{number}", 1_000) for number in range(4)), sized("c", 2 * 10**6)]
    assert [batch.name for batch in fitting(1 << 40, batches)] == ["a", "b0", "b1", "b2", "b3", "c"]
    assert [batch.name for batch in fitting(256 * MIB, batches)] == ["a", "b0", "b1", "b2", "b3"]
    assert [batch.name for batch in fitting(80 * MIB, batches)] == ["b0", "b1", "b2", "b3"]
    assert [batch.name for batch in fitting(8 * MIB, batches)] == ["b0", "b1"]
    assert at_once(8 * MIB, batches) == 2
