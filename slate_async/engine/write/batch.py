"""`WriteBatch`: rows that become visible and durable together, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from slate_async.arguments import BytesLike, Duration, key_bytes, life_ms, value_bytes
from slate_async.engine.write.range_rows import prefixed_end, range_of_prefix, range_to_delete
from slate_async.types import DELETE, FORMAT_LIMITS, MAX_KEY_BYTES, MAX_VALUE_BYTES, MERGE, PUT, RowLimits

FOREVER = 0
"""In place of a time to live that was given: the row does not expire, whatever the default."""


class BatchRows(NamedTuple):
    """The rows of a batch as columns, which do not change any more. ``ttls_ms`` is ``None`` when no row expires;
    ``nbytes`` counts keys and values; ``ranges`` the rows that delete a range."""

    keys: list[bytes]
    values: list[bytes]
    kinds: bytes
    ttls_ms: list[int | None] | None
    nbytes: int
    ranges: int = 0


BatchStep: TypeAlias = Callable[[object], Awaitable[None]]
"""Writes rows in the transaction that it is given: rows of a typed map, which have to look at indexes."""


class WriteBatch:
    """Collects puts, operands and deletes, also of ranges. Later ones win over earlier ones of the same key. May be
    written repeatedly. Rows of maps, by `Map.within`, come after the others.

    Keys and values are checked and copied at the call (`InvalidError`, a ``ValueError``)."""

    __slots__ = ("_keys", "_kinds", "_nbytes", "_ranges", "_steps", "_ttls_ms", "_values")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._kinds = bytearray()
        self._ttls_ms: list[int | None] | None = None
        self._nbytes = 0
        self._steps: list[BatchStep] = []
        self._ranges = 0

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Set ``key``. With ``ttl`` (seconds or timedelta) it vanishes that long after the batch is written; with
        ``math.inf`` never, whatever the default of the database."""
        # HOT: copy of arguments.key_bytes; 30 ns, 2026-11-23
        if type(key) is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:
            key = key_bytes(key)
        # HOT: copy of arguments.value_bytes; 25 ns, 2026-11-23
        if type(value) is not bytes or len(value) > MAX_VALUE_BYTES:
            value = value_bytes(value)
        if ttl is not None or self._ttls_ms is not None:
            self._add_ttl(None if ttl is None else life_ms(ttl) or FOREVER)
        self._keys.append(key)
        self._values.append(value)
        self._kinds.append(PUT)
        self._nbytes += len(key) + len(value)

    def delete(self, key: BytesLike) -> None:
        """Remove ``key``; no error if it is not there."""
        key = key_bytes(key)
        if self._ttls_ms is not None:
            self._add_ttl(None)
        self._keys.append(key)
        self._values.append(b"")
        self._kinds.append(DELETE)
        self._nbytes += len(key)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None) -> None:
        """Merge ``operand`` into ``key``, by the merge operator of the database that it is written to."""
        self.put(key, operand, ttl=ttl)
        self._kinds[-1] = MERGE

    def _add_step(self, step: BatchStep, nbytes: int) -> None:
        self._steps.append(step)
        self._nbytes += nbytes

    def delete_range(self, start: BytesLike | None, end: BytesLike | None) -> None:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive) that are there before; ``None`` is
        unbounded. One row, however many keys these are."""
        first, until = range_to_delete(start, end)
        if self._ttls_ms is not None:
            self._add_ttl(None)
        self._keys.append(first)
        self._values.append(until)
        self._kinds.append(DELETE)
        self._nbytes += len(first) + len(until)
        self._ranges += 1

    def delete_prefix(self, prefix: BytesLike) -> None:
        """Remove all keys that begin with ``prefix`` and are there before."""
        self.delete_range(*range_of_prefix(prefix))

    def _add_ttl(self, life: int | None) -> None:
        if self._ttls_ms is None:
            self._ttls_ms = [None] * len(self._keys)
        self._ttls_ms.append(life)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values it holds."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._keys) + len(self._steps)

    def clear(self) -> None:
        """Empty the batch for reuse."""
        self._keys, self._values, self._kinds = [], [], bytearray()
        self._ttls_ms, self._nbytes, self._steps, self._ranges = None, 0, [], 0

    def __repr__(self) -> str:
        return f"<WriteBatch of {len(self)} rows, {self.nbytes} bytes>"


def deletion(start: BytesLike | None, end: BytesLike | None) -> WriteBatch:
    """A batch that deletes one range, as of `WriteBatch.delete_range`."""
    batch = WriteBatch()
    batch.delete_range(start, end)
    return batch


def rows_of(batch: WriteBatch, limits: RowLimits = FORMAT_LIMITS, default_life_ms: int | None = None) -> BatchRows:
    """The rows ``batch`` has now, in columns of their own. Raises `InvalidError` if one to put exceeds ``limits``.

    default_life_ms: of rows to put, and of operands, without a time to live"""
    if limits.max_key_bytes < MAX_KEY_BYTES or batch._nbytes > limits.max_value_bytes:
        for key, value, kind in zip(batch._keys, batch._values, batch._kinds, strict=True):
            if kind != DELETE:
                key_bytes(key, limits)
                value_bytes(value, limits)
    lives = _lives(batch, default_life_ms)
    return BatchRows(batch._keys.copy(), batch._values.copy(), bytes(batch._kinds), lives, batch._nbytes, batch._ranges)


def prefixed(batch: WriteBatch, prefix: bytes, default_ttl: Duration | None) -> WriteBatch:
    """The rows ``batch`` has now, with ``prefix`` before each key; those to put without a time to live get
    ``default_ttl``. Raises `InvalidError` for a key that becomes too long."""
    made = WriteBatch()
    made._keys = [key_bytes(prefix + key) for key in batch._keys]
    made._steps = batch._steps.copy()
    made._values, made._kinds = batch._values.copy(), bytearray(batch._kinds)
    made._nbytes = batch._nbytes + len(prefix) * len(made._keys)
    if batch._ranges:
        made._values = [
            prefixed_end(value, prefix) if value and kind == DELETE else value
            for value, kind in zip(batch._values, batch._kinds, strict=True)
        ]
        made._ranges = batch._ranges
    made._ttls_ms = None if batch._ttls_ms is None else batch._ttls_ms.copy()
    if default_ttl is not None:
        default = life_ms(default_ttl) or FOREVER
        given = made._ttls_ms or [None] * len(made._keys)
        made._ttls_ms = [default if life is None else life for life in given]
    return made


def _lives(batch: WriteBatch, default_ms: int | None) -> list[int | None] | None:
    """The time to live of each row, for which the default has been put in."""
    given = batch._ttls_ms
    if given is None:
        return None if default_ms is None else [None if kind == DELETE else default_ms for kind in batch._kinds]
    lives = zip(batch._kinds, given, strict=True)
    return [None if kind == DELETE else default_ms if life is None else life or None for kind, life in lives]
