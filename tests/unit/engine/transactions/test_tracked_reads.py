"""What a transaction has read, and what that takes."""

from __future__ import annotations

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.transactions import tracked_reads
from slate_async.engine.transactions.tracked_reads import AFTER_ALL_KEYS, TrackedReads


def test_many_points_become_ranges_that_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_reads, "MOST_POINTS", 20)
    monkeypatch.setattr(tracked_reads, "RANGES_OF_POINTS", 3)
    reads = TrackedReads(7, 0.0)
    keys = [b"%03d" % (number * 37 % 101) for number in range(21)]
    for key in keys[:20]:
        reads.add(key)
    assert (len(reads.points), reads.spans) == (20, None)
    counted = reads.nbytes
    assert not reads.crowded
    reads.add(keys[20])
    assert reads.crowded
    list(reads.widen())
    assert not reads.crowded
    assert not reads.points
    assert reads.spans is not None
    assert len(reads.spans.starts) == 3
    assert all(key in reads.spans for key in keys)
    assert b"\0" not in reads.spans
    assert b"999" not in reads.spans
    assert 0 < reads.nbytes < counted
    reads.add(b"again")
    assert list(reads.points) == [b"again"]


@pytest.mark.parametrize("stride", [1, 7919])
def test_at_every_step_all_keys_are_known_and_none_takes_many(stride: int) -> None:
    """Once to its end, once cut off and begun anew."""
    keys = [b"%07d" % (number * stride % 100_003) for number in range(tracked_reads.MOST_POINTS + 1)]
    reads = TrackedReads(0, 0.0)
    for key in keys:
        reads.add(key)
    steps = 0
    cut_off = reads.widen()
    for _ in range(50):
        next(cut_off)
    cut_off.close()
    for steps, _ in enumerate(reads.widen(), 1):
        if steps == 10:
            reads.add(b"read meanwhile")
        if not steps % 20:
            assert all(key in reads.points or (reads.spans is not None and key in reads.spans) for key in keys[::997])
    assert steps >= 2 * len(keys) / tracked_reads.STEP_KEYS
    assert list(reads.points) == [b"read meanwhile"]
    assert reads.spans is not None
    assert all(key in reads.spans for key in keys)
    assert len(reads.spans.starts) <= 1_000
    assert reads.nbytes == sum(len(key) for key in reads.points) + tracked_reads.POINT_BYTES + sum(
        len(start) + len(end) + tracked_reads.RANGE_BYTES
        for start, end in zip(reads.spans.starts, reads.spans.ends, strict=True)
    )


def test_one_that_is_evicted_meanwhile_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_reads, "STEP_KEYS", 4)
    reads = TrackedReads(0, 0.0)
    for number in range(20):
        reads.add(b"%d" % number)
    steps = reads.widen()
    next(steps)
    reads.evicted, reads.points, reads.spans = "too_large", {}, None
    assert list(steps) == []
    assert not reads.any


def test_a_key_counts_once_and_a_range_that_grows_as_one() -> None:
    reads = TrackedReads(0, 0.0)
    assert not reads.any
    reads.add(b"k")
    once = reads.nbytes
    reads.add(b"k")
    assert reads.nbytes == once
    reads.add_range(b"a", b"c")
    twice = reads.nbytes
    reads.add_range(b"b", b"d")
    assert reads.nbytes == twice
    reads.add_range(b"x", b"x")
    reads.add_range(None, None)
    assert reads.spans is not None
    assert (reads.spans.starts, reads.spans.ends) == ([b""], [AFTER_ALL_KEYS])


def test_the_first_expiry_is_kept_with_its_key() -> None:
    reads = TrackedReads(0, 0.0)
    assert reads.expires_ms == NO_EXPIRY
    reads.expires(b"later", 20)
    reads.expires(b"first", 10)
    reads.expires(b"last", 30)
    assert (reads.expiring, reads.expires_ms) == (b"first", 10)
