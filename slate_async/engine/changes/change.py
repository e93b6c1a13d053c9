"""What the rows of a change feed become: `Change` objects, record batches."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_array, binary_scalar, mask_array, mask_of, number_array, numbers_of
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.storage.format.ordering import Mask
from slate_async.types import DELETE, NO_END

Op: TypeAlias = Literal["put", "delete", "merge", "delete_range"]
"""What a change did to its key; the n-th is that of rows of kind n. ``"delete_range"``: to all keys from its own
(inclusive) to its value (exclusive)."""

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
OPS: tuple[Op, ...] = get_args(Op)
_OPS = binary_array([op.encode() for op in OPS], pa.string())


class Change(NamedTuple):
    """One row as it was written. Times are seconds since the Unix epoch, exact to the millisecond.

    value: ``None`` of a delete; of a merge the operand; of ``"delete_range"`` the end, ``None`` if it has none
    expire_time: when the row expires, or has expired by now; ``None`` for never. Its expiring is no change of its own
    """

    op: Op
    key: bytes
    value: bytes | None
    seq: int
    create_time: float
    expire_time: float | None

    def touches(self, prefix: bytes) -> bool:
        """Whether it changes keys that begin with ``prefix``."""
        if self.key.startswith(prefix):
            return True
        if self.op != "delete_range" or self.key > prefix:
            return False
        return self.value is None or self.value > prefix


def changes_of(rows: Columns) -> list[Change]:
    """Each row."""
    expires = [NO_EXPIRY] * len(rows) if rows.expire_ms is None else rows.expire_ms.tolist()
    values = rows.values.to_pylist()
    ops, given = _ops_of(rows)
    if given is not None:
        values = [value if known else None for value, known in zip(values, given.tolist(), strict=True)]
    return [
        Change(OPS[op], key, value, seq, create_ms / 1000, None if expire_ms == NO_EXPIRY else expire_ms / 1000)
        for op, key, value, seq, create_ms, expire_ms in zip(
            ops.tolist(),
            rows.keys.to_pylist(),
            values,
            rows.seqs.tolist(),
            rows.create_ms.tolist(),
            expires,
            strict=True,
        )
    ]


def _ops_of(rows: Columns) -> tuple[npt.NDArray[np.int8], Mask | None]:
    """The place of each row's op in `OPS`, and which rows have a value to give; ``None``: all."""
    ops = rows.kinds.astype(np.int8)
    deleted = rows.kinds == DELETE
    if not deleted.any():
        return ops, None
    ranges = deleted & (numbers_of(pc.binary_length(rows.values)) > 0)
    if not ranges.any():
        return ops, ~deleted
    ops[ranges] = OPS.index("delete_range")
    endless = mask_of(pc.equal(rows.values, binary_scalar(NO_END)))
    return ops, ~deleted | (ranges & ~endless)


def record_batch(rows: Columns) -> RecordBatch:
    """All rows as one batch of `CHANGE_SCHEMA`; the value of a delete, and of a range without an end, is null."""
    numbers, given = _ops_of(rows)
    values = rows.values
    if given is not None:
        values = pc.if_else(mask_array(given), values, pa.nulls(1, pa.binary())[0])
    ops = pa.DictionaryArray.from_arrays(number_array(numbers), _OPS).dictionary_decode()
    batch: RecordBatch = pa.record_batch(
        [ops, rows.keys, values, number_array(rows.seqs), number_array(rows.create_ms, _TIME), _expiries(rows)],
        schema=CHANGE_SCHEMA,
    )
    return batch


def _expiries(rows: Columns) -> pa.Array:
    if rows.expire_ms is None:
        return pa.nulls(len(rows), _TIME)
    return number_array(rows.expire_ms, _TIME, missing=rows.expire_ms == NO_EXPIRY)
