"""`RecentWrites`: which keys were written above a sequence number, for the validation of transactions. Pure.

Rows come in the order of their numbers, in chunks that are indexed when somebody asks: a point is one look into each
chunk, a range two binary searches. An ingest is known by the key ranges of its SSTs, which may hold keys that it does
not write; a range delete by its range, too.

Invariant: everything written with a number in ``(floor, through]`` is known. `prune` moves the floor up to what the
oldest open transaction has read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from slate_async.engine.read.key_spans import KeySpans

CHUNK_ROWS = 1024
ROW_BYTES = 160
"""What a row takes beside its key: the key's object, its places in the list, the index and the order."""

INGESTED_RANGE_BYTES = 240
STEP_KEYS, STEP_RANGES = 1_024, 256
"""So many keys, or ranges, that were read are looked for among so many ranges that were written in a step: in some 0.2
ms."""


class Conflict(NamedTuple):
    """Why a transaction cannot commit: a key that another write changed, and how it did."""

    key: bytes
    reason: str


class WrittenRows:
    """The keys of rows with neighbouring numbers, the first of which is ``first_seq``."""

    __slots__ = ("_indexed", "_newest", "_order", "_ordered", "first_seq", "keys", "nbytes")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.keys: list[bytes] = []
        self.nbytes = 0
        self._newest: dict[bytes, int] = {}
        self._indexed = 0
        self._order: list[bytes] = []
        self._ordered = 0

    @property
    def last_seq(self) -> int:
        """The number of its last row."""
        return self.first_seq + len(self.keys) - 1

    def add(self, keys: Sequence[bytes]) -> int:
        """The next rows; by how many bytes it has grown."""
        self.keys += keys
        grown = sum(map(len, keys)) + ROW_BYTES * len(keys)
        self.nbytes += grown
        return grown

    def written(self, points: Collection[bytes], spans: KeySpans | None, after: int) -> bytes | None:
        """A key among ``points`` or in ``spans`` that one of its rows above number ``after`` has."""
        first = max(0, after + 1 - self.first_seq)
        rows = len(self.keys) - first
        if points:
            if len(points) > rows:
                for key in islice(self.keys, first, None):
                    if key in points:
                        return key
            else:
                newest = self._index()
                for key in points:
                    if newest.get(key, -1) >= first:
                        return key
        if spans is None:
            return None
        if len(spans.starts) > rows:
            return next((key for key in islice(self.keys, first, None) if key in spans), None)
        return self._written_in(spans, first)

    def _written_in(self, spans: KeySpans, first: int) -> bytes | None:
        newest, order = self._index(), self._in_order()
        for start, end in zip(spans.starts, spans.ends, strict=True):
            for at in range(bisect_left(order, start), bisect_left(order, end)):
                if newest[order[at]] >= first:
                    return order[at]
        return None

    def _index(self) -> dict[bytes, int]:
        rows = len(self.keys)
        if self._indexed < rows:
            self._newest.update(zip(islice(self.keys, self._indexed, None), range(self._indexed, rows), strict=True))
            self._indexed = rows
        return self._newest

    def _in_order(self) -> list[bytes]:
        if self._ordered < len(self.keys):
            self._order = sorted(self._index())
            self._ordered = len(self.keys)
        return self._order


class RecentWrites:
    """See the module docstring. ``nbytes``: about what it holds."""

    def __init__(self) -> None:
        self.floor = self.through = 0
        self.nbytes = 0
        self._chunks: list[WrittenRows] = []
        self._ingests: list[tuple[int, KeySpans, int, str]] = []  # number of its rows, where they may be, bytes, reason

    def restart(self, seq: int) -> None:
        """Forget everything: only what is written above ``seq`` matters."""
        self.floor = self.through = seq
        if self.nbytes:
            self._chunks, self._ingests, self.nbytes = [], [], 0

    def add(self, first_seq: int, keys: Sequence[bytes]) -> None:
        """The keys of the rows ``first_seq``, ``first_seq + 1`` and so on, all above ``through``."""
        chunks = self._chunks
        start = 0
        if chunks and chunks[-1].last_seq + 1 == first_seq:
            start = min(len(keys), CHUNK_ROWS - len(chunks[-1].keys))
            self.nbytes += chunks[-1].add(keys[:start])
        for at in range(start, len(keys), CHUNK_ROWS):
            chunk = WrittenRows(first_seq + at)
            self.nbytes += chunk.add(keys[at : at + CHUNK_ROWS])
            chunks.append(chunk)
        self.through = first_seq + len(keys) - 1

    def add_ingest(self, seq: int, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """An ingest wrote under the number ``seq``, in the ``ranges`` (both ends included)."""
        self._add_ranges(seq, [(first, last + b"\0") for first, last in ranges], "ingested")
        self.through = max(self.through, seq)

    def add_range_delete(self, seq: int, start: bytes, end: bytes) -> None:
        """The row ``seq`` deleted the range ``[start, end)``. Its key was added already, or will be."""
        self._add_ranges(seq, [(start, end)], "written")

    def _add_ranges(self, seq: int, ranges: Sequence[tuple[bytes, bytes]], reason: str) -> None:
        spans, nbytes = KeySpans(), 0
        for start, end in ranges:
            spans.add(start, end)
            nbytes += INGESTED_RANGE_BYTES + len(start) + len(end)
        self._ingests.append((seq, spans, nbytes, reason))
        self.nbytes += nbytes

    def prune(self, seq: int) -> None:
        """No transaction is open that does not see rows up to ``seq``."""
        self.floor = max(self.floor, seq)
        stop = bisect_right(self._chunks, seq, key=_last_seq)
        if stop:
            self.nbytes -= sum(chunk.nbytes for chunk in self._chunks[:stop])
            del self._chunks[:stop]
        while self._ingests and self._ingests[0][0] <= seq:
            self.nbytes -= self._ingests.pop(0)[2]

    def conflict(self, points: Collection[bytes], spans: KeySpans | None, after: int) -> Conflict | None:
        """A key among ``points`` or in ``spans`` that was written above number ``after``, which is not below the
        floor."""
        return next((found for _, found in self.steps(points, spans, after) if found is not None), None)

    def steps(
        self, points: Collection[bytes], spans: KeySpans | None, after: int
    ) -> Iterator[tuple[int, Conflict | None]]:
        """As `conflict`, in steps of a chunk, or of so many keys beside the ranges that were written: up to which
        number all is judged, and what was found. Rows added meanwhile are judged too."""
        while True:
            at = bisect_right(self._chunks, after, key=_last_seq)
            if at < len(self._chunks):
                chunk = self._chunks[at]
                through = chunk.last_seq  # of now: it may grow until the next step
                key = chunk.written(points, spans, after)
                if key is not None:
                    yield through, Conflict(key, "written")
            elif (through := self.through) <= after:
                return
            for found in self._met_by_ranges(points, spans, after, through):
                yield after, found
            after = through
            yield after, None

    def _met_by_ranges(
        self, points: Collection[bytes], spans: KeySpans | None, after: int, through: int
    ) -> Iterator[Conflict | None]:
        """The steps of those written with numbers in ``(after, through]``, many ranges at once."""
        written: dict[str, list[tuple[bytes, bytes]]] = {}
        for seq, ranges, _, reason in self._ingests:
            if after < seq <= through:
                written.setdefault(reason, []).extend(zip(ranges.starts, ranges.ends, strict=True))
        for reason, all_ranges in written.items():
            for at in range(0, len(all_ranges), STEP_RANGES):
                some = KeySpans()
                for start, end in all_ranges[at : at + STEP_RANGES]:
                    some.add(start, end)
                for key in _met(points, spans, some):
                    yield None if key is None else Conflict(key, reason)


def _last_seq(chunk: WrittenRows) -> int:
    return chunk.last_seq


def _met(points: Collection[bytes], spans: KeySpans | None, ranges: KeySpans) -> Iterator[bytes | None]:
    """A key that was read and that ``ranges`` may have; ``None`` after each step without one."""
    for number, key in enumerate(points, 1):
        if key in ranges:
            yield key
        elif not number % STEP_KEYS:
            yield None
    if spans is None:
        return
    for number, (start, end) in enumerate(zip(spans.starts, spans.ends, strict=True), 1):
        at = bisect_right(ranges.ends, start)
        if at < len(ranges.starts) and ranges.starts[at] < end:
            yield max(start, ranges.starts[at])
        elif not number % STEP_KEYS:
            yield None
