"""Views: the order of sources, what is loaded and read, pins."""

from __future__ import annotations

import asyncio
import gc

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import KeyRange, ReadView, Run, Table
from slate_async.engine.read import view as view_module
from slate_async.errors import InternalError
from slate_async.merge_operators.guarded import Guarded
from slate_async.merge_operators.registry import merge_operator
from slate_async.runtime.gather import AT_ONCE, gather
from slate_async.runtime.yield_budget import CALLS_PER_LOOK
from slate_async.storage.format.filter import key_hash
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.cache import BlockCache
from slate_async.types import DELETE, MAX_SEQ, MERGE, NEEDS_IO, PUT, RowHit
from tests.read_model import FakeTable, Version, ample_budget, exhausted_budget, run, table, tombstone, versions
from tests.support.rows import R, sst_of
from tests.support.sst_readers import StoreAtHand, reader_of


def memtable(*rows: Version) -> Memtable:
    made = Memtable()
    for row in rows:
        made.append(row.key, row.value, row.kind, row.seq, row.expire_ms, row.create_ms)
    return made


def fake(made: Table | Run) -> FakeTable:
    source = (made.tables[0] if isinstance(made, Run) else made).source
    assert isinstance(source, FakeTable)
    return source


def value(hit: object) -> bytes | None:
    assert hit is None or isinstance(hit, RowHit)
    return None if hit is None else hit.value


def test_memory_answers_without_the_store() -> None:
    new = memtable(Version(b"a", b"2", 20), tombstone(b"b", 21), Version(b"t", b"x", 22, expire_ms=500))
    old = memtable(Version(b"a", b"1", 10), Version(b"b", b"1", 11), Version(b"c", b"1", 12), Version(b"t", b"y", 13))
    view = ReadView([new, old], [], [], yield_budget=exhausted_budget())
    assert [value(view.get_now(key, 499)) for key in (b"a", b"b", b"c", b"d", b"t")] == [b"2", None, b"1", None, b"x"]
    assert view.get_now(b"t", 500) is None
    assert [value(view.get_now(key, 600, 20)) for key in (b"a", b"b", b"c", b"d", b"t")] == [
        b"2",
        b"1",
        b"1",
        None,
        b"y",
    ]
    assert value(ReadView([new, old], [], [], yield_budget=exhausted_budget(), max_seq=12).get_now(b"a", 0)) == b"1"


async def test_tables_are_skipped_by_key_range() -> None:
    low, high = table([Version(b"a", b"1", 1), Version(b"c", b"1", 2)]), table([Version(b"x", b"1", 3)])
    view = ReadView(
        [], [high, low], [run([Version(b"b", b"r", 0), Version(b"y", b"r", 0)], tables=2)], yield_budget=ample_budget()
    )
    assert view.get_now(b"d", 0) is None
    assert await view.get(b"0", 0) is None
    assert view.get_now(b"a", 0) is NEEDS_IO
    assert value(await view.get(b"a", 0)) == b"1"
    assert (fake(low).loads, fake(high).loads) == (1, 0)
    assert value(view.get_now(b"a", 0)) == b"1"


async def test_the_first_source_that_knows_the_key_ends_the_search() -> None:
    newest = table([Version(b"k", b"3", 30), Version(b"z", b"", 31)])
    middle = table([tombstone(b"k", 20), tombstone(b"m", 21)])
    oldest = run([Version(b"k", b"1", 1), Version(b"m", b"1", 2), Version(b"n", b"1", 3)])
    view = ReadView([Memtable()], [newest, middle], [oldest], yield_budget=exhausted_budget())
    assert value(await view.get(b"k", 0)) == b"3"
    assert fake(newest).gets == [b"k"]
    assert fake(middle).gets == fake(oldest).gets == []
    assert await view.get(b"k", 0, 29) is None
    assert value(await view.get(b"k", 0, 19)) == b"1"
    assert await view.get(b"m", 0) is None
    assert fake(oldest).gets == [b"k"]
    assert value(await view.get(b"n", 0)) == b"1"
    assert not view.pinned


async def test_what_is_not_loaded_is_loaded_at_once() -> None:
    tables = [table([Version(b"a", b"%d" % i, i), Version(b"z", b"", i)]) for i in (3, 2, 1)]
    view = ReadView([], tables, [], yield_budget=exhausted_budget())
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    assert value(await view.get(b"a", 0)) == b"3"
    counter.cancel()
    assert [fake(t).loads for t in tables] == [1, 1, 1]
    assert turn < 10


async def test_get_many() -> None:
    new = memtable(Version(b"a", b"mem", 50), tombstone(b"b", 51))
    l0 = table([Version(b"b", b"l0", 40), Version(b"c", b"l0", 41), tombstone(b"d", 42), Version(b"q", b"l0", 43)])
    base = run([Version(key, b"run", i) for i, key in enumerate((b"a", b"d", b"e", b"f", b"x"))], tables=2)
    view = ReadView([new], [l0], [base], yield_budget=exhausted_budget())
    keys = [b"x", b"a", b"b", b"c", b"a", b"d", b"e", b"nope", b"zz", b"f"]
    assert await view.get_many(keys, 0) == [b"run", b"mem", None, b"l0", b"mem", None, b"run", None, None, b"run"]
    assert sorted(fake(l0).gets) == [b"c", b"d", b"e", b"f", b"nope"]
    assert fake(l0).loads == 1
    assert await view.get_many([b"a", b"b"], 0, 45) == [b"run", b"l0"]
    assert await view.get_many([], 0) == []
    assert not view.pinned


async def test_others_get_turns_while_it_is_found_out_which_tables_hold_many_keys() -> None:
    stored = table([Version(b"%04d" % i, b"stored", i) for i in range(1000)])
    view = ReadView([], [stored], [], yield_budget=exhausted_budget())
    had = 0
    read = asyncio.ensure_future(view.get_many([b"%04d" % i for i in range(1000)], 0))
    while not fake(stored).loads:
        had += 1
        await asyncio.sleep(0)
    assert had >= 1000 / CALLS_PER_LOOK
    assert await read == [b"stored"] * 1000


@pytest.mark.parametrize("many", [False, True])
async def test_others_get_turns_while_blocks_are_read_without_waiting(many: bool) -> None:
    tables = [table([Version(b"b%02d" % number, b"v", 20 - number)]) for number in range(20)]
    view = ReadView([], tables, [], yield_budget=exhausted_budget())
    keys = [b"b%02d" % number for number in range(20)]
    for fresh in tables:
        fake(fresh).loaded = fake(fresh).sync = True

    async def read() -> list[bytes | None]:
        return await view.get_many(keys, 0) if many else [value(await view.get(key, 0)) for key in keys]

    reading = asyncio.ensure_future(read())
    others = 0
    while not reading.done():
        others += 1
        await asyncio.sleep(0)
    assert reading.result() == [b"v"] * 20
    assert others >= 20
    assert not any(fake(fresh).gets for fresh in tables)


async def test_get_many_has_one_read_point() -> None:
    active, frozen = Memtable(), memtable(*(Version(b"%04d" % i, b"old", i + 1) for i in range(200)))
    later = memtable(Version(b"0000", b"older", 300))
    view = ReadView([active, later, frozen], [], [], yield_budget=exhausted_budget())
    seq = 1000

    async def keep_writing() -> None:
        nonlocal seq
        while True:
            for i in range(0, 200, 7):
                seq += 1
                active.append(b"%04d" % i, b"new", PUT, seq, NO_EXPIRY, 0)
            await asyncio.sleep(0)

    writer = asyncio.create_task(keep_writing())
    values = await view.get_many([b"%04d" % i for i in range(400)], 0)
    writer.cancel()
    assert values[:200] == [b"older"] + [b"old"] * 199
    assert len(active), "the writer had no turn"


@pytest.mark.parametrize("many", [False, True])
async def test_older_versions_in_a_memtable_too_large_for_a_look(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.storage.memtable.memtable.INDEX_STEP_ROWS", 10)
    keys = [b"%04d" % i for i in range(300)]
    active = memtable(*(Version(key, b"old", 1000 + i) for i, key in enumerate(keys)))
    view = ReadView([active], [], [run([Version(key, b"stored", 1) for key in keys])], yield_budget=exhausted_budget())
    last = active.last_seq

    async def keep_writing() -> None:
        while True:
            for key in keys[::7]:
                active.append(key, b"new", PUT, active.last_seq + 1, NO_EXPIRY, 0)
            await asyncio.sleep(0)

    writer = asyncio.create_task(keep_writing())
    await asyncio.sleep(0)
    assert view.look_up(keys[0], last) is NEEDS_IO
    assert view.get_now(keys[0], 0, last) is NEEDS_IO
    if many:
        assert await view.get_many(keys, 0, last) == [b"old"] * 300
        assert await view.get_many(keys, 0, last - 1) == [b"old"] * 299 + [b"stored"]
    else:
        assert [value(await view.get(key, 0, last)) for key in keys] == [b"old"] * 300
        assert value(await view.get(keys[-1], 0, last - 1)) == b"stored"
        assert value(await view.get(keys[0], 0)) == b"new"
    writer.cancel()


async def test_errors_of_a_source_reach_the_reader_and_free_the_pin() -> None:
    bad = FakeTable([Version(b"a", b"", 1)], fails=OSError("lost"))
    view = ReadView([], [Table(b"a", b"a", bad), table([Version(b"a", b"", 0)])], [], yield_budget=exhausted_budget())
    for read in (view.get(b"a", 0), view.get_many([b"a"], 0)):
        with pytest.raises(OSError, match="lost"):
            await read
    assert not view.pinned


async def test_operands_are_merged_with_what_lies_below() -> None:
    newer = memtable(Version(b"a", b"2", 2, MERGE), Version(b"a", b"3", 3, MERGE))
    older = memtable(Version(b"a", b"1", 1))
    append = Guarded(merge_operator("append"))
    view = ReadView([newer, older], [], [], yield_budget=exhausted_budget(), merging=append)
    assert view.get_now(b"a", 0) is NEEDS_IO
    assert await view.get(b"a", 0) == RowHit(b"123", 3, PUT, NO_EXPIRY, 0)
    assert await view.get_many([b"a", b"b"], 0) == [b"123", None]
    assert await view.get_many([b"a"], 0, 2) == [b"12"]
    assert not view.pinned


async def test_operands_in_memory_and_read_blocks_are_gathered_without_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memtable(*(Version(b"k", b"%d," % seq, seq, MERGE) for seq in range(50, 60)))
    stored = [
        table([Version(b"k", b"%d," % seq, seq, MERGE) for seq in range(first, first + 10)]) for first in (40, 30)
    ]
    base = table([Version(b"k", b"base,", 1), Version(b"k", b"hidden", 0, MERGE)])
    append = Guarded(merge_operator("append"))
    view = ReadView([memory], stored, [Run((base,))], yield_budget=exhausted_budget(), merging=append)
    value = b"base," + b"".join(b"%d," % seq for seq in range(30, 60))
    wanted = RowHit(value, 59, PUT, NO_EXPIRY, 0)
    assert await view.get(b"k", 0) == wanted  # nothing of the tables is loaded
    for source in (*map(fake, stored), fake(base)):
        await source.get(b"k", key_hash(b"k"), MAX_SEQ)
    scans: list[object] = []
    live_rows = view.live_rows
    monkeypatch.setattr(view, "live_rows", lambda *span, **how: (scans.append(span), live_rows(*span, **how))[1])
    assert await view.get(b"k", 0) == wanted
    assert await view.get_many([b"k", b"l"], 0) == [value, None]
    assert scans == []
    monkeypatch.setattr(view_module, "MOST_CHAINED", 30)
    assert await view.get(b"k", 0) == wanted
    assert len(scans) == 1


async def test_operands_are_refused_without_an_operator() -> None:
    view = ReadView([memtable(Version(b"a", b"", 1, MERGE))], [], [], yield_budget=exhausted_budget())
    with pytest.raises(InternalError, match="no merge operator"):
        await view.get_many([b"a"], 0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("head_is_empty", [False, True])
async def test_rows_of_later_appends_do_not_show(head_is_empty: bool, reverse: bool) -> None:
    filled = memtable(Version(b"a", b"1", 1), Version(b"c", b"1", 2))
    head = Memtable() if head_is_empty else filled
    view = ReadView(
        [head, filled] if head_is_empty else [head],
        [table([Version(b"b", b"0", 0)])],
        [],
        yield_budget=exhausted_budget(),
    )
    rows = view.live_rows(KeyRange(None, None), now_ms=0, reverse=reverse)
    for seq, key in enumerate((b"0", b"a", b"b", b"d"), 10):
        head.append(key, b"late", DELETE if key == b"a" else PUT, seq, NO_EXPIRY, 0)
    seen = [[row.key for row in versions(batch)] async for batch in rows]
    assert [key for keys in (seen[::-1] if reverse else seen) for key in keys] == [b"a", b"b", b"c"]


def test_pins() -> None:
    view = ReadView([], [], [], yield_budget=exhausted_budget())
    one, two = view.pin(), view.pin()
    del one
    assert view.pinned
    del two
    assert not view.pinned
    forgotten = view.pin()
    assert view.pinned
    del forgotten
    gc.collect()
    assert not view.pinned


async def test_together() -> None:
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert await gather([call(i) for i in range(3 * AT_ONCE + 1)]) == list(range(3 * AT_ONCE + 1))
    assert most == AT_ONCE
    empty: list[int] = await gather([])
    assert empty == []


async def test_together_stops_the_others_when_one_fails() -> None:
    ended: list[str] = []

    async def fail(name: str) -> None:
        await asyncio.sleep(0)
        raise OSError(name)

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hang")

    with pytest.raises(OSError, match="one") as caught:
        await gather([hang(), fail("one"), fail("two"), *[hang() for _ in range(AT_ONCE)]])
    assert "two" in "".join(caught.value.__notes__)
    assert len(ended) == AT_ONCE - 2


async def test_together_is_cancelled_with_its_caller() -> None:
    ended: list[int] = []

    async def hang(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    task = asyncio.create_task(gather([hang(i) for i in range(3)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]


def test_max_seq_is_the_default_limit() -> None:
    assert ReadView([], [], [], yield_budget=exhausted_budget()).max_seq == MAX_SEQ


async def test_many_keys_read_no_index_twice_however_small_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.engine.read.many.TABLES_TOGETHER", 3)
    store, cache, tables = StoreAtHand(), BlockCache(1000), []
    for number in range(10):
        rows = [R(b"%02d %04d" % (number, at), b"v" * 50, 1 + at) for at in range(2000)]
        source = reader_of(store, sst_of(rows, block_bytes=4000), cache=cache, key=f"sst/{number}")
        tables.append(Table(rows[0].key, rows[-1].key, source))
    view = ReadView([], [], [Run(tables)], yield_budget=exhausted_budget())
    keys = [b"%02d %04d" % (number, at) for number in range(10) for at in range(0, 2100, 300)]
    values = await view.get_many(keys, 0)
    assert values == [b"v" * 50 if key[3:] < b"2000" else None for key in keys]
    assert (len(store.reads), store.read_at_once, cache.stats().blocks) == (10, 70, 0)
