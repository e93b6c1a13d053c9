"""A run's tables follow each other without a pause."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.live import LiveRows
from slate_async.engine.read.merge import Stream
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.sources import Run, Table
from slate_async.engine.read.streams import RunStream
from slate_async.engine.read.view import ReadView
from slate_async.errors import FencedError
from slate_async.types import MAX_SEQ
from tests.read_model import ample_budget, exhausted_budget
from tests.support.rows import R, rows_of, sst_of
from tests.support.sst_readers import CountingStore, reader_of


def rows_from(first: int) -> list[R]:
    """Rows of an SST that is not read whole when it is opened."""
    return [R(b"%06d" % number, b"%d" % number * 20, number + 1) for number in range(first, first + 2000)]


def run_of(*parts: list[R]) -> tuple[Run, list[CountingStore]]:
    """A run with each of ``parts`` in an SST, and where each is stored."""
    stores = [CountingStore() for _ in parts]
    encoded = [sst_of(part, block_bytes=4000) for part in parts]
    tables = [
        Table(part[0].key, part[-1].key, reader_of(store, sst))
        for part, store, sst in zip(parts, stores, encoded, strict=True)
    ]
    return Run(tables), stores


@pytest.mark.parametrize("reverse", [False, True])
async def test_the_next_table_is_read_while_rows_of_the_one_before_are_left(reverse: bool) -> None:
    parts = [rows_from(0), rows_from(2000)]
    run, stores = run_of(*parts)
    stream = RunStream(run, range(2), KeyRange(None, None), reverse, 1)
    batches = [await anext(stream), await anext(stream)]
    for _ in range(20):
        await asyncio.sleep(0)
    other = stores[0 if reverse else 1]
    assert len(other.reads) == 2  # index and filter; all blocks at once
    batches += [batch async for batch in stream]
    found = [row for batch in batches for row in rows_of(batch)[:: -1 if reverse else 1]]
    assert found == (parts[0] + parts[1])[:: -1 if reverse else 1]


async def test_a_stream_that_ends_early_ends_what_it_began() -> None:
    run, stores = run_of(rows_from(0), rows_from(2000))
    stream = RunStream(run, range(2), KeyRange(None, None), False, 1)
    await anext(stream)
    stores[1].gate = asyncio.Event()
    await anext(stream)
    await asyncio.sleep(0)
    await stream.aclose()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_table_is_not_begun_for_a_read_that_may_stop_early() -> None:
    run, stores = run_of(rows_from(0), rows_from(2000))
    stream = RunStream(run, range(2), KeyRange(None, None), False)
    await anext(stream)
    await anext(stream)
    for _ in range(20):
        await asyncio.sleep(0)
    assert stores[1].reads == []
    await stream.aclose()


@pytest.mark.parametrize("max_seq", [10_000, 1000])
async def test_what_was_read_is_given_without_waiting(max_seq: int) -> None:
    rows = rows_from(0)
    run, _ = run_of(rows)
    stored = RunStream(run, range(1), KeyRange(None, None), False, 1)
    stream = Stream(stored, next_nowait=stored.next_nowait)
    live = LiveRows([stream], max_seq=max_seq, now_ms=0, yield_budget=exhausted_budget())
    assert live.next_nowait() is None
    batches = [await anext(live)]
    while (batch := live.next_nowait()) is not None:
        batches.append(batch)
    assert len(batches) > 1
    assert await anext(live, None) is None
    assert [row for batch in batches for row in rows_of(batch)] == [row for row in rows if row.seq <= max_seq]


@pytest.mark.parametrize("limit", [None, 1500])
async def test_batches_take_what_needs_no_waiting(limit: int | None) -> None:
    rows = rows_from(0)
    run, _ = run_of(rows)
    free = ample_budget()
    view = ReadView([], [], [run], yield_budget=free)
    scan = Scan(ReadPoint(view, MAX_SEQ, 0), KeyRange(None, None), free, lambda: None, limit=limit)
    batches = [batch async for batch in scan.batches(max_rows=700)]
    assert [batch.num_rows for batch in batches] == [700, 700, 600 if limit is None else 100]
    assert [key for batch in batches for key in batch.column("key").to_pylist()] == [row.key for row in rows][:limit]
    assert not view.pinned


async def test_what_needs_no_waiting_is_not_given_for_an_owner_that_was_fenced() -> None:
    run, _ = run_of(rows_from(0))
    free = ample_budget()
    fenced = False

    def check() -> None:
        if fenced:
            raise FencedError("another writer")

    view = ReadView([], [], [run], yield_budget=free)
    batches = Scan(ReadPoint(view, MAX_SEQ, 0), KeyRange(None, None), free, check).batches(max_rows=100)
    await anext(batches)
    fenced = True
    with pytest.raises(FencedError):
        await anext(batches)
    assert not view.pinned
