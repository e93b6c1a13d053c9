"""Every read of every view agrees with a plain dictionary of versions, whatever became of the rows meanwhile.

Hypothesis makes a history of writes, memtable switches, flushes and compactions, looks at it through old and new
views, at old and new sequence numbers and times, in both directions and all bounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import KeyRange, ReadView, Run, Scan, Table, hot, key_range, merge
from slate_async.engine.read.hot import HotReads
from slate_async.engine.read.live import live_hit
from slate_async.engine.read.read_point import ReadPoint
from slate_async.errors import InvalidError
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst import block_rows
from slate_async.types import DELETE, MAX_SEQ, NEEDS_IO, PUT, Row, RowHit
from tests.read_model import StoredTables, Version, exhausted_budget, run, table, visible

KEYS = st.sampled_from([b"\0", b"a", b"a\0", b"ab", b"b", b"b\xff", b"c", b"ca", b"\xff", b"\xff\xff", b"\xff\xff\0"])
BOUNDS = st.none() | KEYS | st.sampled_from([b"", b"a\0\0", b"bb", b"\xff\xff\xff"])
SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=3)
TIMES = st.integers(0, 40)
CACHES = st.sampled_from([4_000, 12_000, 1 << 20])
PUTS = st.tuples(st.just("put"), KEYS, st.binary(max_size=3), st.none() | TIMES)
DELETES = st.tuples(st.just("delete"), KEYS)
BATCHES = st.tuples(
    st.just("batch"), st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), min_size=1, max_size=6)
)
STEPS = (
    PUTS
    | PUTS
    | DELETES
    | BATCHES
    | st.tuples(st.just("jump"), st.integers(1, 5))
    | st.tuples(st.just("freeze"))
    | st.tuples(st.just("flush"), SIZES)
    | st.tuples(st.just("compact"), st.integers(1, 3), SIZES)
    | st.tuples(st.just("look"))
)


@dataclass
class Engine:
    """The parts of a database that reads see, moved about without any bytes being written."""

    seq: int = 0
    history: list[Version] = field(default_factory=list)
    memtables: list[tuple[Memtable, list[Version]]] = field(default_factory=lambda: [(Memtable(), [])])
    tables: list[tuple[Table, list[Version]]] = field(default_factory=list)
    runs: list[tuple[Run, list[Version]]] = field(default_factory=list)
    looks: list[tuple[ReadView, int]] = field(default_factory=list)
    make: Callable[..., Table] = table
    hot: HotReads | None = None

    def apply(self, step: tuple[object, ...]) -> None:
        name, *arguments = step
        getattr(self, f"do_{name}")(*arguments)

    def _add(self, rows: Sequence[Version]) -> None:
        self.history += rows
        self.memtables[0][1].extend(rows)

    def do_put(self, key: bytes, value: bytes, expire_ms: int | None) -> None:
        self.seq += 1
        row = Version(key, value, self.seq, PUT, NO_EXPIRY if expire_ms is None else expire_ms, self.seq)
        self.memtables[0][0].append(row.key, row.value, row.kind, row.seq, row.expire_ms, row.create_ms)
        self._add([row])

    def do_delete(self, key: bytes) -> None:
        self.seq += 1
        self.memtables[0][0].append(key, b"", DELETE, self.seq, NO_EXPIRY, self.seq)
        self._add([Version(key, b"", self.seq, DELETE, create_ms=self.seq)])

    def do_batch(self, writes: list[tuple[bytes, bytes | None]]) -> None:
        first = self.seq + 1
        self.seq += len(writes)
        kinds = bytes(DELETE if value is None else PUT for _, value in writes)
        values = [value or b"" for _, value in writes]
        keys = [key for key, _ in writes]
        self.memtables[0][0].append_batch(keys, values, kinds, first, None, first)
        rows = zip(keys, values, range(first, self.seq + 1), kinds, strict=True)
        self._add([Version(*row, create_ms=first) for row in rows])

    def do_jump(self, by: int) -> None:
        self.seq += by

    def do_freeze(self) -> None:
        self.memtables[0][0].freeze()
        self.memtables.insert(0, (Memtable(), []))

    def do_flush(self, sizes: list[int]) -> None:
        if len(self.memtables) == 1:
            self.do_freeze()
        _, rows = self.memtables.pop()
        if rows:
            self.tables.insert(0, (self.make(rows, sizes), rows))

    def do_compact(self, tables: int, sizes: list[int]) -> None:
        self.do_flush(sizes)
        if self.tables:
            rows = [row for _, some in self.tables for row in some]
            self.tables.clear()
            self.runs.insert(0, (run(rows, tables, sizes, self.make), rows))

    def do_look(self) -> None:
        self.looks.append((self.view(), self.seq))

    def view(self) -> ReadView:
        parts = (self.memtables, self.tables, self.runs)
        memtables, tables, runs = ([part for part, _ in some] for some in parts)
        return ReadView(memtables, tables, runs, yield_budget=exhausted_budget(), hot=self.hot)


@dataclass(frozen=True)
class Question:
    """One read in all its forms."""

    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    reverse: bool
    limit: int | None
    max_rows: int
    now_ms: int


QUESTIONS = st.builds(
    Question,
    start=BOUNDS,
    end=BOUNDS,
    prefix=st.none() | st.none() | KEYS | st.just(b""),
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 12),
    max_rows=st.integers(1, 5),
    now_ms=TIMES,
)


def expected_rows(model: dict[bytes, Version], question: Question) -> list[Row]:
    """The answer, straight from the arguments."""
    rows = [
        Row(key, row.value, row.seq, row.create_ms / 1000, None if row.expire_ms == NO_EXPIRY else row.expire_ms / 1000)
        for key, row in model.items()
        if (question.start is None or key >= question.start)
        and (question.end is None or key < question.end)
        and (question.prefix is None or key.startswith(question.prefix))
    ]
    return rows[:: -1 if question.reverse else 1][: question.limit]


async def check(view: ReadView, seq: int, history: list[Version], question: Question) -> None:
    """All forms of reading agree with the model."""
    model = visible(history, seq, question.now_ms)
    keys = sorted({row.key for row in history} | {b"nothing", b"a"}, reverse=question.reverse)
    many = await view.get_many(keys, question.now_ms, seq)
    for key, value in zip(keys, many, strict=True):
        row = model.get(key)
        wanted = None if row is None else RowHit(*row[1:])
        assert value == (None if row is None else row.value), key
        assert await view.get(key, question.now_ms, seq) == wanted, key
        assert view.get_now(key, question.now_ms, seq) in (wanted, NEEDS_IO), key
        found = view.look_up(key, seq)
        if isinstance(found, RowHit):
            assert live_hit(found, question.now_ms) == wanted, key
        else:
            assert found in (value, NEEDS_IO), key
    try:
        span = key_range(question.start, question.end, question.prefix)
    except InvalidError:
        prefix, bounds = question.prefix or b"", (question.start, question.end)
        assert any(bound is not None and not bound.startswith(prefix) for bound in bounds)
        return
    await check_scans(view, seq, span, expected_rows(model, question), question)


async def check_scans(view: ReadView, seq: int, span: KeyRange, expected: list[Row], question: Question) -> None:
    """The three ways to iterate."""

    def scan() -> Scan:
        point = ReadPoint(view, seq, question.now_ms)
        return Scan(point, span, exhausted_budget(), lambda: None, reverse=question.reverse, limit=question.limit)

    assert [row async for row in scan().rows()] == expected
    assert [pair async for pair in scan()] == [(row.key, row.value) for row in expected]
    batches = [batch async for batch in scan().batches(question.max_rows)]
    assert all(batch.num_rows == question.max_rows for batch in batches[:-1])
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == [(row.key, row.value, row.seq) for row in expected]
    assert not view.pinned


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


async def history_and_questions(
    steps: list[tuple[object, ...]], questions: list[Question], stored: StoredTables | None = None
) -> None:
    engine = Engine() if stored is None else Engine(make=stored.table, hot=HotReads(stored.cache))
    for step in steps:
        engine.apply(step)
    if stored is not None:
        await stored.upload()
    looks = [*engine.looks, (engine.view(), engine.seq)]
    for number, question in enumerate(questions):
        view, seq = looks[-1 - number % len(looks)]
        await check(view, seq, engine.history, question)
    await check(engine.view(), MAX_SEQ, engine.history, questions[0])
    await check(engine.view(), engine.seq // 2, engine.history, questions[-1])


async def writes_during_a_scan(
    before: list[tuple[object, ...]], during: list[tuple[object, ...]], question: Question
) -> None:
    engine = Engine()
    for step in before:
        engine.apply(step)
    view, seq = engine.view(), engine.seq
    model = visible(engine.history, seq, question.now_ms)
    everything = Question(None, None, None, question.reverse, question.limit, 1, question.now_ms)
    expected = [row.key for row in expected_rows(model, everything)]
    point = ReadPoint(view, seq, question.now_ms)
    scan = Scan(
        point, KeyRange(None, None), exhausted_budget(), lambda: None, reverse=question.reverse, limit=question.limit
    )
    steps, found = iter(during), []
    async for batch in scan.batches(question.max_rows):
        found += batch.column("key").to_pylist()
        for step in steps:
            engine.apply(step)
            break
        await check(engine.view(), engine.seq, engine.history, question)
    assert found == expected


QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
HISTORIES = st.lists(STEPS, max_size=40)
SOME_QUESTIONS = st.lists(QUESTIONS, min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ROUND_ROWS", 6)
    monkeypatch.setattr(merge, "LEAST_ROWS", 2)


@pytest.fixture(autouse=True)
def _soon_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "READS_PER_LOOK", 1)
    monkeypatch.setattr(hot, "WORTH_LOOKUPS", 2)
    monkeypatch.setattr(block_rows, "WORTH_LOOKS", 2)


@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
@given(steps=HISTORIES, questions=SOME_QUESTIONS)
def test_reads(runner: asyncio.Runner, steps: list[tuple[object, ...]], questions: list[Question]) -> None:
    runner.run(history_and_questions(steps, questions))


@settings(max_examples=100, deadline=None, suppress_health_check=QUIET)
@given(steps=HISTORIES, questions=SOME_QUESTIONS, cache_bytes=CACHES)
def test_reads_of_stored_tables(
    runner: asyncio.Runner, steps: list[tuple[object, ...]], questions: list[Question], cache_bytes: int
) -> None:
    runner.run(history_and_questions(steps, questions, StoredTables(cache_bytes)))


@settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
@given(before=HISTORIES, during=HISTORIES, question=QUESTIONS)
def test_scans_are_stable(
    runner: asyncio.Runner, before: list[tuple[object, ...]], during: list[tuple[object, ...]], question: Question
) -> None:
    runner.run(writes_during_a_scan(before, during, question))


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=4000, deadline=None, suppress_health_check=QUIET)
@given(steps=st.lists(STEPS, max_size=150), questions=SOME_QUESTIONS)
def test_reads_long(runner: asyncio.Runner, steps: list[tuple[object, ...]], questions: list[Question]) -> None:
    runner.run(history_and_questions(steps, questions))


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=1500, deadline=None, suppress_health_check=QUIET)
@given(steps=st.lists(STEPS, max_size=100), questions=SOME_QUESTIONS, cache_bytes=CACHES)
def test_reads_of_stored_tables_long(
    runner: asyncio.Runner, steps: list[tuple[object, ...]], questions: list[Question], cache_bytes: int
) -> None:
    runner.run(history_and_questions(steps, questions, StoredTables(cache_bytes)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=1500, deadline=None, suppress_health_check=QUIET)
@given(before=HISTORIES, during=HISTORIES, question=QUESTIONS)
def test_scans_are_stable_long(
    runner: asyncio.Runner, before: list[tuple[object, ...]], during: list[tuple[object, ...]], question: Question
) -> None:
    runner.run(writes_during_a_scan(before, during, question))
