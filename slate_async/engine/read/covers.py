"""`Covers`: which range deletes hide which rows.

It has *fragments*: neighbouring ranges of keys, each with the sequence numbers of the range deletes that lie over all
of it, the newest first.

A row is hidden from a reader if a range delete that the reader sees lies over its key and is newer than the row. So one
search for the fragment and one look at its numbers tell how new a row has to be, however many range deletes there are.

Invariant: fragment ``i`` is ``[starts[i], starts[i + 1])``; the first one starts below every key, and nothing lies over
the last one. A `Covers` never changes. Rule 35.

Rule 35: docs/design/protocol-rules.md
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.merge import first_row_from, key_at
from slate_async.types import RangeDelete


class Covers:
    """See the module docstring. ``newest_seq``: of its newest range delete, 0 without any."""

    __slots__ = ("newest_seq", "seqs", "starts")

    def __init__(self, deletes: Iterable[RangeDelete] = ()) -> None:
        known = list(deletes)
        self.newest_seq = max((delete.seq for delete in known), default=0)
        self.starts: list[bytes] = [b""]
        self.seqs: list[tuple[int, ...]] = [()]
        edges = [(delete.start, True, delete.seq) for delete in known]
        edges += [(delete.end, False, delete.seq) for delete in known]
        over: list[int] = []  # the numbers of those that lie over the next fragment, the newest first, negated
        for start, here in groupby(sorted(edges), itemgetter(0)):
            for _, begins, seq in here:
                if begins:
                    insort(over, -seq)
                else:
                    del over[bisect_left(over, -seq)]
            seqs = tuple(-seq for seq in over)
            if start == self.starts[-1]:
                self.seqs[-1] = seqs
            elif seqs != self.seqs[-1]:
                self.starts.append(start)
                self.seqs.append(seqs)

    def with_newer(self, delete: RangeDelete) -> Covers:
        """These and ``delete``, which is newer than all of them."""
        made = Covers()
        starts, seqs = self.starts, self.seqs
        first, stop = bisect_right(starts, delete.start) - 1, bisect_left(starts, delete.end)
        inside = list(starts[first:stop])
        inside[0] = delete.start
        over = [(delete.seq, *older) for older in seqs[first:stop]]
        if starts[first] < delete.start:
            inside.insert(0, starts[first])
            over.insert(0, seqs[first])
        ends = stop == len(starts) or starts[stop] > delete.end
        made.starts = [*starts[:first], *inside, *([delete.end] if ends else []), *starts[stop:]]
        made.seqs = [*seqs[:first], *over, *([seqs[stop - 1]] if ends else []), *seqs[stop:]]
        made.newest_seq = delete.seq
        return made

    def up_to(self, seq: int) -> Covers:
        """Those of them with numbers up to ``seq``."""
        if self.newest_seq <= seq:
            return self
        made = Covers()
        made.starts = self.starts
        made.seqs = [tuple(known for known in seqs if known <= seq) for seqs in self.seqs]
        made.newest_seq = max((seqs[0] for seqs in made.seqs if seqs), default=0)
        return made

    def floor(self, key: bytes, max_seq: int) -> int:
        """The number of the newest range delete up to ``max_seq`` that lies over ``key``: rows below it are hidden. 0
        if there is none."""
        seqs = self.seqs[bisect_right(self.starts, key) - 1]
        return _up_to(seqs, max_seq) if seqs else 0

    def meets(self, span: KeyRange) -> bool:
        """Whether a range delete may lie over some key of ``span``."""
        first = 0 if span.start is None else bisect_right(self.starts, span.start) - 1
        stop = len(self.starts) if span.end is None else bisect_left(self.starts, span.end)
        return any(self.seqs[first:stop])

    def hide(self, first: bytes, last: bytes, newest: int, max_seq: int) -> bool:
        """Whether no reader up to ``max_seq`` sees a row of the keys from ``first`` to ``last``, both included, if none
        is newer than ``newest``."""
        low, high = bisect_right(self.starts, first) - 1, bisect_right(self.starts, last)
        return all(_up_to(seqs, max_seq) > newest for seqs in self.seqs[low:high])

    def visible(self, rows: Columns, max_seq: int) -> Columns:
        """Those of sorted ``rows`` that are not hidden from a reader up to ``max_seq``."""
        count = len(rows)
        if not count:
            return rows
        starts = self.starts
        low, high = bisect_right(starts, key_at(rows, 0)) - 1, bisect_right(starts, key_at(rows, -1))
        if not any(self.seqs[low:high]):
            return rows
        floors = np.zeros(count, np.uint64)
        if high - low > count:
            floors[:] = [self.floor(key, max_seq) for key in rows.keys.to_pylist()]
        else:
            begin = 0
            for number in range(low, high):
                stop = count if number + 1 == high else first_row_from(rows, starts[number + 1])
                floors[begin:stop] = _up_to(self.seqs[number], max_seq)
                begin = stop
        seen = rows.seqs >= floors
        if seen.all():
            return rows
        places = np.flatnonzero(seen)
        if not places.size:
            return rows.slice(0, 0)
        first, last = int(places[0]), int(places[-1]) + 1
        return rows.slice(first, last) if last - first == places.size else rows.take(places)


def _up_to(seqs: Sequence[int], max_seq: int) -> int:
    """The highest of ``seqs``, which fall, that is ``max_seq`` or lower; 0 if there is none."""
    return next((seq for seq in seqs if seq <= max_seq), 0)


NO_COVERS = Covers()
