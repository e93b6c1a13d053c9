"""The rows of a snapshot that is one merged batch in which every data comes once, as in a collection at rest.

They are sorted, and nothing adds to them: so they are given as they are read, a row group at a time, at the snapshot's
time. That they are what the version says of them is checked: a comparison of neighbours, where a merge needs several.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from slate_async.collections.core import ordering
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.ordering import Key
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.sources import Selection, merged_rows
from slate_async.collections.store.merged import MergedSource
from slate_async.errors import CorruptionError

AT_ONCE = 2
"""Row groups of a batch that is read alone are decoded side by side. Of several batches each has one in memory."""


@dataclass(frozen=True, slots=True)
class _Ordered:
    """rows: of which each has other data than the one before, in order; from ``first`` to ``last``"""

    rows: pa.RecordBatch
    first: Key
    last: Key


def has_data_once(batch: MergedBatch) -> bool:
    """Whether no two of its updates are of one data: nothing is to be summed, whatever their times are."""
    return batch.keys == batch.rows


async def rows_alone(
    context: ReaderContext, source: MergedSource, chosen: Selection, object_name: str
) -> AsyncGenerator[pa.RecordBatch]:
    """The chosen rows of ``source``, which `has_data_once`, at the time of the snapshot.

    Raises `CorruptionError` for one that has not, or is not sorted."""
    make = partial(_ordered, chosen, object_name)
    last: Key | None = None
    async with aclosing(merged_rows(context, source, chosen, make, at_once=AT_ONCE)) as found:
        async for group in found:
            if group is None:
                continue
            if last is not None and not last < group.first:
                raise _out_of_order(object_name)
            last = group.last
            yield group.rows


def _ordered(chosen: Selection, object_name: str, table: pa.Table) -> _Ordered | None:
    """The chosen rows of a row group, if there are any; for a worker thread."""
    schema, rows = chosen.schema, chosen.of_sorted(table)
    if not rows.num_rows:
        return None
    data = ordering.key_columns(rows, schema)[: len(schema.data)]
    if not ordering.is_ascending(data):
        raise _out_of_order(object_name)
    rows = schema.with_times(rows, Frontier([chosen.as_of]).advance_by(schema.times(rows)))
    return _Ordered(rows, ordering.key_of(data, 0), ordering.key_of(data, -1))


def _out_of_order(object_name: str) -> CorruptionError:
    return CorruptionError("rows are not in the order of data, each data once", object_name=object_name)
