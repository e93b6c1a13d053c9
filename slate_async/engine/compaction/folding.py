"""Folds operands that lie together in a compaction: onto their base, or into one operand.

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
from slate_async.engine.compaction.rounds import Round, as_round
from slate_async.merge_operators.guarded import Guarded
from slate_async.types import MERGE, PUT


class Folding:
    """The folds of one compaction's key range. ``bottom``: nothing older lies below."""

    def __init__(self, merging: Guarded, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
        self._merging = merging
        self._keep_above = keep_above
        self._expired_at_ms = expired_at_ms
        self._bottom = bottom

    def fold(self, found: Round) -> Round:
        """``found``, whose keys are whole, with its operands folded. A single row may be a part of its key: it
        stays."""
        rows = found.rows
        if len(rows) < 2 or int(rows.kinds.max()) < MERGE:
            return found
        places = np.arange(len(rows)) if found.order is None else found.order
        work = _Work(rows, places)
        old = rows.seqs[places] <= self._keep_above
        operand = old & (rows.kinds[places] == MERGE)
        for start, stop in _chains(operand, found.repeats):
            based = stop < len(places) and bool(found.repeats[stop])
            self._fold_chain(work, range(start, stop), stop if based else None)
        return work.done()

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

    def done(self) -> Round:
        """What it has become, in order."""
        kept = np.flatnonzero(~self._dropped)
        rows = self._rows.take(self._places[kept])
        if not self._made:
            return as_round(rows) if len(rows) else Round(rows, None, np.zeros(0, np.bool_))
        made = sorted(self._made.items())
        at = np.searchsorted(kept, [place for place, _ in made])
        mask = np.zeros(len(kept), np.bool_)
        mask[at] = True
        kinds = rows.kinds.copy()
        kinds[at] = [kind for _, (_, kind) in made]
        new = pa.array([value for _, (value, _) in made], pa.binary())
        values = pc.replace_with_mask(rows.values, mask_array(mask), new)
        return as_round(replace(rows, values=values, kinds=kinds))


def _chains(operand: npt.NDArray[np.bool_], repeats: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Where operands of one key lie together, from and to (exclusive). Some may be hidden by a newer row, which does no
    harm: they go anyway."""
    begins = operand.copy()
    begins[1:] &= ~(operand[:-1] & repeats[1:])
    for start in np.flatnonzero(begins).tolist():
        stop = start + 1
        while stop < len(operand) and operand[stop] and repeats[stop]:
            stop += 1
        yield start, stop
