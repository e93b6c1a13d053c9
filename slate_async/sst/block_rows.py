"""The rows of a block as scans want them: from when on every row is seen, and the first few rows of a range.

A short scan reads a few rows of a block that is decoded already, so it must not pay for all of its rows: a key is
found through every `SAMPLE_EVERY`-th key, and only the rows near it become Python objects. A block that is read like
that again and again keeps its keys as Python objects, as long as the block cache has room for them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import repeat

from slate_async.format.columns import NO_EXPIRY, Columns, binary_nbytes
from slate_async.format.separate_blocks import seen_from_of
from slate_async.types import MERGE, PUT, Stretch

SAMPLE_EVERY = 16
WORTH_LOOKS = 4
"""Its keys are worth keeping when a block is read in part as often as this: about what making them takes."""
MOST_KEYS = 4096
"""Blocks of more rows do not keep them: making them would take long."""
_KEY_BYTES = 41
"""What a key takes as a Python object in a list, beside its bytes."""


class Keys:
    """The keys of a block of which every reader sees every row; a `slate_async.sst.cache.Lookup`."""

    __slots__ = ("_owner", "found", "nbytes", "used")
    retired = False

    def __init__(self, owner: BlockRows) -> None:
        keys = owner.columns.keys
        self.found: list[bytes] = keys.to_pylist()
        self.nbytes = binary_nbytes(keys) + _KEY_BYTES * len(keys)
        self.used = False
        self._owner = owner

    def drop(self) -> None:
        """See `slate_async.sst.cache.Lookup`."""
        self._owner.keys = None


class BlockRows:
    """The sorted rows of one block. ``columns.seen_from`` is known; ``keys`` are there while they are kept."""

    __slots__ = ("_looks", "_samples", "columns", "keys")

    def __init__(self, columns: Columns) -> None:
        known = columns.seen_from is not None
        self.columns = columns if known else replace(columns, seen_from=seen_from_of(columns))
        self.keys: Keys | None = None
        self._samples: list[bytes] | None = None
        self._looks = 0

    def worth_keys(self) -> bool:
        """Whether to make `Keys`. Asked after each look that did without."""
        self._looks += 1
        wanted = self._looks % WORTH_LOOKS == 0
        return wanted and self.columns.seen_from is not None and len(self.columns) <= MOST_KEYS

    def first(
        self, start: bytes | None, end: bytes | None, count: int, max_seq: int, now_ms: int, *, last: bool
    ) -> Stretch | None:
        """See `slate_async.read.sources.TableSource.first_rows`, of this block alone.

        ``last``: no later block holds keys of the range. If one does, a stretch may be empty that has not ended: this
        block lies before the range."""
        columns, kept = self.columns, self.keys
        if kept is not None and columns.seen_from is not None and columns.seen_from <= max_seq:
            kept.used = True
            found = kept.found
            low = 0 if start is None else bisect_left(found, start)
            beyond = len(found) if end is None else bisect_left(found, end)
            stop = min(low + count, beyond)
            ended = stop == beyond and (last or beyond < len(found))
            return found[low:stop], columns.values.slice(low, max(0, stop - low)).to_pylist(), False, ended
        if self._samples is None:
            self._samples = columns.keys[::SAMPLE_EVERY].to_pylist()
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
