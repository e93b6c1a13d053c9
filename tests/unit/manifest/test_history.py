"""Samples of when sequence numbers were written stay true, few, and answer from below."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from slate_async.manifest.history import MAX_SAMPLES, sampled, seq_written_by
from slate_async.manifest.state import ManifestState, SeqTime

STATE = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)


def test_what_lies_below_the_history_floor_goes_but_for_the_newest() -> None:
    samples = tuple(SeqTime(seq, seq * 10) for seq in (1, 2, 3, 4))
    assert sampled(samples, 5, 50, history_floor=3) == tuple(SeqTime(seq, seq * 10) for seq in (3, 4, 5))
    assert sampled(samples, 5, 50, history_floor=0) == (*samples, SeqTime(5, 50))


def test_a_number_that_is_covered_adds_nothing() -> None:
    assert sampled((SeqTime(4, 40),), 4, 90, 0) == (SeqTime(4, 40),)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=60),
    st.integers(0, 60),
    st.data(),
)
def test_the_answer_is_never_too_high(steps: list[tuple[int, int]], floor: int, data: st.DataObject) -> None:
    """Against the write time of every row; a step writes some rows at once, a while after the one before."""
    written: list[int] = []
    samples: tuple[SeqTime, ...] = ()
    now = 0
    for rows, pause in steps:
        now += pause
        written += [now] * rows
        samples = sampled(samples, len(written), now, floor)
    state = replace(STATE, last_seq=len(written), last_tick_ms=now, seq_times=samples)
    asked = data.draw(st.integers(0, now + 10))
    found = seq_written_by(state, asked)
    assert all(written[seq - 1] <= asked for seq in range(1, found + 1))
    if asked >= now:
        assert found == len(written)


def test_samples_stay_few_and_dense_at_the_end() -> None:
    samples: tuple[SeqTime, ...] = ()
    for seq in range(1, 5 * MAX_SAMPLES):
        samples = sampled(samples, seq, seq, 0)
        assert len(samples) <= MAX_SAMPLES
    assert [one.seq for one in samples[-100:]] == list(range(5 * MAX_SAMPLES - 100, 5 * MAX_SAMPLES))
    assert samples[0].seq < MAX_SAMPLES
    assert sorted(samples, key=lambda one: one.seq) == list(samples)
