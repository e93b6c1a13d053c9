"""What the rows of a scan become: pairs, `Row` objects, record batches.

All take rows ascending by key; with ``reverse`` the last one comes first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from slate_async.format.columns import NO_EXPIRY, Columns, concat
from slate_async.read.record_batch import RecordBatch
from slate_async.types import Row

BATCH_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("seq", pa.uint64())])


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


def batch_of(parts: list[Columns], reverse: bool) -> RecordBatch:
    """All rows of ``parts``, which come in scan order, as one batch."""
    columns = concat(parts[::-1] if reverse else parts)
    if reverse:
        columns = columns.take(np.arange(len(columns) - 1, -1, -1, dtype=np.int64))
    batch: RecordBatch = pa.record_batch([columns.keys, columns.values, pa.array(columns.seqs)], schema=BATCH_SCHEMA)
    return batch
