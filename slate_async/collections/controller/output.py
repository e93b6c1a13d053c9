"""`MergedOutput`: sorted, consolidated updates written as one merged batch, and what a version says of it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from slate_async.collections.core import ordering
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.names import MergedName
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.times import Times
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.merged import MergedWriter, Stored
from slate_async.collections.writer.batches import sum_of_diffs
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Offload

MOST_TIMES = 1 << 20
"""Different times are counted up to it."""


class MergedOutput:
    """Writes one batch. Of no use after an error, or after a cancelled call; what it put is named by nothing then."""

    def __init__(
        self,
        store: ObjectStore,
        schema: UpdateSchema,
        name: MergedName,
        bounds: Bounds,
        offload: Offload,
        part_bytes: int,
    ) -> None:
        self._schema = schema
        self._name = name
        self._bounds = bounds
        self._offload = offload
        self._writer = MergedWriter(store, schema, name, offload, part_bytes=part_bytes)
        self._rows = 0
        self._keys = 0
        self._diff_sum = 0
        self._last: Key | None = None
        self._times = schema.times(schema.empty())

    async def add(self, updates: pa.RecordBatch) -> None:
        """Append ``updates``, all of which sort after the last ones. Raises `UnavailableError`, `InvalidError`."""
        if updates.num_rows:
            await self._offload.run(partial(self._count, updates))
            await self._writer.add(updates)

    async def finish(self) -> MergedBatch:
        """The batch, all of which is stored now. One without rows has no object. Raises as `add`."""
        stored = await self._writer.finish() if self._rows else Stored(0, 0, 0, 0)
        return MergedBatch(
            name=str(self._name),
            bounds=self._bounds,
            rows=stored.rows,
            keys=self._keys,
            times=len(self._times[0]),
            diff_sum=self._diff_sum,
            nbytes=stored.nbytes,
            crc=stored.crc,
            parts=stored.parts,
            unknown={},  # which can be sent to another process
        )

    def _count(self, updates: pa.RecordBatch) -> None:
        self._rows += updates.num_rows
        self._diff_sum += sum_of_diffs(updates)
        data = ordering.key_columns(updates, self._schema)[: len(self._schema.data)]
        self._keys += int(ordering.differences(data).sum()) - (self._last == ordering.key_of(data, 0))
        self._last = ordering.key_of(data, -1)
        if len(self._times[0]) < MOST_TIMES:
            found = zip(self._times, self._schema.times(updates), strict=True)
            self._times = _distinct(tuple(np.concatenate(columns) for columns in found))


def _distinct(times: Times) -> Times:
    """Each of ``times`` once, of the first `MOST_TIMES`. Arrow's own grouping would import pandas."""
    if len(times) == 1:
        return (np.unique(times[0])[:MOST_TIMES],)
    order = np.lexsort(times)
    ordered = [column[order] for column in times]
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(order)), np.bool_), differs]))
    return tuple(column[starts[:MOST_TIMES]] for column in ordered)
