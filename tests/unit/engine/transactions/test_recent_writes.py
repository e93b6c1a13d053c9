"""Which keys were written since: by points, ranges and ingests, in chunks, pruned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.engine.read.key_spans import KeySpans
from slate_async.engine.transactions import recent_writes
from slate_async.engine.transactions.recent_writes import Conflict, RecentWrites
from slate_async.engine.transactions.tracked_reads import AFTER_ALL_KEYS


def spans_of(*ranges: tuple[bytes, bytes]) -> KeySpans:
    spans = KeySpans()
    for start, end in ranges:
        spans.add(start, end)
    return spans


def test_a_key_counts_from_its_newest_row_on() -> None:
    recent = RecentWrites()
    recent.restart(10)
    recent.add(11, [b"a", b"b", b"a"])
    assert recent.through == 13
    assert recent.conflict([b"a"], None, 12) == Conflict(b"a", "written")
    assert recent.conflict([b"a"], None, 13) is None
    assert recent.conflict([b"b"], None, 11) == Conflict(b"b", "written")
    assert recent.conflict([b"b"], None, 12) is None
    assert recent.conflict([b"c"], None, 10) is None


def test_a_range_counts_whatever_of_it_was_written() -> None:
    recent = RecentWrites()
    recent.restart(0)
    recent.add(1, [b"b", b"d"])
    assert recent.conflict([], spans_of((b"c", b"e")), 0) == Conflict(b"d", "written")
    assert recent.conflict([], spans_of((b"c", b"d")), 0) is None
    assert recent.conflict([], spans_of((b"a", AFTER_ALL_KEYS)), 2) is None
    assert recent.conflict([], spans_of((b"a", b"b\0")), 1) is None


def test_an_ingest_counts_by_the_ranges_of_its_ssts() -> None:
    recent = RecentWrites()
    recent.restart(5)
    recent.add_ingest(6, [(b"c", b"f"), (b"m", b"m")])
    recent.add(7, [b"x"])
    assert recent.conflict([b"d"], None, 5) == Conflict(b"d", "ingested")
    assert recent.conflict([b"f"], None, 5) == Conflict(b"f", "ingested")
    assert recent.conflict([b"g"], None, 5) is None
    assert recent.conflict([b"d"], None, 6) is None
    assert recent.conflict([], spans_of((b"a", b"d")), 5) == Conflict(b"c", "ingested")
    assert recent.conflict([], spans_of((b"d", b"e")), 5) == Conflict(b"d", "ingested")
    assert recent.conflict([], spans_of((b"g", b"m")), 5) is None
    assert recent.conflict([], spans_of((b"g", b"m\0")), 5) == Conflict(b"m", "ingested")
    recent.prune(6)
    assert recent.conflict([], spans_of((b"w", b"y")), 6) == Conflict(b"x", "written")
    recent.prune(7)
    assert recent.nbytes == 0


def test_rows_added_between_steps_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_writes, "CHUNK_ROWS", 4)
    recent = RecentWrites()
    recent.restart(0)
    recent.add(1, [b"a", b"b"])
    steps = recent.steps([b"z"], None, 0)
    assert next(steps) == (2, None)
    recent.add(3, [b"z"])  # into the chunk that was judged
    assert next(steps) == (3, Conflict(b"z", "written"))
    recent.add(4, [b"c", b"d", b"e"])
    assert list(steps) == [(3, None), (4, None), (6, None)]


def test_an_ingest_that_comes_between_steps_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_writes, "CHUNK_ROWS", 2)
    recent = RecentWrites()
    recent.restart(0)
    recent.add(1, [b"a", b"b"])
    steps = recent.steps([b"z"], None, 0)
    assert next(steps) == (2, None)
    recent.add_ingest(3, [(b"y", b"z")])
    recent.add(4, [b"c", b"d"])
    assert list(steps) == [(2, Conflict(b"z", "ingested")), (5, None)]
    recent.add_ingest(6, [(b"y", b"z")])
    assert list(recent.steps([b"z"], None, 5)) == [(5, Conflict(b"z", "ingested")), (6, None)]


def test_many_keys_and_ranges_are_judged_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_writes, "STEP_KEYS", 10)
    monkeypatch.setattr(recent_writes, "STEP_RANGES", 8)
    recent = RecentWrites()
    recent.restart(0)
    for number in range(24):
        recent.add_range_delete(number + 1, b"r%02d" % number, b"r%02d~" % number)
        recent.add(number + 1, [b"r%02d" % number])
    points = dict.fromkeys(b"p%03d" % number for number in range(100))
    spans = spans_of(*((b"s%02d" % number, b"s%02d~" % number) for number in range(50)))
    assert list(recent.steps(points, spans, 0)) == [(0, None)] * 3 * (10 + 5) + [(24, None)]
    assert recent.conflict({**points, b"r23!": None}, None, 0) == Conflict(b"r23!", "written")
    assert recent.conflict(points, spans_of((b"r22!", b"r22:")), 0) == Conflict(b"r22!", "written")


@given(
    writes=st.lists(st.tuples(st.integers(1, 3), st.lists(st.binary(max_size=2), min_size=1, max_size=9)), max_size=12),
    ingests=st.sets(st.integers(0, 11)),
    points=st.lists(st.binary(max_size=2), max_size=12, unique=True),
    ranges=st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=4),
    pruned=st.integers(0, 40),
    after=st.integers(0, 60),
    chunk_rows=st.integers(1, 7),
)
def test_judgement_agrees_with_a_list_of_all_writes(
    writes: list[tuple[int, list[bytes]]],
    ingests: set[int],
    points: list[bytes],
    ranges: list[tuple[bytes, bytes]],
    pruned: int,
    after: int,
    chunk_rows: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_writes, "CHUNK_ROWS", chunk_rows)
        recent, model = RecentWrites(), list[tuple[int, bytes, bytes, str]]()
        recent.restart(0)
        seq = 0
        for number, (gap, keys) in enumerate(writes):
            if number in ingests:
                seq += 1
                first, last = min(keys), max(keys)
                recent.add_ingest(seq, [(first, last)])
                model.append((seq, first, last, "ingested"))
                continue
            recent.add(seq + gap, keys)
            model += [(seq + gap + at, key, key, "written") for at, key in enumerate(keys)]
            seq += gap + len(keys) - 1
        recent.prune(pruned)
        after = max(after, pruned)
        spans = spans_of(*((start, end) for start, end in ranges if start < end))
        hit = {
            (key, reason)
            for number, first, last, reason in model
            if number > after
            for key in points
            if first <= key <= last
        }
        met = [
            (first, last, reason)
            for number, first, last, reason in model
            if number > after and any(start <= last and first < end for start, end in ranges if start < end)
        ]
        found = recent.conflict(dict.fromkeys(points), spans if spans.starts else None, after)
        assert (found is not None) == bool(hit or met)
        if found is not None:
            ranged = any(first <= found.key <= last and found.reason == reason for first, last, reason in met)
            assert tuple(found) in hit or ranged
            assert found.key in points or any(start <= found.key < end for start, end in ranges)
        recent.prune(seq)
        assert recent.nbytes == 0
