"""Merging sorted batches in bounded memory: what can be given out, and which source is to be read next.

Each source gives slices of one sorted, consolidated batch. Times are advanced to ``since`` as a slice comes in. All
rows before the *cut*, the smallest last key of a source that goes on, are complete: no source can add to them. They
are sorted and consolidated together, and given out. So a source is read when all of its rows are at its cut.

The cut's key is the data and the first coordinate of the time, because advancing keeps the order of these in a source;
that of a second coordinate it may change. Rows at the cut are consolidated before more are read. So data with more
times than fit need no more memory than others: only updates of one data and one first coordinate stay together.

Invariant: slices that are given out are sorted, consolidated, and each after the one before it.
Ordering rule: `feed` or `end` each source that `wanted` names, then `take`.

Source: `Spine` and `Merger` of differential dataflow.

Rule C1 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from slate_async.collections.core import ordering
from slate_async.collections.core.consolidate import consolidate, fits
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.updates import DIFF, UpdateSchema
from slate_async.errors import CorruptionError, InternalError


@dataclass(slots=True)
class _Source:
    """name: of its object, for errors; rows: those not given out yet; last: the largest key that it gave, with the
    difference of its last row"""

    name: str
    rows: pa.RecordBatch
    columns: list[pa.Array]
    last: tuple[Key, int] | None = None
    ended: bool = False
    at_cut: bool = field(default=True)
    """Whether all rows have one key of the cut's columns."""


class BoundedMerge:
    """One merge of sorted sources.

    since: times are advanced to it (rule C1)
    names: of the sources' objects, of which errors speak
    keep: sums that do not fit int64 stay in several updates; otherwise `take` raises `SumError` for one
    """

    def __init__(self, schema: UpdateSchema, since: Frontier, names: Sequence[str], *, keep: bool = True) -> None:
        self._keep = keep
        self._schema = schema
        self._since = since
        self._cut_columns = len(schema.data) + 1
        empty = schema.empty()
        columns = ordering.key_columns(empty, schema)
        self._sources = [_Source(name, empty, columns) for name in names]

    @property
    def wanted(self) -> list[int]:
        """Numbers of the sources that are to be read before the next `take`: those without rows, or else those of which
        all rows are at the cut."""
        going_on = [(number, source) for number, source in enumerate(self._sources) if not source.ended]
        if empty := [number for number, source in going_on if not source.rows.num_rows]:
            return empty
        cut = self._cut()
        return [number for number, source in going_on if source.at_cut and self._cut_key(source, -1) == cut]

    @property
    def is_done(self) -> bool:
        """Whether everything was given out."""
        return all(source.ended and not source.rows.num_rows for source in self._sources)

    @property
    def buffered_bytes(self) -> int:
        """What the rows that wait take, beside slices that they are a part of."""
        return sum(source.rows.nbytes for source in self._sources)

    def feed(self, number: int, rows: pa.RecordBatch) -> None:
        """The next slice of source ``number``, of any size. Raises `CorruptionError` if it is not sorted."""
        source = self._sources[number]
        if source.ended:
            raise InternalError(f"source {source.name} of a merge goes on after its end")
        if not rows.num_rows:
            return
        self._check_order(source, rows)
        rows = self._schema.with_times(rows, self._since.advance_by(self._schema.times(rows)))
        source.rows = _joined([source.rows, rows])
        self._shrink_to_cut(source)

    def end(self, number: int) -> None:
        """Source ``number`` has no more slices."""
        self._sources[number].ended = True

    def take(self) -> pa.RecordBatch:
        """All rows before the cut, maybe none, sorted and consolidated. After an error it is of no use."""
        if self.wanted:
            raise InternalError("a merge gives nothing out before the sources that it wants were read")
        cut = self._cut()
        complete = []
        for source in self._sources:
            count = source.rows.num_rows if cut is None else ordering.rows_before(source.columns, cut)
            if count:
                complete.append(source.rows.slice(0, count))
                source.rows = source.rows.slice(count)
                self._shrink_to_cut(source)
        if not complete:
            return self._schema.empty()
        return consolidate(_joined(complete), self._schema, keep=self._keep)

    def step(self, read: Iterable[tuple[int, pa.RecordBatch | None]]) -> pa.RecordBatch:
        """`feed` what was ``read`` of each source, or `end` it, and `take` what can be taken then; for a worker thread.

        Raises as these."""
        for number, rows in read:
            if rows is None:
                self.end(number)
            else:
                self.feed(number, rows)
        return self._schema.empty() if self.wanted else self.take()

    def _check_order(self, source: _Source, rows: pa.RecordBatch) -> None:
        columns = ordering.key_columns(rows, self._schema)
        first, diffs = (ordering.key_of(columns, 0), rows.column(DIFF))
        if not ordering.is_sorted(columns) or not _may_follow(source.last, (first, diffs[0].as_py())):
            raise CorruptionError("rows are not in the order of data and time", object_name=source.name)
        source.last = ordering.key_of(columns, -1), diffs[-1].as_py()

    def _shrink_to_cut(self, source: _Source) -> None:
        """Note whether all rows of ``source`` are of one key of the cut's columns, and consolidate them if so."""
        source.columns = ordering.key_columns(source.rows, self._schema)
        source.at_cut = not source.rows.num_rows or self._cut_key(source, 0) == self._cut_key(source, -1)
        if source.at_cut and source.rows.num_rows > 1:
            source.rows = consolidate(source.rows, self._schema, keep=True)  # a sum on the way; the whole one may fit
            source.columns = ordering.key_columns(source.rows, self._schema)

    def _cut(self) -> Key | None:
        """The smallest last key of a source that goes on, all of which have rows; ``None`` if all have ended."""
        return min((self._cut_key(source, -1) for source in self._sources if not source.ended), default=None)

    def _cut_key(self, source: _Source, row: int) -> Key:
        return ordering.key_of(source.columns[: self._cut_columns], row % source.rows.num_rows)


def _may_follow(last: tuple[Key, int] | None, first: tuple[Key, int]) -> bool:
    """Whether a row with the key and difference of ``first`` may come after ``last``: one of an equal key is there only
    because the sum of both does not fit."""
    return last is None or last[0] < first[0] or (last[0] == first[0] and not fits(last[1] + first[1]))


def merge(
    sources: Sequence[Iterable[pa.RecordBatch]],
    schema: UpdateSchema,
    since: Frontier,
    names: Sequence[str] = (),
    *,
    keep: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The sorted, consolidated updates of ``sources``, each of which gives sorted slices; times advanced to ``since``.

    It never holds more than a slice of each source, what is made of these, and rows of one data and time."""
    merging = BoundedMerge(schema, since, names or [f"source {number}" for number in range(len(sources))], keep=keep)
    slices = [iter(source) for source in sources]
    while not merging.is_done:
        for number in merging.wanted:
            rows = next(slices[number], None)
            if rows is None:
                merging.end(number)
            else:
                merging.feed(number, rows)
        if not merging.wanted:
            given = merging.take()
            if given.num_rows:
                yield given


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    batches = [batch for batch in batches if batch.num_rows] or batches[:1]
    return batches[0] if len(batches) == 1 else one_batch(batches, batches[0].schema)
