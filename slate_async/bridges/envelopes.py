"""Envelopes: what the rows of a change feed become as updates of a collection.

``log``: each row as it was written, once: +1. ``upsert``: the rows that are there: a put or delete takes away (-1) what
its key had, a put adds (+1) what it has now.

Invariant: a key that is there in an ``upsert`` collection is there once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.bridges.contents import EXPIRY, Contents
from slate_async.codec.arrays import binary_scalar, mask_array, mask_of, number_array, numbers_of
from slate_async.collections.core.updates import DIFF
from slate_async.errors import InvalidError

Envelope: TypeAlias = Literal["log", "upsert"]
"""How a collection holds a change feed; see `relay_schema`."""

TIME = "_time"
_TIMESTAMP = pa.timestamp("ms", "UTC")
_DATA: dict[Envelope, list[pa.Field]] = {
    "log": [
        pa.field("op", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("create_time", _TIMESTAMP, nullable=False),
        pa.field("expire_time", _TIMESTAMP),
    ],
    "upsert": [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("expire_time", EXPIRY),
    ],
}


def relay_schema(envelope: Envelope) -> pa.Schema:
    """The data columns of a collection that holds a change feed, for ``create(data=…)``.

    ``"log"``: op, key, value, create_time, expire_time of every put and delete, once each. ``"upsert"``: key, value and
    expire_time of the rows that are there. Rows that have expired stay until their key is written again.

    Raises `InvalidError` for another envelope."""
    if envelope not in get_args(Envelope):
        raise InvalidError(f"envelope is 'log' or 'upsert', not {envelope!r}")
    return pa.schema(_DATA[envelope])


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Keys of ``[start, end)``; ``None``: no bound."""

    start: bytes | None
    end: bytes | None

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of ``rows`` whose keys lie in it."""
        if self.start is not None:
            rows = rows.filter(pc.greater_equal(rows.column("key"), binary_scalar(self.start)))
        if self.end is not None:
            rows = rows.filter(pc.less(rows.column("key"), binary_scalar(self.end)))
        return rows


def refuse_range_deletes(rows: pa.RecordBatch) -> None:
    """Raise `InvalidError`, which names the first one, if ``rows`` of a feed delete a range of keys."""
    found = pc.index(rows.column("op"), "delete_range").as_py()
    if found >= 0:
        row = rows.slice(found, 1).to_pylist()[0]
        end = "every key behind it" if row["value"] is None else repr(row["value"])
        raise InvalidError(
            f"a relay does not follow range deletes, and change {row['seq']} deletes the keys from {row['key']!r} to"
            f" {end}; delete key by key in a database that is relayed, or relay to a new collection from a snapshot"
        )


class Enveloping(Protocol):
    """Turns rows of a feed, in their order, into updates."""

    @property
    def nbytes(self) -> int:
        """Memory that it takes between two calls."""
        ...

    def updates(self, rows: pa.RecordBatch, snapshot_seq: int) -> pa.RecordBatch:
        """The updates of ``rows``, which come after those of the call before. Rows up to ``snapshot_seq`` are a
        snapshot."""
        ...


class LogEnvelope:
    """Keeps nothing. Rows of a snapshot stand at their own numbers: so many were written there and are known."""

    @property
    def nbytes(self) -> int:
        """See `Enveloping`."""
        return 0

    def updates(self, rows: pa.RecordBatch, snapshot_seq: int) -> pa.RecordBatch:
        """See `Enveloping`."""
        data = [rows.column(field.name) for field in _DATA["log"]]
        return _updates("log", data, numbers_of(rows.column("seq")), 1)


class UpsertEnvelope:
    """Keeps what is there. Rows of a snapshot stand at its number: before, something else was there, and is not known.

    contents: what the collection has where the first rows begin
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def nbytes(self) -> int:
        """See `Enveloping`."""
        return self._contents.nbytes

    def updates(self, rows: pa.RecordBatch, snapshot_seq: int) -> pa.RecordBatch:
        """See `Enveloping`. Raises `InvalidError` beyond ``state_bytes``, and for operands: what a key has now would
        not be what its value says."""
        _refuse_merges(rows)
        rows = rows.take(pc.sort_indices(rows.column("key")))  # which is stable, so the rows of a key stay in order
        times = np.maximum(numbers_of(rows.column("seq")), np.uint64(snapshot_seq))
        is_put = mask_of(rows.column("value").is_valid())
        key, data = rows.column("key"), rows.select(["key", "value", "expire_time"])
        again = np.zeros(len(rows) + 1, np.bool_)  # whether the row before has the same key
        again[1:-1] = mask_of(pc.equal(key.slice(1), key.slice(0, max(len(rows) - 1, 0))))
        first, last = ~again[:-1], ~again[1:]
        overwritten = np.flatnonzero(is_put[:-1] & again[1:-1])
        known, old = self._contents.get(key.filter(mask_array(first)))
        self._contents.put(data.filter(mask_array(last & is_put)))
        self._contents.remove(key.filter(mask_array(last & ~is_put)))
        parts = [
            _updates("upsert", old.columns, times[first][known], -1),
            _updates("upsert", data.take(number_array(overwritten)).columns, times[overwritten + 1], -1),
            _updates("upsert", data.filter(mask_array(is_put)).columns, times[is_put], 1),
        ]
        return pa.concat_batches(parts)


def _refuse_merges(rows: pa.RecordBatch) -> None:
    found = pc.index(rows.column("op"), pa.scalar("merge", pa.string())).as_py()
    if found >= 0:
        key, seq = rows.column("key")[found].as_py(), rows.column("seq")[found].as_py()
        raise InvalidError(
            f"the envelope 'upsert' takes no operands, and {key[:64]!r} was merged at sequence number {seq}; relay with"
            " the envelope 'log', or use put and update for rows that are relayed"
        )


def _updates(envelope: Envelope, data: Iterable[pa.Array], times: npt.NDArray[np.uint64], diff: int) -> pa.RecordBatch:
    """Updates of the columns of ``envelope``, each ``diff`` times."""
    ends = [pa.field(TIME, pa.uint64(), nullable=False), pa.field(DIFF, pa.int64(), nullable=False)]
    diffs = number_array(np.full(len(times), diff, np.int64))
    return pa.RecordBatch.from_arrays([*data, number_array(times), diffs], schema=pa.schema([*_DATA[envelope], *ends]))
