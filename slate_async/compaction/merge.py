"""Which versions of rows a compaction keeps. Vectorised; nothing here does I/O.

For each key, with ``keep_above`` the highest sequence number that nobody reads below any more:

- versions above ``keep_above`` all stay;
- of the others the newest stays, the *base* of the key's history; those under it are shadowed and go;
- a base that is a tombstone, or has expired, goes too if nothing older lies below these keys (``bottom``). Elsewhere an
  expired base becomes a tombstone: it still hides what is below, but nobody reads its value any more.

A row has expired if it expires at ``expired_at_ms`` or before, the earliest time anybody still reads at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.compaction.executor import MergeCounts
from slate_async.errors import InternalError
from slate_async.format.columns import NO_EXPIRY, Columns, binary_nbytes
from slate_async.read.merge import close_stream, key_at, same_key_as_previous
from slate_async.types import DELETE, MERGE, PUT

Mask = npt.NDArray[np.bool_]


class VersionFilter:
    """Finds shadowed versions in sorted rows that come in pieces; a key may be spread over several of them."""

    def __init__(self, keep_above: int) -> None:
        self._keep_above = keep_above
        self._last_key: bytes | None = None
        self._base_seen = False

    def look(self, rows: Columns) -> tuple[Mask, Mask]:
        """Of the next ``rows`` (1 or more), which are bases, and which are not shadowed; bool[n] each."""
        old = rows.seqs <= self._keep_above
        begins = np.ones(len(rows), np.bool_)
        np.logical_not(same_key_as_previous(rows), out=begins[1:])
        under_base = np.zeros(len(rows), np.bool_)
        under_base[1:] = old[:-1] & ~begins[1:]
        if self._base_seen and key_at(rows, 0) == self._last_key:
            under_base[0] = True
        base = old & ~under_base
        self._last_key, self._base_seen = key_at(rows, -1), bool(old[-1])
        return base, base | ~old


@dataclass(slots=True)
class Tally:
    """`MergeCounts` in the making."""

    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    stored_out: int = 0
    shadowed: int = 0
    tombstones: int = 0
    expired: int = 0
    buried: int = 0

    def counts(self) -> MergeCounts:
        """What was counted so far."""
        return MergeCounts(*astuple(self))


class Merge:
    """Drops what nobody needs from the merged rows of one key range, piece by piece, in order."""

    def __init__(self, tally: Tally, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
        self._tally = tally
        self._expired_at_ms = expired_at_ms
        self._bottom = bottom
        self._filter = VersionFilter(keep_above)

    def keep(self, rows: Columns) -> Columns:
        """What stays of the next merged ``rows`` (1 or more). Raises `InternalError` for a merge operand."""
        if int(rows.kinds.max()) >= MERGE:
            raise InternalError("a merge operand, which this version cannot compact; use a newer one")
        tally = self._tally
        base, kept = self._filter.look(rows)
        tally.shadowed += len(rows) - int(np.count_nonzero(kept))
        if self._bottom:
            deleted = base & (rows.kinds == DELETE)
            tally.tombstones += int(np.count_nonzero(deleted))
            kept &= ~deleted
        if rows.expire_ms is not None:
            expired = base & (rows.kinds == PUT) & (rows.expire_ms <= self._expired_at_ms)
            found = int(np.count_nonzero(expired))
            if self._bottom:
                tally.expired += found
                kept &= ~expired
            elif found:
                tally.buried += found
                rows = _bury(rows, rows.expire_ms, expired)
        rest = _pick(rows, kept)
        tally.rows_out += len(rest)
        tally.bytes_out += data_bytes(rest)
        return rest


class SourceRows(AsyncIterator[Columns]):
    """The rows of one source on their way into the merge, counted.

    Of a batch that is all one key the shadowed versions go at once: the merge holds the versions of a key together, and
    a key written over and over must not fill the memory."""

    def __init__(self, batches: AsyncIterator[Columns], tally: Tally, keep_above: int) -> None:
        self._batches = batches
        self._tally = tally
        self._keep_above = keep_above
        self._hot: tuple[bytes, VersionFilter] | None = None

    async def __anext__(self) -> Columns:
        rows = await anext(self._batches)
        self._tally.rows_in += len(rows)
        self._tally.bytes_in += data_bytes(rows)
        if not len(rows) or key_at(rows, 0) != key_at(rows, -1):
            self._hot = None
            return rows
        key = key_at(rows, 0)
        if self._hot is None or self._hot[0] != key:
            self._hot = (key, VersionFilter(self._keep_above))
        _, kept = self._hot[1].look(rows)
        rest = _pick(rows, kept)
        self._tally.shadowed += len(rows) - len(rest)
        return rest

    async def aclose(self) -> None:
        """Close the source. Idempotent."""
        await close_stream(self._batches)


def data_bytes(rows: Columns) -> int:
    """Bytes of the keys and values of ``rows``."""
    if not len(rows):
        return 0
    return binary_nbytes(rows.keys) + binary_nbytes(rows.values) - 8 * (len(rows) + 1)


def _pick(rows: Columns, kept: Mask) -> Columns:
    return rows if kept.all() else rows.take(np.flatnonzero(kept))


def _bury(rows: Columns, expire_ms: npt.NDArray[np.int64], expired: Mask) -> Columns:
    """``rows`` with tombstones in the place of the ``expired`` ones."""
    return replace(
        rows,
        values=pc.if_else(pa.array(expired), pa.scalar(b"", pa.binary()), rows.values),
        kinds=np.where(expired, np.uint8(DELETE), rows.kinds),
        expire_ms=np.where(expired, NO_EXPIRY, expire_ms),
    )
