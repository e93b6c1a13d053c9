"""Short scans: when they need no waiting, and that they say what streams say."""

from __future__ import annotations

import asyncio
import random

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import KeyRange, ReadView, Run, Scan
from slate_async.engine.read.first_pages import (
    MOST_READ,
    MOST_SOURCES,
    REFILLS_AT_ONCE,
    FirstPage,
    first_page,
    first_page_yielding,
)
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.sources import Table
from slate_async.errors import FencedError, InvalidError
from slate_async.storage.memtable import Memtable
from slate_async.storage.memtable.memtable import ORDER_STEP_ROWS
from slate_async.storage.sst.reader import MissingError
from slate_async.types import DELETE, MAX_SEQ, MERGE, PUT, RowPage
from tests.read_model import FakeTable, StoredTables, Version, exhausted_budget, run, table, visible

ALL = KeyRange(None, None)
NOW_MS = 50


def memtable_of(rows: list[Version]) -> Memtable:
    made = Memtable()
    for row in rows:
        made.append(row.key, row.value, row.kind, row.seq, row.expire_ms, row.create_ms)
    return made


def drawn(rng: random.Random, count: int, first_seq: int) -> list[Version]:
    return [
        Version(
            b"%03d" % rng.randrange(300),
            b"v%d" % seq,
            seq,
            rng.choice([PUT, PUT, PUT, DELETE]),
            rng.choice([NO_EXPIRY, NO_EXPIRY, NOW_MS, NOW_MS + 1]),
        )
        for seq in range(first_seq, first_seq + count)
    ]


def loaded(view: ReadView) -> ReadView:
    for level in (*view.tables, *(part for sorted_run in view.runs for part in sorted_run.tables)):
        assert isinstance(level.source, FakeTable)
        level.source.loaded = True
    return view


def view_of(memtables: list[Memtable], levels: list[Run]) -> ReadView:
    return ReadView(memtables, [], levels, yield_budget=exhausted_budget())


def first(view: ReadView, count: int) -> FirstPage | None:
    return first_page(ReadPoint(view, MAX_SEQ, 0), ALL, count, False, False)


def scan_of(
    view: ReadView,
    span: KeyRange = ALL,
    *,
    limit: int | None = None,
    max_seq: int | None = None,
    reverse: bool = False,
) -> Scan:
    point = ReadPoint(view, MAX_SEQ if max_seq is None else max_seq, NOW_MS)
    return Scan(point, span, exhausted_budget(), lambda: None, reverse=reverse, limit=limit)


@pytest.mark.parametrize("seed", range(25))
async def test_scans_that_look_and_scans_that_stream_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    parts = [drawn(rng, rng.randrange(1, 200), 1 + 1000 * age) for age in range(4)]
    view = loaded(
        ReadView(
            [Memtable(), memtable_of(parts[3])],
            [table(parts[2], (rng.randrange(1, 60),)), table(parts[1])],
            [run(parts[0], 3, (10, 40))],
            yield_budget=exhausted_budget(),
        )
    )
    max_seq = rng.choice([MAX_SEQ, 3050, 2020])
    model = visible([row for part in parts for row in part], max_seq, NOW_MS)
    for limit in (0, 1, 7, 32, 33, 100, None):
        start = b"%03d" % rng.randrange(300)
        span = rng.choice([ALL, KeyRange(start, None), KeyRange(start, start + b"\xff"), KeyRange(None, start)])
        reverse = rng.random() < 0.5
        expected = [
            row
            for key, row in model.items()
            if (span.start is None or key >= span.start) and (span.end is None or key < span.end)
        ][:: -1 if reverse else 1][:limit]

        def scan(span: KeyRange = span, limit: int | None = limit, reverse: bool = reverse) -> Scan:
            return scan_of(view, span, limit=limit, max_seq=max_seq, reverse=reverse)

        assert [pair async for pair in scan()] == [(row.key, row.value) for row in expected]
        assert [(row.key, row.value, row.seq) async for row in scan().rows()] == [row[:3] for row in expected]
        batches = [batch async for batch in scan().batches(rng.choice([1, 5, 1000]))]
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert found == [row[:3] for row in expected]
    assert not view.pinned


async def test_a_short_scan_of_cached_blocks_opens_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredTables(1 << 20)
    rows = [Version(b"%04d" % i, b"v%d" % i, i + 1) for i in range(500)]
    view = ReadView(
        [memtable_of([Version(b"0100", b"new", 1000)])], [stored.table(rows, (9,))], [], yield_budget=exhausted_budget()
    )
    await stored.upload()
    assert [key async for key, _ in scan_of(view, KeyRange(b"0099", b"0102"))] == [b"0099", b"0100", b"0101"]
    monkeypatch.setattr(ReadView, "live_rows", None)
    found = [pair async for pair in scan_of(view, KeyRange(b"0099", None), limit=3)]
    assert found == [(b"0099", b"v99"), (b"0100", b"new"), (b"0101", b"v101")]
    async for key, _ in scan_of(view, KeyRange(b"0099", None)):
        assert key == b"0099"
        break
    assert not view.pinned


async def test_indexes_that_went_are_loaded_and_no_stream_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredTables(1 << 20)
    parts = [stored.table([Version(b"%03d" % i, b"", 1 + i) for i in range(at, 300, 3)], (9,)) for at in range(3)]
    view = ReadView([], parts, [], yield_budget=exhausted_budget())
    await stored.upload()
    assert len([pair async for pair in scan_of(view)]) == 300
    for part in parts:
        part.source.drop_index()  # type: ignore[attr-defined]
    monkeypatch.setattr(ReadView, "live_rows", None)
    for reverse in (False, True):
        found = [int(key) async for key, _ in scan_of(view, KeyRange(b"100", b"200"), limit=20, reverse=reverse)]
        assert found == (list(range(199, 179, -1)) if reverse else list(range(100, 120)))
    assert all(part.source.loaded for part in parts)


class Asked(FakeTable):
    """Takes down for how many rows it is asked; with ``stored`` it answers only where reads are allowed."""

    def __init__(self, rows: list[Version], *, stored: bool = False) -> None:
        super().__init__(rows, (1000,))
        self.loaded = True
        self.asked: list[int] = []
        self._stored = stored

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: int = 0,
    ) -> RowPage | None:
        self.asked.append(count)
        if self._stored and not reading:
            return None
        return super().first_rows(start, end, count, max_seq, now_ms, reverse, whole)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_source_with_more_than_its_share_is_asked_again_and_then_for_more(reverse: bool) -> None:
    rows = [[Version(b"%04d" % i, b"", 1) for i in range(at, 1000, step)] for at, step in ((0, 1), (1, 40), (2, 40))]
    sources = [Asked(part) for part in rows]
    view = view_of([], [Run((Table(b"", b"9", source),)) for source in sources])
    for _ in range(3):
        found = first_page(ReadPoint(view, MAX_SEQ, 0), ALL, 100, reverse, False)
        assert found is not None
        assert [int(key) for key, _ in found[0]] == list(range(999, 899, -1) if reverse else range(100))
    many, few, _ = (source.asked for source in sources)
    assert many[:2] == [91, 17], "what was missing, and a few more"
    assert many[2:] == [100, 100], "at one go from then on"
    assert len(few) == 3
    assert few[1] < few[0] == 91, "and less of those that had little"


async def test_more_levels_than_one_look_may_read_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Asked([Version(b"%03d" % i, b"", 1) for i in range(at, 200, 20)], stored=True) for at in range(20)]
    view = view_of([], [Run((Table(b"", b"9", source),)) for source in sources])
    assert len(sources) > MOST_READ
    assert first(view, 10) is None
    monkeypatch.setattr(ReadView, "live_rows", None)
    assert [int(key) async for key, _ in scan_of(view, limit=30)] == list(range(30))
    assert [int(row.key) async for row in scan_of(view, limit=30, reverse=True).rows()] == list(range(199, 169, -1))


async def test_a_missing_object_is_left_to_the_streams() -> None:
    bad = Table(b"a", b"z", FakeTable([Version(b"b", b"", 1)], fails=MissingError("is missing", object_name="x")))
    point = ReadPoint(ReadView([], [bad], [], yield_budget=exhausted_budget()), MAX_SEQ, 0)
    assert await first_page_yielding(point, ALL, 5, False, False, exhausted_budget()) is None
    assert (await aiter_failure(scan_of(point.view))).object_name == "x"


async def aiter_failure(scan: Scan) -> MissingError:
    with pytest.raises(MissingError) as failed:
        await anext(aiter(scan))
    return failed.value


async def test_a_long_scan_goes_on_with_streams() -> None:
    view = loaded(
        ReadView(
            [], [table([Version(b"%04d" % i, b"", 1) for i in range(1000)], (50,))], [], yield_budget=exhausted_budget()
        )
    )
    scan = scan_of(view)
    assert [int(key) async for key, _ in scan] == list(range(1000))
    assert scan._steps._rows is not None


async def test_what_takes_waiting_is_streamed() -> None:
    part = table([Version(b"a", b"", 1)])
    assert first(view_of([], [Run((part,))]), 1) is None
    assert [key async for key, _ in scan_of(ReadView([], [part], [], yield_budget=exhausted_budget()))] == [b"a"]
    assert first(view_of([], [Run((part,))]), 1) is not None
    assert first(view_of([memtable_of([Version(b"a", b"", 1, MERGE)])], []), 1) is None


def test_too_many_sources_are_streamed() -> None:
    parts = [Run((table([Version(b"a", b"", 1)]),)) for _ in range(MOST_SOURCES + 1)]
    for part in parts:
        part.tables[0].source.loaded = True  # type: ignore[misc]
    assert first(view_of([], parts), 1) is None
    assert first(view_of([], parts[1:]), 1) is not None


def test_keys_that_are_not_in_order_yet() -> None:
    memory = memtable_of([Version(b"%04d" % i, b"", i + 1) for i in range(ORDER_STEP_ROWS + 1)])
    assert memory.first_rows(None, None, 2, MAX_SEQ, 0, False, False) is None
    assert memory.first_rows(None, None, 2, ORDER_STEP_ROWS, 0, False, False) is not None
    assert memory.first_rows(None, None, 2, MAX_SEQ, 0, False, False) is not None


def test_rows_that_are_hidden_differ_from_the_end() -> None:
    dead = memtable_of([Version(b"%02d" % i, b"", i + 1, DELETE) for i in range(20)])
    assert first(view_of([dead], []), 3) == ([], b"%02d" % (3 * (1 + REFILLS_AT_ONCE) - 1))
    assert first(view_of([dead], []), 9) == ([], None)
    later = memtable_of([Version(b"a", b"", 9)])
    assert later.first_rows(None, None, 1, 9, 0, False, False) is not None  # puts the key in order
    assert later.first_rows(None, None, 1, 8, 0, False, False) is None


async def test_an_owner_that_is_closed_fails_a_scan_before_it_looks() -> None:
    def check() -> None:
        raise FencedError("another writer took over")

    view = ReadView([memtable_of([Version(b"a", b"", 1)])], [], [], yield_budget=exhausted_budget())
    steps = aiter(Scan(ReadPoint(view, MAX_SEQ, 0), ALL, exhausted_budget(), check))
    with pytest.raises(FencedError):
        await anext(steps)
    with pytest.raises(InvalidError, match="interrupted"):
        await anext(steps)


async def test_other_tasks_get_turns_during_many_short_scans() -> None:
    view = ReadView([memtable_of([Version(b"a", b"", 1)])], [], [], yield_budget=exhausted_budget())
    shared = exhausted_budget()
    had = 0

    async def other() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(200):
        assert [key async for key, _ in Scan(ReadPoint(view, MAX_SEQ, 0), ALL, shared, lambda: None)] == [b"a"]
    task.cancel()
    assert had >= 10
