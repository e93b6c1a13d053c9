"""What the rows of a change feed become: `Change` objects, record batches."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import mask_array, number_array
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.types import DELETE

Op: TypeAlias = Literal["put", "delete", "merge"]
"""What a change did to its key; the n-th is that of rows of kind n."""

CHANGE_SCHEMA = pa.schema(
    [
        pa.field("op", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.uint64(), nullable=False),
        pa.field("create_time", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("expire_time", pa.timestamp("ms", "UTC")),
    ]
)
_TIME = pa.timestamp("ms", "UTC")
_NAMES: tuple[Op, ...] = get_args(Op)
_OPS = pa.array(_NAMES, pa.string())


class Change(NamedTuple):
    """One row as it was written. Times are seconds since the Unix epoch, exact to the millisecond.

    value: ``None`` of a delete; of a merge the operand
    expire_time: when the row expires, or has expired by now; ``None`` for never. Its expiring is no change of its own
    """

    op: Op
    key: bytes
    value: bytes | None
    seq: int
    create_time: float
    expire_time: float | None


def changes_of(rows: Columns) -> list[Change]:
    """Each row."""
    expires = [NO_EXPIRY] * len(rows) if rows.expire_ms is None else rows.expire_ms.tolist()
    return [
        Change(
            _NAMES[kind],
            key,
            None if kind == DELETE else value,
            seq,
            create_ms / 1000,
            None if expire_ms == NO_EXPIRY else expire_ms / 1000,
        )
        for kind, key, value, seq, create_ms, expire_ms in zip(
            rows.kinds.tolist(),
            rows.keys.to_pylist(),
            rows.values.to_pylist(),
            rows.seqs.tolist(),
            rows.create_ms.tolist(),
            expires,
            strict=True,
        )
    ]


def record_batch(rows: Columns) -> RecordBatch:
    """All rows as one batch of `CHANGE_SCHEMA`; a delete's value is null."""
    deleted = rows.kinds == DELETE
    values = rows.values
    if deleted.any():
        values = pc.if_else(mask_array(deleted), pa.nulls(1, pa.binary())[0], values)
    ops = pa.DictionaryArray.from_arrays(number_array(rows.kinds.astype(np.int8)), _OPS).dictionary_decode()
    batch: RecordBatch = pa.record_batch(
        [ops, rows.keys, values, number_array(rows.seqs), number_array(rows.create_ms, _TIME), _expiries(rows)],
        schema=CHANGE_SCHEMA,
    )
    return batch


def _expiries(rows: Columns) -> pa.Array:
    if rows.expire_ms is None:
        return pa.nulls(len(rows), _TIME)
    return number_array(rows.expire_ms, _TIME, missing=rows.expire_ms == NO_EXPIRY)
