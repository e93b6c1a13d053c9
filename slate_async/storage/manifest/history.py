"""When sequence numbers were written: samples in the manifest, for time travel and for retention.

A sample ``(seq, time)`` says: every row up to ``seq`` was written at ``time`` or before, every later one then or after.
Any of them may be left out; that only makes answers coarser.
"""

from __future__ import annotations

from bisect import bisect_right

from slate_async.storage.manifest.state import ManifestState, SeqTime

MAX_SAMPLES = 1_024
"""About 20 KB of a full manifest version."""


def sampled(state: ManifestState, seq: int, time_ms: int) -> tuple[SeqTime, ...]:
    """The samples of ``state`` with one for ``seq``, unless they reach that far already. What lies wholly below
    ``history_floor`` goes, but for the newest; when there are too many, every second one of the older half.

    Those at which compactions that run will cut history off stay: what is exact from there on is asked for by time, and
    a coarser answer would lie below."""
    samples, history_floor = state.seq_times, state.history_floor
    if samples and samples[-1].seq >= seq:
        return samples
    latest = samples[-1].time_ms if samples else 0
    longer = (*samples, SeqTime(seq, max(time_ms, latest)))
    below = bisect_right(longer, history_floor, key=lambda sample: sample.seq)
    longer = longer[max(0, below - 1) :]
    if len(longer) <= MAX_SAMPLES:
        return longer
    half, cuts = len(longer) // 2, {compaction.keep_above for compaction in state.compactions}
    thinned = (sample for place, sample in enumerate(longer[:half]) if place % 2 == 0 or sample.seq in cuts)
    return (*thinned, *longer[half:])


def seq_written_by(state: ManifestState, time_ms: int) -> int:
    """The highest sequence number known to be written at ``time_ms`` or before; 0 if none is."""
    if time_ms >= state.last_tick_ms:
        return state.last_seq
    found = bisect_right(state.seq_times, time_ms, key=lambda sample: sample.time_ms)
    return state.seq_times[found - 1].seq if found else 0


def kept_above(state: ManifestState, now_ms: int, last_seq: int) -> int:
    """The sequence number above which every version stays when rows up to ``last_seq`` are rewritten, begun now.

    Without retention that is ``last_seq``: readers of older versions pin what holds them. With it, the highest known to
    be written at or before the horizon; below `ManifestState.history_floor` versions are lost already, and keeping some
    of them would help no read."""
    if not state.retention_ms:
        return last_seq
    old = [sample.seq for sample in state.seq_times if sample.time_ms <= now_ms - state.retention_ms]
    return max([state.history_floor, *old])
