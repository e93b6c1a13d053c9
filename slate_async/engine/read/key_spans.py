"""`KeySpans`: a set of keys that is made of ranges, as few as there can be: neighbours become one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class KeySpans:
    """Span ``i`` is ``[starts[i], ends[i])``; both lists ascend, and spans neither overlap nor touch."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[bytes] = []
        self.ends: list[bytes] = []

    def __contains__(self, key: bytes) -> bool:
        at = bisect_right(self.starts, key)
        return at > 0 and key < self.ends[at - 1]

    def add(self, start: bytes, end: bytes) -> None:
        """Let the keys of ``[start, end)``, which is not empty, be in it."""
        first, stop = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < stop:
            start, end = min(start, self.starts[first]), max(end, self.ends[stop - 1])
        self.starts[first:stop] = [start]
        self.ends[first:stop] = [end]

    def remove(self, start: bytes, end: bytes) -> None:
        """Let no key of ``[start, end)``, which is not empty, be in it."""
        first, stop = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if first >= stop:
            return
        low, high = self.starts[first], self.ends[stop - 1]
        left, right = low < start, end < high
        self.starts[first:stop] = [low] * left + [end] * right
        self.ends[first:stop] = [start] * left + [high] * right
