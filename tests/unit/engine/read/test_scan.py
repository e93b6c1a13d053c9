"""Scans: iteration forms, limits, ends of life, fairness."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import KeyRange, ReadView, Scan, Table, key_range, merge
from slate_async.engine.read import scan as scan_module
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.scan_steps import CHUNK_ROWS
from slate_async.errors import FencedError, InternalError, InvalidError
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.memtable import Memtable
from slate_async.types import MAX_SEQ, MERGE, PUT, Row
from tests.read_model import FakeTable, StillClock, StoredTables, Version, exhausted_budget, table

ALL = KeyRange(None, None)


class SlowClock(StillClock):
    """A tenth of a millisecond a look."""

    def monotonic(self) -> float:
        return super().monotonic() / 10


def view_of(count: int, *, tables: int = 2) -> ReadView:
    """``count`` keys, half of them in memory, the others in tables; values name their source."""
    memory = Memtable()
    in_tables: list[list[Version]] = [[] for _ in range(tables)]
    for i in range(count):
        key = b"%06d" % i
        if i % 2:
            memory.append(key, b"m%d" % i, PUT, 10_000_000 + i, NO_EXPIRY, i)
        else:
            in_tables[i // 2 % tables].append(Version(key, b"t%d" % i, i + 1, expire_ms=5_000, create_ms=1_500))
    parts = [table(rows, (7, 40)) for rows in in_tables if rows]
    return ReadView([memory], parts, [], yield_budget=exhausted_budget())


def scan_of(
    view: ReadView,
    span: KeyRange = ALL,
    *,
    reverse: bool = False,
    limit: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Scan:
    max_seq = max((memory.last_seq for memory in view.memtables), default=0) or MAX_SEQ
    return Scan(ReadPoint(view, max_seq, 1_000), span, exhausted_budget(), check, reverse=reverse, limit=limit)


def key_numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [int(key) for batch in batches for key in batch.column("key").to_pylist()]


@pytest.mark.parametrize("reverse", [False, True])
async def test_three_ways_to_iterate(reverse: bool) -> None:
    view = view_of(1000)
    order = list(range(1000))[:: -1 if reverse else 1]
    pairs = [pair async for pair in scan_of(view, reverse=reverse)]
    assert pairs == [(b"%06d" % i, b"%s%d" % (b"m" if i % 2 else b"t", i)) for i in order]
    rows = [row async for row in scan_of(view, reverse=reverse).rows()]
    assert rows[order[0]] == Row(b"000000", b"t0", 1, 1.5, 5.0)
    assert rows[order[1]] == Row(b"000001", b"m1", 10_000_001, 0.001, None)
    assert [row.key for row in rows] == [key for key, _ in pairs]
    batches = [batch async for batch in scan_of(view, reverse=reverse).batches(max_rows=300)]
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert key_numbers(batches) == order
    assert batches[0].schema == pa.schema([("key", pa.binary()), ("value", pa.binary()), ("seq", pa.uint64())])
    assert batches[0].column("seq").to_pylist() == [row.seq for row in rows[:300]]
    timed = [batch async for batch in scan_of(view, reverse=reverse).batches(times=True)]
    times = [
        (start.timestamp(), None if end is None else end.timestamp())
        for batch in timed
        for start, end in zip(*(batch.column(name).to_pylist() for name in ("create_time", "expire_time")), strict=True)
    ]
    assert times == [(row.create_time, row.expire_time) for row in rows]
    assert [row["seq"] for batch in timed for row in batch.to_pylist()] == [row.seq for row in rows]
    assert not view.pinned


async def test_batches_are_what_their_type_says() -> None:
    assert get_type_hints(Scan.batches)["return"] == AsyncIterator[RecordBatch]
    (batch,) = [batch async for batch in scan_of(view_of(3)).batches()]
    assert isinstance(batch, RecordBatch)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.select(["key"]).slice(1, 1).to_pylist() == [{"key": b"000001"}]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 2, 7, CHUNK_ROWS, CHUNK_ROWS + 1, 599, 600, 601])
async def test_limit_is_exact(limit: int, reverse: bool) -> None:
    view = view_of(600)
    order = list(range(600))[:: -1 if reverse else 1][:limit]
    scan = scan_of(view, reverse=reverse, limit=limit)
    assert [int(key) async for key, _ in scan] == order
    assert not view.pinned
    batches = [batch async for batch in scan_of(view, reverse=reverse, limit=limit).batches(100)]
    assert key_numbers(batches) == order


@pytest.mark.parametrize(("start", "end"), [(b"000005", b"000009"), (b"000005", None), (None, b"000009"), (b"9", b"8")])
@pytest.mark.parametrize("reverse", [False, True])
async def test_bounds(start: bytes | None, end: bytes | None, reverse: bool) -> None:
    keys = [key async for key, _ in scan_of(view_of(20), key_range(start, end, None), reverse=reverse)]
    expected = [
        key
        for key in (b"%06d" % i for i in range(20))
        if (start is None or key >= start) and (end is None or key < end)
    ]
    assert keys == expected[:: -1 if reverse else 1]


@pytest.mark.parametrize("limit", [-1, 1.5, True, "3"])
def test_wrong_limits(limit: int) -> None:
    with pytest.raises(InvalidError, match="limit"):
        scan_of(view_of(1), limit=limit)


@pytest.mark.parametrize("rows", [0, -1, True, 2.0])
def test_wrong_batch_sizes(rows: int) -> None:
    with pytest.raises(InvalidError, match="max_rows"):
        scan_of(view_of(1)).batches(rows)


async def test_large_batches_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ROUND_ROWS", 60)
    monkeypatch.setattr(merge, "LEAST_ROWS", 4)
    monkeypatch.setattr(scan_module, "BATCH_BYTES", 1000)
    batches = [batch async for batch in scan_of(view_of(500)).batches()]
    assert key_numbers(batches) == list(range(500))
    assert len(batches) > 5
    monkeypatch.setattr(scan_module, "BATCH_BYTES", 1)
    held = [batch async for batch in scan_of(view_of(40), reverse=True).batches(9)]
    assert key_numbers(held) == list(range(39, -1, -1))


async def test_iterated_once() -> None:
    scan = scan_of(view_of(4))
    assert len([pair async for pair in scan]) == 4
    for again in (aiter(scan), scan.rows(), scan.batches()):
        with pytest.raises(InvalidError, match="once"):
            await anext(again)
    unfinished = scan_of(view_of(4))
    async for _ in unfinished:
        break
    with pytest.raises(InvalidError, match="once"):
        async for _ in unfinished:
            pass


async def test_the_end_stays_the_end() -> None:
    steps = aiter(scan_of(view_of(1)))
    await anext(steps)
    for _ in range(3):
        assert await anext(steps, None) is None


async def test_pins_are_given_up_however_a_scan_ends() -> None:
    view = view_of(600)
    scan = scan_of(view)
    assert view.pinned
    await scan.aclose()
    await scan.aclose()
    assert not view.pinned
    with pytest.raises(InvalidError, match="closed"):
        await anext(aiter(scan))

    async with scan_of(view) as inside:
        async for _ in inside:
            break
        assert view.pinned
    assert not view.pinned

    async for _ in scan_of(view):
        break  # dropped unfinished
    gc.collect()
    assert not view.pinned
    never_started = scan_of(view)
    del never_started
    gc.collect()
    assert not view.pinned
    await asyncio.sleep(0)  # dropped streams close in their own time
    await asyncio.sleep(0)
    assert all(part.source.scans_open == 0 for part in view.tables if isinstance(part.source, FakeTable))


async def test_a_closed_owner_fails_the_scan() -> None:
    fenced = False

    def check() -> None:
        if fenced:
            raise FencedError("another writer took over")

    async def drain(steps: AsyncIterator[object]) -> None:
        async for _ in steps:
            pass

    view = view_of(4 * CHUNK_ROWS)
    for iterate in (aiter, Scan.rows, lambda scan: scan.batches(5)):
        steps = iterate(scan_of(view, check=check))
        await anext(steps)
        assert view.pinned
        fenced = True
        with pytest.raises(FencedError):
            await drain(steps)
        assert not view.pinned
        fenced = False
        with pytest.raises(InvalidError, match="interrupted"):
            await drain(steps)


async def test_an_owner_that_closes_during_a_wait_fails_the_scan() -> None:
    fenced = False

    def check() -> None:
        if fenced:
            raise FencedError("another writer took over")

    step = asyncio.ensure_future(anext(aiter(scan_of(view_of(4), check=check))))
    await asyncio.sleep(0)
    fenced = True
    with pytest.raises(FencedError):
        await step


async def test_errors_of_a_source_end_the_scan() -> None:
    bad = Table(b"a", b"z", FakeTable([Version(b"b", b"", 1)], fails=OSError("lost")))
    view = ReadView([], [bad], [], yield_budget=exhausted_budget())
    steps = aiter(scan_of(view))
    with pytest.raises(OSError, match="lost"):
        await anext(steps)
    assert not view.pinned
    with pytest.raises(InvalidError, match="interrupted"):
        await anext(steps)


@pytest.mark.parametrize("turn", range(1, 14))
async def test_a_cancelled_step_never_looks_like_the_end(turn: int) -> None:
    view = view_of(100)
    steps = aiter(scan_of(view))
    step = asyncio.ensure_future(anext(steps))
    for _ in range(turn):
        await asyncio.sleep(0)
    if not step.cancel():
        assert (await step)[0] == b"000000"
        assert len([pair async for pair in steps]) == 99
        return
    with pytest.raises(asyncio.CancelledError):
        await step
    if view.pinned:  # the step had not begun to read
        assert turn <= 2
        assert len([pair async for pair in steps]) == 100
        return
    with pytest.raises(InvalidError, match="interrupted"):
        await anext(steps)
    assert all(part.source.scans_open == 0 for part in view.tables if isinstance(part.source, FakeTable))


@pytest.mark.parametrize("turn", range(1, 5))
async def test_a_scan_that_is_closed_while_keys_are_put_in_order_gives_nothing(turn: int) -> None:
    memory = Memtable()
    for i in range(1000):
        memory.append(b"%06d" % i, b"", PUT, 1 + i, NO_EXPIRY, i)
    scan = scan_of(ReadView([memory], [], [], yield_budget=exhausted_budget()))
    step = asyncio.ensure_future(anext(aiter(scan)))
    for _ in range(turn):
        await asyncio.sleep(0)
    if step.done():
        return
    await scan.aclose()
    with pytest.raises(InvalidError, match="closed"):
        await step


async def stored_scan(rows: list[Version]) -> Scan:
    """Of one SST in blocks of a few rows; others get a turn after every fifth."""
    stored = StoredTables(1 << 20)
    view = ReadView([], [stored.table(rows)], [], yield_budget=YieldBudget(StillClock()))
    await stored.upload()
    return Scan(ReadPoint(view, MAX_SEQ, 0), ALL, YieldBudget(SlowClock()), lambda: None)


@pytest.mark.parametrize("turn", range(1, 16))
async def test_rows_of_a_cancelled_batch_are_not_left_out(turn: int) -> None:
    batches = (await stored_scan([Version(b"%06d" % i, b"", i) for i in range(300)])).batches(200)
    step = asyncio.ensure_future(anext(batches))
    for _ in range(turn):
        await asyncio.sleep(0)
    if not step.cancel():
        assert key_numbers([await step, *[batch async for batch in batches]]) == list(range(300))
        return
    with pytest.raises(asyncio.CancelledError):
        await step
    with contextlib.suppress(InvalidError):
        assert key_numbers([batch async for batch in batches]) == list(range(300))


async def test_rows_that_cannot_be_read_are_not_passed_over() -> None:
    rows = [Version(b"%06d" % i, b"", i, MERGE if i == 50 else PUT) for i in range(100)]
    batches = (await stored_scan(rows)).batches(100)
    with pytest.raises(InternalError, match="no merge operator"):
        await anext(batches)
    with pytest.raises(InvalidError, match="interrupted"):
        await anext(batches)


@pytest.mark.parametrize("turn", range(1, 14))
async def test_close_while_a_step_is_under_way(turn: int) -> None:
    view = view_of(100)
    scan = scan_of(view)
    step = asyncio.ensure_future(anext(aiter(scan)))
    for _ in range(turn):
        await asyncio.sleep(0)
    done = step.done()
    await scan.aclose()
    if done:
        assert (await step)[0] == b"000000"
    else:
        with pytest.raises(InvalidError, match="closed"):
            await step
    assert not view.pinned
    assert all(part.source.scans_open == 0 for part in view.tables if isinstance(part.source, FakeTable))


@pytest.mark.parametrize("limit", [None, 300])
async def test_a_scan_closed_early_does_not_look_ended(limit: int | None) -> None:
    scan = scan_of(view_of(600), limit=limit)
    batches = scan.batches(100)
    await anext(batches)
    await scan.aclose()
    with pytest.raises(InvalidError, match="closed"):
        await anext(batches)


@pytest.mark.parametrize("how", ["pairs", "rows", "batches"])
@pytest.mark.parametrize("rows", [20, 600])
async def test_after_it_is_closed_nothing_comes(how: str, rows: int) -> None:
    """What was read already neither, nor does it look ended."""
    scan = scan_of(view_of(rows))
    steps: Any = {"pairs": scan.__aiter__, "rows": scan.rows, "batches": lambda: scan.batches(7)}[how]()
    await anext(steps)
    await scan.aclose()
    for _ in range(2):
        with pytest.raises(InvalidError, match="closed"):
            await anext(steps)


async def test_closing_after_the_last_row_keeps_the_end() -> None:
    scan = scan_of(view_of(3))
    steps = aiter(scan)
    assert len([pair async for pair in steps]) == 3
    await scan.aclose()
    assert await anext(steps, None) is None


async def test_one_consumer_at_a_time() -> None:
    scan = scan_of(view_of(100))
    steps = aiter(scan)
    first, second = (asyncio.ensure_future(anext(steps)) for _ in range(2))
    with pytest.raises(InvalidError, match="another task"):
        await second
    assert (await first)[0] == b"000000"
    assert len([pair async for pair in steps]) == 99


async def test_other_tasks_get_turns_during_a_scan_of_memory() -> None:
    memory = Memtable()
    count = 20_000
    memory.append_batch([b"%06d" % (i * 7919 % count) for i in range(count)], [b""] * count, bytes(count), 1, None, 0)
    view = ReadView([memory], [], [], yield_budget=exhausted_budget())
    had = 0

    async def other() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert [int(key) async for key, _ in scan_of(view)] == list(range(count))
    task.cancel()
    assert had >= count / CHUNK_ROWS


async def test_a_scan_stays_as_it_was_while_rows_are_written() -> None:
    memory = Memtable()
    for i in range(0, 4000, 2):
        memory.append(b"%06d" % i, b"old", PUT, i + 1, NO_EXPIRY, 0)
    view = ReadView(
        [memory],
        [table([Version(b"%06d" % i, b"old", 0) for i in range(1, 400, 2)])],
        [],
        yield_budget=exhausted_budget(),
    )
    expected = sorted([b"%06d" % i for i in range(0, 4000, 2)] + [b"%06d" % i for i in range(1, 400, 2)])
    for reverse in (False, True):
        scan = scan_of(view, reverse=reverse)
        seen: list[tuple[bytes, bytes]] = []
        async for pair in scan:
            if len(seen) % 100 == 0:
                seq = memory.last_seq
                for i in range(50):
                    memory.append(b"%06d" % ((seq + i * 37) % 4000), b"new", i % 2, seq + i + 1, NO_EXPIRY, 0)
            seen.append(pair)
        assert seen == [(key, b"old") for key in expected[:: -1 if reverse else 1]]
        fresh = Memtable()
        for i in range(0, 4000, 2):
            fresh.append(b"%06d" % i, b"old", PUT, i + 1, NO_EXPIRY, 0)
        memory = fresh
        view = ReadView([memory], view.tables, [], yield_budget=exhausted_budget())
