"""`TrackedReads`: what one open transaction has read, as keys and ranges of keys. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read.key_spans import KeySpans
from slate_async.types import MAX_KEY_BYTES

MOST_POINTS = 100_000
"""A transaction that reads more keys one by one is validated by ranges that hold them."""

RANGES_OF_POINTS = 1_000
"""So many ranges `MOST_POINTS` keys become."""

STEP_KEYS = 512
"""So many keys a step of `TrackedReads.widen` takes: about 0.2 ms."""

MOST_AT_ONCE = 1_024
"""So many keys, or ranges, are looked for in one step when the transaction commits."""

POINT_BYTES = 112
"""What a key takes beside its bytes: the object, and its place in a dictionary."""

RANGE_BYTES = 240
FIRST_BYTES = 1_024
"""A transaction is counted with so much from its beginning, and then in steps of as much: always with what it has, or
more."""

AFTER_ALL_KEYS = b"\xff" * (MAX_KEY_BYTES + 1)
"""The end of a range without one: above every key."""


class TrackedReads:
    """See the module docstring.

    seq: rows up to here are seen by the reads; began: when, monotonic seconds
    points: the keys read one by one, in the order of their first reads
    expires_ms, expiring: when the first of the rows that were read expires, and its key
    nbytes, counted: bytes held; with how many it is counted among all
    evicted: why it is not followed any more and cannot commit; ``None`` while it is
    """

    __slots__ = (
        "_widens",
        "began",
        "counted",
        "evicted",
        "expires_ms",
        "expiring",
        "nbytes",
        "points",
        "seq",
        "spans",
    )

    def __init__(self, seq: int, began: float) -> None:
        self.seq = seq
        self.began = began
        self.points: dict[bytes, None] = {}
        self.spans: KeySpans | None = None
        self.expires_ms, self.expiring = NO_EXPIRY, b""
        self.nbytes, self.counted = 0, FIRST_BYTES
        self.evicted: str | None = None
        self._widens = False

    def add(self, key: bytes) -> None:
        """``key`` was read, whether it was there or not."""
        points = self.points
        if key in points:
            return
        points[key] = None
        self.nbytes += len(key) + POINT_BYTES

    def add_range(self, start: bytes | None, end: bytes | None) -> None:
        """The keys of ``[start, end)`` were read, whether they were there or not; ``None`` is unbounded."""
        first, stop = start or b"", AFTER_ALL_KEYS if end is None else end
        if first >= stop:
            return
        if self.spans is None:
            self.spans = KeySpans()
        before = len(self.spans.starts)
        self.spans.add(first, stop)
        if len(self.spans.starts) > before:
            self.nbytes += RANGE_BYTES + len(first) + (0 if end is None else len(end))

    def expires(self, key: bytes, expire_ms: int) -> None:
        """The row of ``key`` was read and vanishes at ``expire_ms``."""
        if expire_ms < self.expires_ms:
            self.expires_ms, self.expiring = expire_ms, key

    @property
    def crowded(self) -> bool:
        """Whether keys are to become ranges: see `widen`."""
        return len(self.points) > MOST_POINTS and not self._widens

    def widen(self) -> Iterator[None]:
        """Keys become ranges, each from one key to another of those that were read. In steps, between which others may
        have a turn: at each of them what was read is in ``points`` or in ``spans``, if not in both.

        Keys that were read at even distances divide all of them into the ranges, so nothing is sorted but these."""
        self._widens = True
        try:
            for _ in self._widened():
                yield
                if self.evicted is not None:
                    return
        finally:
            self._widens = False

    def _widened(self) -> Iterator[None]:
        keys, nbytes = list(self.points), 0
        dividing = sorted(keys[:: -(-len(keys) // RANGES_OF_POINTS)])
        first, last = dividing.copy(), dividing.copy()
        for at in range(0, len(keys), STEP_KEYS):
            for key in keys[at : at + STEP_KEYS]:
                part = bisect_right(dividing, key, 1) - 1
                if key < first[part]:
                    first[part] = key
                elif key > last[part]:
                    last[part] = key
                nbytes += len(key)
            yield
        for at in range(0, len(first), STEP_KEYS):
            for start, end in zip(first[at : at + STEP_KEYS], last[at : at + STEP_KEYS], strict=True):
                self.add_range(start, end + b"\0")
            yield
        self.points = dict.fromkeys(islice(self.points, len(keys), None))
        self.nbytes -= nbytes + POINT_BYTES * len(keys)
        while keys:
            del keys[-STEP_KEYS:]
            yield

    @property
    def many(self) -> bool:
        """Whether a commit has to look for them in steps."""
        return len(self.points) > MOST_AT_ONCE or (self.spans is not None and len(self.spans.starts) > MOST_AT_ONCE)

    @property
    def any(self) -> bool:
        """Whether anything was read."""
        return bool(self.points) or self.spans is not None
