"""`WriteBatch`: rows that become visible and durable together, or not at all."""

from __future__ import annotations

from slate_async.types import DELETE, PUT
from slate_async.write.rows import BytesLike, Duration, own_key, own_value, ttl_ms


class WriteBatch:
    """Collects puts and deletes. Later ones win over earlier ones of the same key. May be written repeatedly.

    Keys and values are checked and copied at the call (`InvalidError`, a ``ValueError``)."""

    __slots__ = ("keys", "kinds", "nbytes", "ttls_ms", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.kinds = bytearray()
        self.ttls_ms: list[int | None] | None = None
        self.nbytes = 0

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Set ``key``. With ``ttl`` (seconds or timedelta) it vanishes that long after the batch is written."""
        key, value = own_key(key), own_value(value)
        life = None if ttl is None else ttl_ms(ttl)
        if life is not None and self.ttls_ms is None:
            self.ttls_ms = [None] * len(self.keys)
        if self.ttls_ms is not None:
            self.ttls_ms.append(life)
        self.keys.append(key)
        self.values.append(value)
        self.kinds.append(PUT)
        self.nbytes += len(key) + len(value)

    def delete(self, key: BytesLike) -> None:
        """Remove ``key``; no error if it is not there."""
        key = own_key(key)
        if self.ttls_ms is not None:
            self.ttls_ms.append(None)
        self.keys.append(key)
        self.values.append(b"")
        self.kinds.append(DELETE)
        self.nbytes += len(key)

    def __len__(self) -> int:
        return len(self.keys)

    def clear(self) -> None:
        """Empty the batch for reuse."""
        self.keys, self.values, self.kinds = [], [], bytearray()
        self.ttls_ms, self.nbytes = None, 0

    def copy(self) -> WriteBatch:
        """A batch of its own with the same rows."""
        twin = WriteBatch()
        twin.keys, twin.values, twin.kinds = self.keys.copy(), self.values.copy(), self.kinds.copy()
        twin.ttls_ms = None if self.ttls_ms is None else self.ttls_ms.copy()
        twin.nbytes = self.nbytes
        return twin

    def __repr__(self) -> str:
        return f"<WriteBatch of {len(self)} rows, {self.nbytes} bytes>"
