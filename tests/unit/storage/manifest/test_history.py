"""Samples of when sequence numbers were written stay true, few, and answer from below."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from slate_async.storage.manifest.history import MAX_SAMPLES, sampled, seq_written_by
from slate_async.storage.manifest.state import Compaction, ManifestState, SeqTime

STATE = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)


def test_what_lies_below_the_history_floor_goes_but_for_the_newest() -> None:
    samples = tuple(SeqTime(seq, seq * 10) for seq in (1, 2, 3, 4))
    state = replace(STATE, seq_times=samples)
    assert sampled(replace(state, history_floor=3), 5, 50) == tuple(SeqTime(seq, seq * 10) for seq in (3, 4, 5))
    assert sampled(state, 5, 50) == (*samples, SeqTime(5, 50))


def test_a_number_that_is_covered_adds_nothing() -> None:
    assert sampled(replace(STATE, seq_times=(SeqTime(4, 40),)), 4, 90) == (SeqTime(4, 40),)


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
        samples = sampled(replace(STATE, seq_times=samples, history_floor=floor), len(written), now)
    state = replace(STATE, last_seq=len(written), last_tick_ms=now, seq_times=samples)
    asked = data.draw(st.integers(0, now + 10))
    found = seq_written_by(state, asked)
    assert all(written[seq - 1] <= asked for seq in range(1, found + 1))
    if asked >= now:
        assert found == len(written)


def test_samples_stay_few_and_dense_at_the_end() -> None:
    samples: tuple[SeqTime, ...] = ()
    for seq in range(1, 5 * MAX_SAMPLES):
        samples = sampled(replace(STATE, seq_times=samples), seq, seq)
        assert len(samples) <= MAX_SAMPLES
    assert [sample.seq for sample in samples[-100:]] == list(range(5 * MAX_SAMPLES - 100, 5 * MAX_SAMPLES))
    assert samples[0].seq < MAX_SAMPLES
    assert sorted(samples, key=lambda one: one.seq) == list(samples)


def test_where_a_running_compaction_will_cut_stays_a_sample() -> None:
    """Thinned meanwhile, however often, the point from which history is exact is found by its time."""
    samples = tuple(SeqTime(seq, seq * 10) for seq in range(1, MAX_SAMPLES + 1))
    for cut in (2, 3, 300, 301):
        running = Compaction(UUID(int=2), 1, 1, 0, cut, False, (), (), 1, 0)
        state = replace(STATE, seq_times=samples, compactions=(running,))
        for seq in range(MAX_SAMPLES + 1, 4 * MAX_SAMPLES):
            state = replace(state, last_seq=seq, last_tick_ms=seq * 10, seq_times=sampled(state, seq, seq * 10))
        committed = replace(state, compactions=(), history_floor=cut)
        assert seq_written_by(committed, cut * 10) == cut
