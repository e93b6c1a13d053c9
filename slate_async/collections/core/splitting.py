"""Key ranges that divide the rows of a snapshot into parts of about one size.

The weights are of spans of keys: parts and row groups of merged batches, by their statistics. Spans overlap, since each
batch has its own; a span's rows are taken to lie evenly between the edges that other spans have within it. Pending
batches are small and weigh nothing here; every split reads its range of them.

Keys are compared only, so they may be bytes or tuples of columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    """What can be a key."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Ordered)


@dataclass(frozen=True, slots=True)
class Span(Generic[K]):
    """Rows with keys from ``first`` to ``last``, both among them. ``weight``: their rows, or bytes."""

    first: K
    last: K
    weight: int


@dataclass(frozen=True, slots=True)
class KeySplit(Generic[K]):
    """Keys at or after ``start`` and before ``end``; ``None`` is no bound. ``weight``: about what is in it."""

    start: K | None
    end: K | None
    weight: int


def split(spans: Sequence[Span[K]], count: int) -> list[KeySplit[K]]:
    """At most ``count`` ranges of about one weight that hold every key once, in key order; at least one."""
    edges = _edges(spans)
    weights = _weights(spans, edges)
    total = sum(weights)
    cuts: list[int] = []
    seen = 0.0
    for place, weight in enumerate(weights):
        wanted = total * (len(cuts) + 1) / max(count, 1)
        if place and len(cuts) < count - 1 and seen + weight / 2 >= wanted:
            cuts.append(place)
        seen += weight
    bounds = [None, *(edges[cut] for cut in cuts), None]
    sizes = [sum(weights[start:end]) for start, end in pairwise([0, *cuts, len(weights)])]
    return [KeySplit(start, end, round(size)) for (start, end), size in zip(pairwise(bounds), sizes, strict=True)]


def _edges(spans: Sequence[Span[K]]) -> list[K]:
    """Every first and last key, once, in order: where a range may begin."""
    found: list[K] = []
    for key in sorted(key for span in spans for key in (span.first, span.last)):
        if not found or found[-1] < key:
            found.append(key)
    return found


def _weights(spans: Sequence[Span[K]], edges: Sequence[K]) -> list[float]:
    """What begins at each edge, before the next one: each span's weight is shared evenly among its edges."""
    weights = [0.0] * len(edges)
    for span in spans:
        first, last = bisect_left(edges, span.first), bisect_left(edges, span.last)
        share = span.weight / (last - first + 1)
        for place in range(first, last + 1):
            weights[place] += share
    return weights
