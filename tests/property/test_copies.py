"""Code that was copied to save a call does what its original does.

`AGREEMENTS` holds a test for each mark that `tests.tidy.copies` knows. A new copy needs one, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.arguments import key_bytes, sought_key, value_bytes
from slate_async.codec.columns import NO_EXPIRY
from slate_async.database.db import Db
from slate_async.database.readable import Reads
from slate_async.database.transaction import Transaction
from slate_async.engine.read import scan_steps
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.key_spans import KeySpans
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.retrying_rows import no_retry
from slate_async.engine.read.scan_steps import ScanSteps
from slate_async.engine.read.source import ReadSource
from slate_async.engine.read.view import ReadView
from slate_async.engine.transactions.tracked_reads import TrackedReads
from slate_async.engine.write.batch import WriteBatch
from slate_async.engine.write.commit_group import CommitGroup, handle_of
from slate_async.engine.write.reads import WriterReads
from slate_async.engine.write.sequencer import Sequencer
from slate_async.errors import ClosedError, InvalidError, Outcome
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.storage.memtable import Memtable
from slate_async.types import DELETE, MAX_KEY_BYTES, PUT, RowLimits
from tests.read_model import Version, ample_budget, exhausted_budget, run
from tests.tidy.copies import marks
from tests.tidy.findings import project_sources

ROOT = Path(__file__).resolve().parents[2]
LIMITS = RowLimits(8, 12)
NOW_MS = 50
STEPS = "engine.read.scan_steps.ScanSteps"


class OwnBytes(bytes):
    """Bytes of another type."""


small = st.binary(max_size=15)
arguments: st.SearchStrategy[Any] = st.one_of(
    small,
    small.map(bytearray),
    small.map(memoryview),
    small.map(OwnBytes),
    st.text(max_size=3),
    st.integers(),
    st.none(),
    st.lists(st.integers(), max_size=2),
    st.just(b"k" * MAX_KEY_BYTES),
    st.just(b"k" * (MAX_KEY_BYTES + 1)),
)


def outcome_of(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What ``call`` gives, or how it fails."""
    try:
        given_back = call()
    except InvalidError as error:
        return type(error), str(error), error.outcome
    return type(given_back), given_back


@given(key=arguments, value=arguments)
def arguments_of_put(key: Any, value: Any) -> None:
    seen = SimpleNamespace(
        _limits=LIMITS,
        _max_key_bytes=LIMITS.max_key_bytes,
        _max_value_bytes=LIMITS.max_value_bytes,
        _default_life_ms=None,
        _write_row=lambda key, value, *rest: (key, value),
    )
    copied = outcome_of(lambda: Db.put(seen, key, value))  # type: ignore[arg-type]
    assert copied == outcome_of(lambda: (key_bytes(key, LIMITS), value_bytes(value, LIMITS)))


@given(key=arguments, value=arguments)
def arguments_of_a_batch(key: Any, value: Any) -> None:
    def put() -> tuple[bytes, bytes]:
        batch = WriteBatch()
        batch.put(key, value)
        return batch._keys[0], batch._values[0]

    assert outcome_of(put) == outcome_of(lambda: (key_bytes(key), value_bytes(value)))


@given(key=arguments)
def the_key_of_get(key: Any) -> None:
    reads: Any = SimpleNamespace(_reads=SimpleNamespace(get=lambda key, durable: key))
    assert outcome_of(lambda: Reads.get(reads, key)) == outcome_of(lambda: sought_key(key))


@given(keys=st.lists(arguments, max_size=4))
def the_keys_of_get_many(keys: list[Any]) -> None:
    reads: Any = SimpleNamespace(_reads=SimpleNamespace(get_many=lambda keys, durable: keys))
    assert outcome_of(lambda: Reads.get_many(reads, keys)) == outcome_of(lambda: [sought_key(key) for key in keys])


@given(now=st.integers(0, 9), tick=st.integers(0, 9), seq=st.integers(1, 9))
def a_row_in_leased_room(now: int, tick: int, seq: int) -> None:
    async def both() -> None:
        group = CommitGroup()
        appended: list[int] = []

        def append(key: bytes, value: bytes, kind: int, expire_ms: int, create_ms: int) -> int:
            appended.append(create_ms)
            return seq

        copy: Any = SimpleNamespace(_now_ms=lambda: now, tick_ms=tick, _append_next=append, _leased_group=group)
        original: Any = SimpleNamespace(_now_ms=lambda: now, tick_ms=tick)
        handle = Sequencer.row_now(copy, b"k", b"v", PUT, None)
        at_ms = Sequencer.tick(original)
        expected = handle_of(seq, at_ms, group)
        assert handle is not None
        assert type(handle) is type(expected)
        for name in ("seq", "_create_ms", "_group"):
            assert getattr(handle, name) == getattr(expected, name)
        assert (copy.tick_ms, appended) == (original.tick_ms, [at_ms])

    asyncio.run(both())


keys = st.binary(min_size=1, max_size=2)


@given(changes=st.lists(st.tuples(st.booleans(), keys, keys), max_size=6), wanted=keys)
def keys_in_hot_ranges(changes: list[tuple[bool, bytes, bytes]], wanted: bytes) -> None:
    spans = KeySpans()
    for add, one, other in changes:
        start, end = min(one, other), max(one, other) + b"\0"
        (spans.add if add else spans.remove)(start, end)
    beyond = object()
    view: Any = SimpleNamespace(
        _older_memtables=(),
        _levels=("some",),
        _hot=SimpleNamespace(rows={}, whole=spans),
        _look_up_stored=lambda key, max_seq: beyond,
    )
    assert ReadView.look_below(view, wanted) is (None if wanted in spans else beyond)


class Served:
    """A guard in one of the states it may be in."""

    def __init__(self, state: str) -> None:
        self.refused: list[Outcome | None] = []
        self.guard = LoopGuard(self._refuse)
        if state == "shut":
            self.guard.shut()
        elif state == "elsewhere":
            self.guard.thread = -1
        elif state == "stopped":
            self.guard.running = lambda: False

    def _refuse(self, outcome: Outcome | None) -> None:
        self.refused.append(outcome)
        raise ClosedError("closed", outcome=outcome)


def transaction_of(served: Served) -> Any:
    """A transaction that has written a key, and nothing was written since it began."""
    sequencer = SimpleNamespace(last_seq=0, row_now=lambda *row: row)
    stats = SimpleNamespace(committed=0)
    transactions = SimpleNamespace(check_alone=lambda _: None, end=lambda _: None, stats=stats)
    return SimpleNamespace(
        _space=SimpleNamespace(guard=served.guard, gate=SimpleNamespace(shut=False)),
        _check=lambda: served.guard.check("not_applied"),
        _open=True,
        _not_begun=False,
        _tracked=TrackedReads(0, 0.0),
        _writes={b"k": (b"v", None)},
        _ranges=None,
        _scans=None,
        _snapshot=None,
        _turn=None,
        _sequencer=sequencer,
        _writer=SimpleNamespace(transactions=transactions),
    )


@given(state=st.sampled_from(["open", "shut", "elsewhere", "stopped"]))
def whether_calls_are_served(state: str) -> None:
    async def refusal(work: Awaitable[Any], served: Served) -> list[Outcome | None]:
        try:
            await work
        except ClosedError:
            assert served.refused
        return served.refused

    async def check(served: Served, outcome: Outcome | None) -> None:
        served.guard.check(outcome)

    async def all_of_them() -> None:
        expected = Served(state)
        written = Served(state)
        handle = SimpleNamespace(seq=1)
        db: Any = SimpleNamespace(
            _guard=written.guard,
            _check=written.guard.check,
            _sequencer=SimpleNamespace(row_now=lambda *row: handle),
            _reads=SimpleNamespace(yield_budget=ample_budget()),
        )
        refused = await refusal(Db._write_row(db, b"k", b"v", PUT, None, False), written)
        assert refused == await refusal(check(expected, "not_applied"), expected)
        expected, read = Served(state), Served(state)
        reads = reads_of(ReadView([Memtable()], [], [], yield_budget=ample_budget()), 0, 0, read.guard)
        assert await refusal(reads.get(b"k", False), read) == await refusal(check(expected, None), expected)
        expected, asked = Served(state), Served(state)
        refused = await refusal(Transaction._get(transaction_of(asked), b"k"), asked)
        assert refused == await refusal(check(expected, "not_applied"), expected)
        applied = Transaction._apply_now(transaction_of(asked))
        assert (applied is None) == bool(refused)

    asyncio.run(all_of_them())


def reads_of(view: ReadView, last_seq: int, durable_seq: int, guard: LoopGuard) -> WriterReads:
    """Reads of a writer that has nothing but this view."""
    writer: Any = SimpleNamespace(
        state=SimpleNamespace(view=view, durable_seq=durable_seq),
        sequencer=SimpleNamespace(last_seq=last_seq),
        yield_budget=exhausted_budget(),
    )

    async def adopt_head() -> None:
        raise AssertionError("nothing is missing")

    return WriterReads(writer, SimpleNamespace(now_ms=lambda: NOW_MS), guard, adopt_head)  # type: ignore[arg-type]


rows = st.tuples(keys, st.binary(max_size=2), st.sampled_from([PUT, DELETE]), st.sampled_from([NO_EXPIRY, 40, 60]))


@settings(deadline=None, max_examples=150)
@given(
    tables=st.lists(st.lists(rows, max_size=5), min_size=1, max_size=3),
    stored=st.lists(rows, max_size=4),
    wanted=st.lists(keys, min_size=1, max_size=5),
    durable=st.integers(0, 19),
    loaded=st.booleans(),
)
def a_writers_get(tables: list[list[Any]], stored: list[Any], wanted: list[bytes], durable: int, loaded: bool) -> None:
    async def both() -> None:
        seq, levels = 0, []
        if stored:
            versions = [Version(*row[:2], number, *row[2:], 1) for number, row in enumerate(stored, 1)]
            levels = [run(versions)]
            for table in levels[0].tables:
                table.source.loaded = table.source.sync = loaded  # type: ignore[attr-defined, misc]
            seq = len(stored)
        memtables = []
        for table in tables:  # oldest first
            memtables.insert(0, memtable := Memtable())
            for key, value, kind, expire_ms in table:
                seq += 1
                memtable.append(key, value, kind, seq, expire_ms, 1)
        view = ReadView(memtables, [], levels, yield_budget=exhausted_budget())
        reads = reads_of(view, seq, max(durable, len(stored)), Served("open").guard)
        for key in wanted:
            for wants_durable in (False, True):
                assert await reads.get(key, wants_durable) == await ReadSource.get(reads, key, wants_durable)

    asyncio.run(both())


@given(
    pages=st.sampled_from([(), (32,), (32, 64, 128), (1024,)]),
    left=st.none() | st.integers(0, 300),
    span=st.sampled_from([KeyRange(None, None), KeyRange(b"b", b"a"), KeyRange(b"a", b"a"), KeyRange(b"a", b"b")]),
)
def rows_of_a_first_page(pages: tuple[int, ...], left: int | None, span: KeyRange) -> None:
    point = ReadPoint(ReadView([], [], [], yield_budget=ample_budget()), 0, 0)
    steps = ScanSteps(point, span, ample_budget(), lambda: None, no_retry, False, left)
    steps._pages = pages
    asked = [0]

    def first_rows(point: ReadPoint, span: KeyRange, count: int, reverse: bool, whole: bool) -> None:
        asked.append(count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_steps, "first_page", first_rows)
        assert steps._first_page_nowait() is None
    assert asked[-1] == steps._page_rows


AGREEMENTS: dict[tuple[str, str], Callable[[], None]] = {
    ("database.db.Db.put", "arguments.key_bytes"): arguments_of_put,
    ("database.db.Db.put", "arguments.value_bytes"): arguments_of_put,
    ("database.db.Db._write_row", "runtime.loop_guard.LoopGuard.check"): whether_calls_are_served,
    ("database.readable.Reads.get", "arguments.sought_key"): the_key_of_get,
    ("database.readable.Reads.get_many", "arguments.sought_key"): the_keys_of_get_many,
    (
        "engine.read.scan_steps.ScanSteps._first_page_nowait",
        "engine.read.scan_steps.ScanSteps._page_rows",
    ): rows_of_a_first_page,
    ("database.transaction.Transaction._get", "runtime.loop_guard.LoopGuard.check"): whether_calls_are_served,
    ("database.transaction.Transaction._apply_now", "runtime.loop_guard.LoopGuard.check"): whether_calls_are_served,
    ("engine.read.view.ReadView.look_below", "engine.read.key_spans.KeySpans.__contains__"): keys_in_hot_ranges,
    ("engine.write.batch.WriteBatch.put", "arguments.key_bytes"): arguments_of_a_batch,
    ("engine.write.batch.WriteBatch.put", "arguments.value_bytes"): arguments_of_a_batch,
    ("engine.write.reads.WriterReads.get", "engine.read.source.ReadSource.get"): a_writers_get,
    ("engine.write.reads.WriterReads.get", "runtime.loop_guard.LoopGuard.check"): whether_calls_are_served,
    ("engine.write.sequencer.Sequencer.row_now", "engine.write.sequencer.Sequencer.tick"): a_row_in_leased_room,
    ("engine.write.sequencer.Sequencer.row_now", "engine.write.commit_group.handle_of"): a_row_in_leased_room,
}


def test_every_copy_is_compared() -> None:
    copies, findings = marks(project_sources(ROOT)[0])
    assert not findings
    assert {(copy.place, copy.original) for copy in copies} == set(AGREEMENTS)


@pytest.mark.parametrize("compare", dict.fromkeys(AGREEMENTS.values()), ids=lambda compare: compare.__name__)
def test_a_copy_does_what_its_original_does(compare: Callable[[], None]) -> None:
    compare()
