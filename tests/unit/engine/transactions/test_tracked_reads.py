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
    reads.add(keys[20])
    assert not reads.points
    assert reads.spans is not None
    assert len(reads.spans.starts) == 3
    assert all(key in reads.spans for key in keys)
    assert b"\0" not in reads.spans
    assert b"999" not in reads.spans
    assert 0 < reads.nbytes < counted
    reads.add(b"again")
    assert list(reads.points) == [b"again"]


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
