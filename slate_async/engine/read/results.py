"""What the rows of a scan become: pairs, `Row` objects, record batches.

All take rows ascending by key; with ``reverse`` the last one comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import number_array
from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.types import Row, RowHit

BATCH_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("seq", pa.uint64())])
_TIME = pa.timestamp("ms", tz="UTC")
BATCH_SCHEMA_WITH_TIMES = pa.schema([*BATCH_SCHEMA, ("create_time", _TIME), ("expire_time", _TIME)])


def pairs_of(columns: Columns, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each row."""
    keys, values = columns.keys.to_pylist(), columns.values.to_pylist()
    if reverse:
        keys.reverse()
        values.reverse()
    return zip(keys, values, strict=True)


def rows_of(columns: Columns, reverse: bool) -> Iterator[Row]:
    """Each row with its sequence number and times."""
    expires = [NO_EXPIRY] * len(columns) if columns.expire_ms is None else columns.expire_ms.tolist()
    rows = [
        Row(key, value, seq, create_ms / 1000, None if expire_ms == NO_EXPIRY else expire_ms / 1000)
        for key, value, seq, create_ms, expire_ms in zip(
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            columns.seqs.tolist(),
            columns.create_ms.tolist(),
            expires,
            strict=True,
        )
    ]
    return reversed(rows) if reverse else iter(rows)


def rows_with(hits: Iterable[tuple[bytes, RowHit]]) -> Iterator[Row]:
    """Each row, as users get it."""
    for key, (value, seq, _, expire_ms, create_ms) in hits:
        yield Row(key, value, seq, create_ms / 1000, None if expire_ms == NO_EXPIRY else expire_ms / 1000)


def batch_of(parts: list[Columns], reverse: bool, times: bool = False) -> RecordBatch:
    """All rows of ``parts``, which come in scan order, as one batch; with ``times``, of `BATCH_SCHEMA_WITH_TIMES`."""
    columns = concat(parts[::-1] if reverse else parts)
    if reverse:
        columns = columns.take(np.arange(len(columns) - 1, -1, -1, dtype=np.int64))
    arrays = [columns.keys, columns.values, number_array(columns.seqs)]
    if times:
        arrays += [number_array(columns.create_ms, _TIME), _expire_times(columns)]
    batch: RecordBatch = pa.record_batch(arrays, schema=BATCH_SCHEMA_WITH_TIMES if times else BATCH_SCHEMA)
    return batch


def _expire_times(columns: Columns) -> pa.Array:
    """When rows expire; null = never."""
    if columns.expire_ms is None:
        return pa.nulls(len(columns), _TIME)
    return number_array(columns.expire_ms, _TIME, missing=columns.expire_ms == NO_EXPIRY)
