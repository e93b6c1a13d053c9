"""`CoveredView` as a writer reads it: against a plain dict, and how much it remembers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import slate_async as slate
from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read.covered import CoveredView, ViewMaker
from slate_async.engine.read.live import live_value
from slate_async.engine.read.view import ReadView
from slate_async.storage.memtable import Memtable, remembered
from slate_async.types import DELETE, MAX_SEQ, PUT
from tests.engine import memory_store, open_db
from tests.read_model import ample_budget

KEYS = [b"a", b"b", b"c", b"d", b"e"]
BOUNDS = st.tuples(st.sampled_from(KEYS), st.sampled_from([*KEYS, b"z"])).filter(lambda pair: pair[0] < pair[1])
KEY = st.sampled_from(KEYS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEY, st.sampled_from([b"", b"1", b"2"])),
        st.tuples(st.just("delete"), KEY),
        st.tuples(st.just("range"), BOUNDS),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("undo")),
        st.tuples(st.just("get"), KEY),
    ),
    max_size=40,
)


def read_now(view: ReadView, key: bytes) -> object:
    """As `WriterReads.get` does."""
    found: Any = view.latest.get(key)
    if found is None:
        found = view.look_below(key)
    if isinstance(found, int):
        found = view.look_up(key, MAX_SEQ)
    return live_value(found, 0)


@example([("put", b"b", b"1"), ("freeze",), ("range", (b"a", b"z")), ("get", b"b"), ("undo",)])
@example([("put", b"a", b"1"), ("range", (b"b", b"z")), ("get", b"a"), ("undo",)])
@given(STEPS)
def test_reads_of_now_agree_with_a_dict_whatever_is_remembered(steps: list[tuple[Any, ...]]) -> None:
    maker, tables = ViewMaker(ample_budget()), [Memtable()]
    view = maker.view(tables, (), (), ())
    rows: dict[bytes, bytes] = {}
    before = dict(rows)  # as of the newest memtable's first row
    for seq, step in enumerate(steps, 1):
        match step:
            case ("put", key, value):
                tables[0].append(key, value, PUT, seq, NO_EXPIRY, 1)
                rows[key] = value
            case ("delete", key):
                tables[0].append(key, b"", DELETE, seq, NO_EXPIRY, 1)
                rows.pop(key, None)
            case ("range", (start, end)):
                tables[0].append_batch([start], [end], bytes([DELETE]), seq, None, 1)
                rows = {key: value for key, value in rows.items() if not start <= key < end}
                view = maker.view(tables, (), (), ())
            case ("freeze",):
                tables[0].freeze()
                tables.insert(0, Memtable())
                view, before = maker.view(tables, (), (), ()), dict(rows)
            case ("undo",):
                tables[0].drop_after(0)
                maker.undo_above(max((table.last_seq for table in tables), default=0))
                rows = dict(before)
                for key in KEYS:
                    assert read_now(view, key) == rows.get(key), "the view stays until the next one is made"
                tables.insert(0, Memtable())
                view = maker.view(tables, (), (), ())
            case (_, key):
                assert read_now(view, key) == rows.get(key)
    for key in KEYS * 2:
        assert read_now(view, key) == rows.get(key)


async def test_a_database_with_range_deletes_reads_what_was_written_last() -> None:
    """Rows that are written within a lease, one by one, and in batches."""
    async with open_db(memory_store()) as db:
        for key in KEYS:
            await db.put(key, b"1", await_durable=False)
        await db.delete_range(b"b", b"d")
        for key in KEYS:
            expected = None if b"b" <= key < b"d" else b"1"
            assert [await db.get(key) for _ in range(2)] == [expected] * 2
        for number in range(5):
            for key in KEYS:
                await db.put(key, b"%d" % number, await_durable=False)
                assert [await db.get(key) for _ in range(2)] == [b"%d" % number] * 2
        await db.delete(b"a", await_durable=False)
        assert await db.get(b"a") is None
        batch = slate.WriteBatch()
        batch.put(b"b", b"batch")
        await db.write(batch, await_durable=False)
        assert await db.get(b"b") == b"batch"
        await db.delete_range(b"a", b"c")
        assert [await db.get(key) for key in KEYS] == [None, None, b"4", b"4", b"4"]


async def test_what_reads_leave_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_KEY_BYTES", 10_000)
    async with open_db(memory_store()) as db:
        long = [b"%03d" % number + b"k" * 997 for number in range(100)]
        for key in long[50:]:
            await db.put(key, b"1", await_durable=False)
        await db.flush(l0=True)
        await db.put(long[0], b"1")
        await db.delete_range(b"00", b"020")
        for key in long[20:50]:
            await db.put(key, b"1", await_durable=False)
        for turn in range(2):
            for key in long:
                assert await db.get(key) == (None if key < b"020" else b"1")
            view = db._writer.state.view
            assert isinstance(view, CoveredView)
            seen = view.memtables[0].seen
            assert seen is not None
            for memory in (seen, view._below):
                assert 0 < memory.key_bytes == sum(map(len, memory.known)) <= 10_000, turn
