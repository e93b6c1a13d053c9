"""Keys of rows: the values of one column or several, none of them null, of which those of two rows are equal or not.

All of it is vectorised: keys become numbers, a column at a time, and rows are looked up by these.

Rule T16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.tables.core.binding import Mask, Spans

Codes = npt.NDArray[np.int64]
NONE = -1
"""The code of a value that no key has."""


def overwritten(keys: pa.Table) -> npt.NDArray[np.int64]:
    """Places of the rows of ``keys`` whose key comes again below, ascending: the last one wins."""
    codes = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        values = pc.unique(column)
        codes = codes * len(values) + pc.index_in(column, value_set=values).to_numpy().astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    _, last = np.unique(codes[::-1], return_index=True)
    again = np.ones(len(codes), np.bool_)
    again[len(codes) - 1 - last] = False
    return np.flatnonzero(again)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys to look for.

    names: of the columns; ``values``: distinct ones of each, sorted
    codes: of each column but the first, the numbers that keys have by the columns up to it, sorted
    """

    names: tuple[str, ...]
    values: tuple[pa.Array, ...]
    codes: tuple[Codes, ...]

    @classmethod
    def of(cls, keys: pa.Table) -> KeySet:
        """The keys in ``keys``, of which there may be several equal ones."""
        values = tuple(_sorted(pc.unique(column)) for column in keys.columns)
        made: list[Codes] = []
        found: Codes | None = None
        for column, distinct in zip(keys.columns, values, strict=True):
            at = _at(column, distinct)
            if found is None:
                found = at
                continue
            found = found * len(distinct) + at
            made.append(np.unique(found))
            found = np.searchsorted(made[-1], found)
        return cls(tuple(keys.column_names), values, tuple(made))

    def matches(self, table: pa.Table) -> Mask:
        """Of each row: is its key one of these? ``table`` has the columns by these names."""
        found: Codes | None = None
        for at, (name, distinct) in enumerate(zip(self.names, self.values, strict=True)):
            codes = _at(table.column(name), distinct)
            if found is None:
                found = codes
                continue
            known = self.codes[at - 1]
            joined = np.where((found == NONE) | (codes == NONE), NONE, found * len(distinct) + codes)
            place = np.minimum(np.searchsorted(known, joined), len(known) - 1)
            found = np.where(known[place] == joined, place, NONE)
        mask: Mask = np.zeros(table.num_rows, np.bool_) if found is None else found != NONE
        return mask

    def may_pass(self, spans: Spans) -> Mask:
        """Of each span: may a row of it have one of these keys?"""
        mask: Mask = np.ones(spans.count, np.bool_)
        for name, distinct in zip(self.names, self.values, strict=True):
            low, high = spans.low(name), spans.high(name)
            if low is None or high is None:
                continue
            known = np.asarray(pc.and_(low.is_valid(), high.is_valid()))
            first = _places(distinct, low, left=True)
            end = _places(distinct, high, left=False)
            mask &= ~known | (end > first)
            empty = spans.all_null(name)
            if empty is not None:
                mask &= ~empty
        return mask


def _sorted(values: pa.Array) -> pa.Array:
    return values.take(pc.sort_indices(values))


def _at(column: pa.ChunkedArray, values: pa.Array) -> Codes:
    """The place of each value in ``values``; `NONE` of others and of nulls."""
    if column.type != values.type:
        column = column.cast(values.type)
    found = pc.fill_null(pc.index_in(column, value_set=values, skip_nulls=True), NONE)
    at: Codes = found.to_numpy().astype(np.int64)
    return at


def _places(values: pa.Array, bounds: pa.Array, *, left: bool) -> Codes:
    """How many of ``values``, which are sorted, are below each of ``bounds``, or with ``left`` off at or below it."""
    bounds = bounds if bounds.type == values.type else bounds.cast(values.type)
    if pa.types.is_integer(values.type):
        of_bounds = pc.fill_null(bounds, 0).to_numpy(zero_copy_only=False)
        numbers = values.to_numpy(zero_copy_only=False)
        return np.asarray(np.searchsorted(numbers, of_bounds, side="left" if left else "right"), np.int64)
    both = pa.table({"at": pa.concat_arrays([values, bounds]), "second": _flags(len(values), len(bounds), left=left)})
    order = pc.sort_indices(both, sort_keys=[("at", "ascending"), ("second", "ascending")]).to_numpy()
    below = np.cumsum(order < len(values))
    places = np.empty(len(order), np.int64)
    places[order] = below
    return places[len(values) :]


def _flags(values: int, bounds: int, *, left: bool) -> pa.Array:
    """Which of equal ones come first: bounds if they are to be below."""
    return pa.array(np.concatenate([np.full(values, left), np.full(bounds, not left)]).astype(np.int8))
