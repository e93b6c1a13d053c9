"""`Contents`: the keys that an ``upsert`` collection has, and their values: what a relay needs to take old ones away.

They are in memory, as many bytes as ``state_bytes`` allows. Asking the collection for each batch's keys instead would
take a read of all its row groups that hold one of them, for each batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import binary_array, mask_of, number_array, numbers_of
from slate_async.collections.core.updates import DIFF
from slate_async.errors import InvalidError

EXPIRY = pa.timestamp("ms", "UTC")
STATE_BYTES = 256 << 20
ROW_BYTES = 250
"""What a key takes besides its bytes and those of its value, about."""
NEVER = np.iinfo(np.int64).max
_COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("expire_time", EXPIRY)])


class Contents:
    """See the module docstring. ``state_bytes``: of keys, values and what they take besides; ``name``: of the
    collection, for errors."""

    def __init__(self, state_bytes: int, name: str) -> None:
        self._limit = state_bytes
        self._name = name
        self._rows: dict[bytes, tuple[bytes, int]] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def load(self, snapshot: pa.RecordBatch) -> None:
        """Add rows of a snapshot of the collection. Raises `InvalidError` for a key that is not there once."""
        wrong = np.flatnonzero(numbers_of(snapshot.column(DIFF)) != 1)
        if len(wrong):
            row = int(wrong[0])
            key, diff = snapshot.column("key")[row].as_py(), snapshot.column(DIFF)[row].as_py()
            raise InvalidError(f"{self._name} holds a row of the key {key!r} {diff} times: no relay has written that")
        before = len(self._rows)
        self.put(snapshot.select(_COLUMNS.names))
        if len(self._rows) < before + snapshot.num_rows:
            raise InvalidError(f"{self._name} holds two values of one key, among those from {_first(snapshot)!r} on")

    def get(self, keys: pa.Array) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch]:
        """Which of ``keys`` are there, and their rows."""
        asked = keys.to_pylist()
        rows = list(map(self._rows.get, asked))
        known = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
        found = [row for row in rows if row is not None]
        expiries = np.fromiter((expire_ms for _, expire_ms in found), np.int64, len(found))
        arrays = [
            binary_array([key for key, row in zip(asked, rows, strict=True) if row is not None]),
            binary_array([value for value, _ in found]),
            number_array(expiries, EXPIRY, missing=expiries == NEVER),
        ]
        return known, pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS)

    def put(self, rows: pa.RecordBatch) -> None:
        """Set the keys of ``rows``, each of which is there once. Raises `InvalidError` beyond the limit."""
        self.remove(rows.column("key"))
        expiry = rows.column("expire_time")
        numbers = np.where(mask_of(expiry.is_null()), NEVER, numbers_of(expiry.view(pa.int64())))
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        self._rows.update(zip(keys, zip(values, numbers.tolist(), strict=True), strict=True))
        self.nbytes += sum(map(len, keys)) + sum(map(len, values)) + ROW_BYTES * len(keys)
        if self.nbytes > self._limit:
            raise InvalidError(
                f"the relay to {self._name} keeps {len(self._rows)} keys and values, which take {self.nbytes} bytes of"
                f" memory: more than state_bytes={self._limit}; raise it, or relay with envelope='log'"
            )

    def remove(self, keys: pa.Array) -> None:
        """Take away those of ``keys`` that are there."""
        for key in keys.to_pylist():
            row = self._rows.pop(key, None)
            if row is not None:
                self.nbytes -= len(key) + len(row[0]) + ROW_BYTES


def _first(rows: pa.RecordBatch) -> bytes:
    key: bytes = rows.column("key")[0].as_py()
    return key
