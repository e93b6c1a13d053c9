"""What a delta of a collection of keys and values changes in a database: pure, checked against what is there.

Invariant: a key of the collection is there at most once, and the database has what the collection had before the delta.
Whatever breaks that is an error which names the key, and nothing of the delta is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slate_async.bridges.contents import EXPIRY
from slate_async.bridges.joined import shown
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import DIFF, UpdateSchema
from slate_async.errors import InvalidError

_COLUMNS = {"key": pa.binary(), "value": pa.binary(), "expire_time": EXPIRY}


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What became of a key. ``expire_ms``: when ``value`` expires.

    old: the value that is taken away, or ``None``; ``old_expire_ms``: when it expires, or has expired
    new: the value that it has now, or ``None``; ``expire_ms``: when that expires
    """

    key: bytes
    old: bytes | None
    old_expire_ms: int | None
    new: bytes | None
    expire_ms: int | None


def check_columns(data: type[bytes] | pa.Schema, name: str) -> None:
    """Raise `InvalidError` unless ``data`` are keys and values, with an expiry or without."""
    found = {field.name: field.type for field in data} if isinstance(data, pa.Schema) else {}
    needed = {column: kind for column, kind in _COLUMNS.items() if column != "expire_time" or column in found}
    if found != needed:
        raise InvalidError(
            f"a database takes a collection of key and value (binary), and expire_time ({EXPIRY}) if it has that;"
            f" {name} has {shown(data)}"
        )


def key_changes(updates: pa.Table, name: str) -> list[KeyChange]:
    """The keys that ``updates`` change, sorted. Raises `InvalidError` for a key that would be there more often than
    once, or less often than never."""
    sums = _sums(updates, name)
    if sums is None:
        return []
    keys, values, diffs = (sums.column(column).to_pylist() for column in ("key", "value", DIFF))
    expiries = [None] * len(keys)
    if "expire_time" in sums.schema.names:
        expiries = sums.column("expire_time").cast(pa.int64()).to_pylist()
    changes: dict[bytes, KeyChange] = {}
    for key, value, expire_ms, diff in zip(keys, values, expiries, diffs, strict=True):
        if value is None or key is None:
            raise InvalidError(f"{name} holds a row without a key or a value: {key!r}, {value!r}")
        change = changes.get(key) or KeyChange(key, None, None, None, None)
        if diff == 1 and change.new is None:
            changes[key] = KeyChange(key, change.old, change.old_expire_ms, value, expire_ms)
        elif diff == -1 and change.old is None:
            changes[key] = KeyChange(key, value, expire_ms, change.new, change.expire_ms)
        else:
            raise InvalidError(
                f"{name} changes how often the key {key!r} has the value {_cut(value)} by {diff:+}; in a database a key"
                " is there once or not at all"
            )
    return list(changes.values())


def check_applies(changes: Sequence[KeyChange], there: Sequence[bytes | None], name: str, now_ms: int) -> None:
    """Raise `InvalidError`, which names the key, unless the values ``there`` are those that ``changes`` begin with.

    Values that have expired may be missing."""
    for change, value in zip(changes, there, strict=True):
        expired = change.old_expire_ms is not None and change.old_expire_ms <= now_ms
        if value == change.old or (value is None and expired):
            continue
        if change.old is None:
            raise InvalidError(
                f"{name} adds the key {change.key!r}, which the database has already: it is there twice, or something"
                " else has written it"
            )
        found = "nothing" if value is None else _cut(value)
        raise InvalidError(
            f"{name} takes away {_cut(change.old)} from the key {change.key!r}, but the database has {found}: it is"
            " there less often than never, or something else has written it"
        )


def _sums(updates: pa.Table, name: str) -> pa.RecordBatch | None:
    """How often each row comes or goes, over all times; sorted by key. ``None``: no row does."""
    columns = [column for column in _COLUMNS if column in updates.schema.names]
    schema = UpdateSchema(TimeKind.U64, pa.schema([updates.schema.field(column) for column in columns]))
    batches = updates.select(schema.arrow.names).combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidError(f"a delta of {name} has more than 2 GiB of keys or values, which no database takes at once")
    if not batches:
        return None
    once = np.zeros(updates.num_rows, np.uint64)
    return consolidate(schema.with_times(batches[0], (once,)), schema)


def _cut(value: bytes, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
