"""Arrow record batches as sorted rows, checked column by column.

Columns: ``key`` and ``value`` (binary, or text); ``op`` (optional: ``"put"`` or ``"delete"``); ``expire_time``
(optional: a timestamp, or milliseconds since the Unix epoch; null for never). The value of a delete is null or
whatever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_scalar, mask_array, mask_of, numbers_of
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.errors import InvalidError
from slate_async.types import DELETE, FORMAT_LIMITS, PUT, RowLimits

Duplicates = Literal["error", "last"]
"""What to do with several rows of one key in one call: refuse them, or keep the last one."""
COLUMNS = ("key", "value", "op", "expire_time")
SHOWN_BYTES = 64
"""Of a key in a message."""
COUNTED = "(rows count from 0, as this task got them: from Spark, its part, sorted)"
DISTINCT = (
    "keys are distinct, unless you say which of equal ones counts: in Spark the last by a column, option orderColumn"
    " (order= of bulk_load); elsewhere the last that comes, duplicates='last'"
)


class RowChecker:
    """Turns the batches of one task into `Columns`, in order. ``duplicates``: what equal keys are: an error, or all but
    the last of them dropped. Errors name the row, counted from 0 over all batches, and its key."""

    def __init__(self, create_ms: int, duplicates: Duplicates, limits: RowLimits = FORMAT_LIMITS) -> None:
        self._create_ms = create_ms
        self._duplicates = duplicates
        self._limits = limits
        self._rows = 0
        self._held: Columns | None = None

    def take(self, batch: pa.RecordBatch) -> list[Columns]:
        """The rows that are certain to stay: the last one may be followed by another of its key. Raises
        `InvalidError`."""
        if not batch.num_rows:
            return []
        columns = self._columns(batch)
        columns = self._ordered(columns)
        parts = [] if self._held is None or self._repeats(self._held, columns) else [self._held]
        last = len(columns) - 1
        self._held = columns.slice(last, last + 1)
        self._rows += batch.num_rows
        return [*parts, columns.slice(0, last)] if last else parts

    def finish(self) -> list[Columns]:
        """What is left."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _columns(self, batch: pa.RecordBatch) -> Columns:
        names = batch.schema.names
        wrong = set(names) - set(COLUMNS) or len(set(names)) < len(names)
        if wrong or "key" not in names or "value" not in names:
            raise InvalidError(f"an ingest takes the columns {', '.join(COLUMNS)} (the last two optional), not {names}")
        keys, values = self._binary(batch, "key"), self._binary(batch, "value")
        self._check_keys(keys, values)
        kinds = self._kinds(batch.column("op"), keys) if "op" in names else np.full(len(keys), PUT, np.uint8)
        values = self._check_values(values, kinds, keys)
        expire = self._expiry(batch.column("expire_time"), kinds, keys) if "expire_time" in names else None
        rows = len(keys)
        create = np.full(rows, self._create_ms, np.int64)
        return Columns(keys, values, np.arange(1, rows + 1, dtype=np.uint64), kinds, expire, create)

    def _binary(self, batch: pa.RecordBatch, name: str) -> pa.BinaryArray:
        column = batch.column(name)
        if pa.types.is_fixed_size_binary(column.type) and not column.null_count:
            return _of_fixed_size(column)
        return _cast(column, pa.binary(), name)

    def _kinds(self, column: pa.Array, keys: pa.BinaryArray) -> npt.NDArray[np.uint8]:
        ops = _cast(column, pa.string(), "op")
        deletes = pc.fill_null(pc.equal(ops, "delete"), False)
        known = pc.or_(deletes, pc.fill_null(pc.equal(ops, "put"), False))
        self._refuse(pc.invert(known), keys, lambda at: f"op is {ops[at].as_py()!r}, neither 'put' nor 'delete'")
        return np.where(mask_of(deletes), DELETE, PUT).astype(np.uint8)

    def _check_keys(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        lengths = pc.fill_null(pc.binary_length(keys), 0)
        wrong = pc.or_(pc.equal(lengths, 0), pc.greater(lengths, self._limits.max_key_bytes))
        self._refuse(pc.is_null(keys), keys, lambda at: f"its key is null{_of_value(values[at].as_py())}")
        self._refuse(
            wrong,
            keys,
            lambda at: (
                f"a key has {self._limits.describe_key()}, not {lengths[at].as_py()}"
                f"{'' if keys[at].as_py() else _of_value(values[at].as_py())}"
            ),
        )

    def _check_values(
        self, values: pa.BinaryArray, kinds: npt.NDArray[np.uint8], keys: pa.BinaryArray
    ) -> pa.BinaryArray:
        """Values as they are stored: those of deletes are empty."""
        deleted = kinds == DELETE
        missing = mask_of(values.is_null()) & ~deleted
        self._refuse(mask_array(missing), keys, lambda at: "its value is null, and it is no delete")
        lengths = pc.fill_null(pc.binary_length(values), 0)
        self._refuse(
            pc.greater(lengths, self._limits.max_value_bytes),
            keys,
            lambda at: f"a value has {self._limits.describe_value()}, not {lengths[at].as_py()}",
        )
        return pc.if_else(mask_array(deleted), binary_scalar(b""), values) if deleted.any() else values

    def _expiry(
        self, column: pa.Array, kinds: npt.NDArray[np.uint8], keys: pa.BinaryArray
    ) -> npt.NDArray[np.int64] | None:
        """When rows expire; a delete never does."""
        if column.null_count == len(column):
            return None
        times = column
        if pa.types.is_timestamp(times.type):
            times = _cast(times, pa.timestamp("ms", times.type.tz), "expire_time")
        elif not pa.types.is_integer(times.type):
            raise InvalidError(f"expire_time is a timestamp, or milliseconds, not {times.type}")
        whole = pc.fill_null(_cast(times, pa.int64(), "expire_time"), NO_EXPIRY)
        found: npt.NDArray[np.int64] = numbers_of(whole)
        self._refuse(mask_array(found < 0), keys, lambda at: f"it expires at {int(found[at])} ms, before 1970")
        return np.where(kinds == DELETE, np.int64(NO_EXPIRY), found)

    def _refuse(self, wrong: pa.BooleanArray, keys: pa.BinaryArray, say: Callable[[int], str]) -> None:
        if pc.any(wrong).as_py():
            at = pc.index(wrong, True).as_py()
            key = keys[at].as_py()
            named = f", key {_shown(key)}" if key else ""
            raise InvalidError(f"row {self._rows + at}{named}: {say(at)} {COUNTED}", outcome="not_applied")

    def _ordered(self, columns: Columns) -> Columns:
        """``columns`` without repetition inside. Raises if keys fall, or are equal and may not be."""
        keys, rows = columns.keys, len(columns)
        falling = pc.greater(keys.slice(0, rows - 1), keys.slice(1))
        self._refuse_after(falling, keys, "sort rows by key, as bytes, before ingesting them")
        equal = pc.equal(keys.slice(0, rows - 1), keys.slice(1))
        if not pc.any(equal).as_py():
            return columns
        if self._duplicates == "error":
            self._refuse_after(equal, keys, DISTINCT)
        kept = np.append(~mask_of(equal), True)
        return columns.take(np.flatnonzero(kept))

    def _repeats(self, held: Columns, columns: Columns) -> bool:
        """Whether ``columns`` begin with the key of the row before them, which then does not count."""
        before, first = held.keys[0].as_py(), columns.keys[0].as_py()
        if before > first:
            self._say(0, before, first, "sort rows by key, as bytes, before ingesting them")
        if before == first and self._duplicates == "error":
            self._say(0, before, first, DISTINCT)
        return bool(before == first)

    def _refuse_after(self, wrong: pa.BooleanArray, keys: pa.BinaryArray, advice: str) -> None:
        if pc.any(wrong).as_py():
            at = pc.index(wrong, True).as_py()
            self._say(at + 1, keys[at].as_py(), keys[at + 1].as_py(), advice)

    def _say(self, at: int, before: bytes, key: bytes, advice: str) -> None:
        raise InvalidError(
            f"row {self._rows + at}: key {_shown(key)} comes after {_shown(before)}; {advice} {COUNTED}",
            outcome="not_applied",
        )


def _of_value(value: bytes | None) -> str:
    """What tells a row without a key from others."""
    return "" if value is None else f"; its value is {_shown(value)}"


def _shown(key: bytes) -> str:
    """Its first bytes."""
    return f"{key[:SHOWN_BYTES]!r}{'…' if len(key) > SHOWN_BYTES else ''}"


WHAT = {"op": "text", "expire_time": "a time that milliseconds can say"}


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Finer times are cut to milliseconds. Raises `InvalidError`."""
    try:
        return column.cast(options=pc.CastOptions(kind, allow_time_truncate=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = WHAT.get(name, "binary, or has 2 GiB or more in one batch")
        raise InvalidError(f"column {name} is not {what}: {error}", outcome="not_applied") from error


def _of_fixed_size(column: pa.FixedSizeBinaryArray) -> pa.BinaryArray:
    """``column``, without nulls, with offsets and without a copy; a cast takes longer than all else."""
    width, rows = column.type.byte_width, len(column)
    if rows * width >= 2**31:
        raise InvalidError("a column has 2 GiB or more in one batch")
    data = column.buffers()[1].slice(column.offset * width, rows * width)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])
