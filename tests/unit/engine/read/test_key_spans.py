"""Spans of keys against a set of keys."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from slate_async.engine.read.key_spans import KeySpans


@pytest.mark.parametrize("seed", range(20))
def test_against_a_set(seed: int) -> None:
    rng = random.Random(seed)
    spans = KeySpans()
    within: set[int] = set()
    for _ in range(200):
        low, high = sorted(rng.sample(range(31), 2))
        start, end = b"%02d" % low, b"%02d" % high
        if rng.random() < 0.5:
            spans.add(start, end)
            within |= set(range(low, high))
        else:
            spans.remove(start, end)
            within -= set(range(low, high))
        assert [number for number in range(31) if b"%02d" % number in spans] == sorted(within)
        edges = [edge for span in zip(spans.starts, spans.ends, strict=True) for edge in span]
        assert all(one < other for one, other in pairwise(edges)), "as few spans as there can be"


def test_a_key_between_two_others() -> None:
    spans = KeySpans()
    assert b"" not in spans
    spans.add(b"a", b"b")
    assert (b"a" in spans, b"a\0" in spans, b"b" in spans, b"" in spans) == (True, True, False, False)
