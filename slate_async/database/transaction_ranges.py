"""`OwnRanges`: the ranges of keys that a transaction deletes when it commits.

Invariant: what the transaction writes to single keys comes after the ranges, of which no key has an earlier write of
it. So a commit writes the ranges first.
"""

from __future__ import annotations

from slate_async.database.transaction_operands import OwnWrite
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.key_spans import KeySpans
from slate_async.engine.write.batch import BatchRows
from slate_async.types import ABOVE_ALL_KEYS, DELETE, FIRST_KEY, NO_END


class OwnRanges:
    """See the module docstring. ``spans``: their keys."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans = KeySpans()

    def __contains__(self, key: bytes) -> bool:
        return key in self.spans

    def __len__(self) -> int:
        """As many rows they become."""
        return len(self.spans.starts)

    def add(self, first: bytes, until: bytes, writes: dict[bytes, OwnWrite]) -> None:
        """Key and value of a row that deletes a range, after ``writes``, which lose what it deletes."""
        end = ABOVE_ALL_KEYS if until == NO_END else until
        self.spans.add(first, end)
        for key in [key for key in writes if first <= key < end]:
            del writes[key]

    def leave(self, span: KeyRange) -> list[KeyRange]:
        """The parts of ``span`` that none of them covers, in the order of keys."""
        first, stop = span.start or FIRST_KEY, ABOVE_ALL_KEYS if span.end is None else span.end
        if first >= stop:
            return []
        left = KeySpans()
        left.add(first, stop)
        for start, end in zip(self.spans.starts, self.spans.ends, strict=True):
            left.remove(start, end)
        parts = zip(left.starts, left.ends, strict=True)
        return [KeyRange(start, None if end == ABOVE_ALL_KEYS else end) for start, end in parts]

    def before(self, rows: BatchRows) -> BatchRows:
        """``rows``, after those that delete the ranges."""
        keys, values, kinds, lives, nbytes, _ = rows
        starts = self.spans.starts
        ends = [NO_END if end == ABOVE_ALL_KEYS else end for end in self.spans.ends]
        return BatchRows(
            [*starts, *keys],
            [*ends, *values],
            bytes([DELETE] * len(starts)) + kinds,
            None if lives is None else [*[None] * len(starts), *lives],
            nbytes + sum(map(len, starts)) + sum(map(len, ends)),
            len(starts),
        )
