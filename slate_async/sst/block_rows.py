"""The rows of a block as scans want them: from when on every row is seen, and the first few rows of a range.

A short scan reads a few rows of a block that is decoded already, so it must not pay for all of its rows: a key is
found through every `SAMPLE_EVERY`-th key, and only the rows near it become Python objects. A block that is read like
that again and again keeps all of its rows as Python objects, as long as the block cache has room for them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import repeat

import numpy as np
import pyarrow.compute as pc

from slate_async.format.columns import NO_EXPIRY, Columns
from slate_async.types import MERGE, PUT, Stretch

SAMPLE_EVERY = 16
WORTH_LOOKS = 3
"""A block is worth keeping as objects when it is read in part as often as this: about what making all of them takes."""
MOST_ROWS = 1024
"""Blocks of more rows are not kept as objects: making them would take long."""
_OBJECT_BYTES = 48
"""Roughly what a key or a value costs as a Python object, beside its bytes."""


class RowObjects:
    """The keys and values of a block, of which every reader sees every row; a `slate_async.sst.cache.Lookup`."""

    __slots__ = ("_owner", "keys", "nbytes", "used", "values")
    retired = False

    def __init__(self, owner: BlockRows) -> None:
        columns = owner.columns
        self.keys: list[bytes] = columns.keys.to_pylist()
        self.values: list[bytes | None] = columns.values.to_pylist()
        self.nbytes = columns.nbytes + 2 * _OBJECT_BYTES * len(columns)
        self.used = False
        self._owner = owner

    def first(self, start: bytes | None, end: bytes | None, count: int, *, last: bool) -> Stretch:
        """See `BlockRows.first`."""
        keys = self.keys
        low = 0 if start is None else bisect_left(keys, start)
        beyond = len(keys) if end is None else bisect_left(keys, end)
        stop = low + count
        if stop < beyond:
            return keys[low:stop], self.values[low:stop], False, False
        return keys[low:beyond], self.values[low:beyond], False, last or beyond < len(keys)

    def drop(self) -> None:
        """See `slate_async.sst.cache.Lookup`."""
        self._owner.objects = None


class BlockRows:
    """The sorted rows of one block. ``columns.seen_from`` is known; ``objects`` are there while they are kept."""

    __slots__ = ("_looks", "_samples", "columns", "objects")

    def __init__(self, columns: Columns) -> None:
        self.columns = replace(columns, seen_from=_seen_from(columns))
        self.objects: RowObjects | None = None
        self._samples: list[bytes] = columns.keys[::SAMPLE_EVERY].to_pylist()
        self._looks = 0

    def worth_objects(self) -> bool:
        """Whether to make `RowObjects`. Asked after each look that did without."""
        self._looks += 1
        return self._looks == WORTH_LOOKS and self.columns.seen_from is not None and len(self.columns) <= MOST_ROWS

    def first(
        self, start: bytes | None, end: bytes | None, count: int, max_seq: int, now_ms: int, *, last: bool
    ) -> Stretch | None:
        """See `slate_async.read.sources.TableSource.first_rows`, of this block alone.

        ``last``: no later block holds keys of the range. If one does, a stretch may be empty that has not ended: this
        block lies before the range."""
        columns, objects = self.columns, self.objects
        if objects is not None and columns.seen_from is not None and columns.seen_from <= max_seq:
            objects.used = True
            return objects.first(start, end, count, last=last)
        low = 0 if start is None else max(0, bisect_left(self._samples, start) - 1) * SAMPLE_EVERY
        keys: list[bytes] = columns.keys.slice(low, SAMPLE_EVERY + 1 + count).to_pylist()
        skip = 0 if start is None else bisect_left(keys, start)
        stop = skip + count
        if end is not None and keys[-1] >= end:
            beyond = bisect_left(keys, end)
            ended = beyond <= stop
            stop = min(stop, beyond)
        else:
            ended = last and low + len(keys) == len(columns) and len(keys) <= stop
        keys = keys[skip:stop]
        low += skip
        if columns.seen_from is not None and columns.seen_from <= max_seq:
            return keys, columns.values.slice(low, len(keys)).to_pylist(), False, ended
        return _newest(keys, columns.slice(low, low + len(keys)), max_seq, now_ms, ended)


def _seen_from(columns: Columns) -> int | None:
    """See `Columns.seen_from`."""
    if np.any(columns.kinds != PUT) or (columns.expire_ms is not None and np.any(columns.expire_ms != NO_EXPIRY)):
        return None
    keys = columns.keys
    if pc.any(pc.equal(keys[1:], keys[:-1])).as_py():
        return None
    return int(columns.seqs.max())


def _newest(keys: list[bytes], rows: Columns, max_seq: int, now_ms: int, ended: bool) -> Stretch | None:
    """Of each key its newest version up to ``max_seq``. ``None`` if that cannot be told from these rows.

    Older versions of the last key may follow after ``rows``. Either one of these counts, or the key is left out and
    the stretch ends before it, and is asked for again."""
    found: dict[bytes, bytes | None] = {}
    values, kinds, seqs = rows.values.to_pylist(), rows.kinds.tolist(), rows.seqs.tolist()
    expires = repeat(NO_EXPIRY) if rows.expire_ms is None else rows.expire_ms.tolist()
    for key, value, seq, kind, expire_ms in zip(keys, values, seqs, kinds, expires, strict=False):
        if seq <= max_seq and key not in found:
            if kind >= MERGE:
                return None
            found[key] = value if kind == PUT and expire_ms > now_ms else None
    if keys and not found and not ended:
        return None
    return list(found), list(found.values()), True, ended
