"""Folds operands that lie together in a flush or a compaction: onto their base, or into one operand.

Of each key only rows up to ``keep_above`` are folded: nobody reads between them. Of these, in the order of writing:

- operands that have expired at ``expired_at_ms`` count for no read, and go;
- the oldest operands of equal expiry become one value with their base: onto a live put if it has that expiry too, and
  onto an absent value (a tombstone, an expired put, or nothing at the bottom) with any;
- other neighbours of equal expiry become one operand, if the operator has one for them.

A fold has the number, write time and expiry of its newest operand. What the operator cannot fold stays.

Rule 34: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import mask_array
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.merge_operators.guarded import Guarded
from slate_async.storage.format.ordering import Mask, Order
from slate_async.types import MERGE, PUT


class Folding:
    """The folds of one flush, or of one compaction's key range. ``bottom``: nothing older lies below.

    folded_seq: the highest number that a fold has so far: up to it versions are missing. 0: nothing was folded"""

    def __init__(self, merging: Guarded, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
        self._merging = merging
        self._keep_above = keep_above
        self._expired_at_ms = expired_at_ms
        self._bottom = bottom
        self.folded_seq = 0

    def fold(self, rows: Columns, order: Order | None, repeats: Mask) -> Columns | None:
        """``rows`` in their order, with their operands folded; ``None``: there is none.

        order: row numbers by key ascending and sequence number descending; ``None``: the rows lie in that order
        repeats: bool[n], in that order: whether a row has the key of the one before it

        Keys must be whole at the ``bottom``; elsewhere the parts of a key are folded apart. A single row stays, unless
        it has expired: an SST of such rows alone would be rewritten over and over."""
        if int(rows.kinds.max()) < MERGE:
            return None
        if len(rows) < 2:
            return rows.take(np.zeros(0, np.int64)) if self._is_over(rows) else None
        places = np.arange(len(rows)) if order is None else order
        work = _Work(rows, places)
        old = rows.seqs[places] <= self._keep_above
        operand = old & (rows.kinds[places] == MERGE)
        for start, stop in _chains(operand, repeats, alone=self._bottom or rows.expire_ms is not None):
            based = stop < len(places) and bool(repeats[stop])
            self._fold_chain(work, range(start, stop), stop if based else None)
        self.folded_seq = max(self.folded_seq, work.folded_seq)
        return work.done()

    def _is_over(self, row: Columns) -> bool:
        expired = row.expire_ms is not None and int(row.expire_ms[0]) <= self._expired_at_ms
        return expired and int(row.seqs[0]) <= self._keep_above

    def _fold_chain(self, work: _Work, chain: range, base: int | None) -> None:
        """The operands at ``chain``, newest first, above the row at ``base``."""
        work.drop([place for place in chain if work.expiry(place) <= self._expired_at_ms])
        operands = [place for place in reversed(chain) if work.expiry(place) > self._expired_at_ms]
        groups = [list(group) for _, group in groupby(operands, work.expiry)]
        if groups and self._settle(work, groups[0], base):
            del groups[0]
        for group in groups:
            if len(group) > 1 and (value := self._merging.folded(work.values(group))) is not None:
                work.put(group, value, MERGE)

    def _settle(self, work: _Work, group: list[int], base: int | None) -> bool:
        """Whether the oldest operands have become a value."""
        value: bytes | None = None
        if base is not None and work.kind(base) == PUT and work.expiry(base) > self._expired_at_ms:
            if work.expiry(base) != work.expiry(group[0]):
                return False
            [value] = work.values([base])
        elif base is None and not self._bottom:
            return False
        made = self._merging.settled(value, work.values(group))
        if made is None:
            return False
        work.put(group, made, PUT)
        return True


class _Work:
    """The rows of a round while they are folded, by their places: which go, and what others become. A row that a new
    value hides stays here; it is shadowed."""

    def __init__(self, rows: Columns, places: npt.NDArray[np.int64]) -> None:
        self._rows = rows
        self._places = places
        self._dropped = np.zeros(len(places), np.bool_)
        self._made: dict[int, tuple[bytes, int]] = {}
        self.folded_seq = 0

    def expiry(self, place: int) -> int:
        """When the row expires."""
        return NO_EXPIRY if self._rows.expire_ms is None else int(self._rows.expire_ms[self._places[place]])

    def kind(self, place: int) -> int:
        """What the row is."""
        return int(self._rows.kinds[self._places[place]])

    def values(self, places: Sequence[int]) -> list[bytes]:
        """Those of the rows at ``places``."""
        return [self._rows.values[int(self._places[place])].as_py() for place in places]

    def drop(self, places: Sequence[int]) -> None:
        """These rows go."""
        self._dropped[list(places)] = True

    def put(self, group: Sequence[int], value: bytes, kind: int) -> None:
        """The newest of ``group``, its last, stands for all of it."""
        self.drop(group[:-1])
        self._made[group[-1]] = (value, kind)
        self.folded_seq = max(self.folded_seq, int(self._rows.seqs[self._places[group[-1]]]))

    def done(self) -> Columns:
        """What it has become, in order."""
        kept = np.flatnonzero(~self._dropped)
        rows = self._rows.take(self._places[kept])
        if not self._made:
            return rows
        made = sorted(self._made.items())
        at = np.searchsorted(kept, [place for place, _ in made])
        mask = np.zeros(len(kept), np.bool_)
        mask[at] = True
        kinds = rows.kinds.copy()
        kinds[at] = [kind for _, (_, kind) in made]
        new = pa.array([value for _, (value, _) in made], pa.binary())
        values = pc.replace_with_mask(rows.values, mask_array(mask), new)
        return replace(rows, values=values, kinds=kinds)


def _chains(operand: Mask, repeats: Mask, *, alone: bool) -> Iterator[tuple[int, int]]:
    """Where operands of one key lie together, from and to (exclusive). Some may be hidden by a newer row, which does no
    harm: they go anyway. ``alone``: also such as have no older row of their key with them."""
    begins = operand.copy()
    begins[1:] &= ~(operand[:-1] & repeats[1:])
    if not alone:
        begins[:-1] &= repeats[1:]
        begins[-1] = False
    for start in np.flatnonzero(begins).tolist():
        stop = start + 1
        while stop < len(operand) and operand[stop] and repeats[stop]:
            stop += 1
        yield start, stop
