"""Which versions of rows a compaction keeps, round by round. Vectorised; nothing here does I/O.

For each key, with ``keep_above`` the highest sequence number below which nothing is read any more:

- versions above ``keep_above`` all stay;
- of the others the newest that is no operand stays, the *base* of the key's history; those under it are shadowed and
  go;
- operands above the base stay, folded as far as they can be (`engine.read.folding`);
- a base that is a tombstone, or has expired, goes too if nothing older lies below these keys (``bottom``). Elsewhere an
  expired base becomes a tombstone: it still hides what is below, but its value is not read any more.

A row has expired if it expires at ``expired_at_ms`` or before, the earliest time that a read still has.

Rule 34: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass, replace

import numpy as np
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_scalar, mask_array
from slate_async.codec.columns import NO_EXPIRY, Columns, binary_nbytes
from slate_async.engine.compaction.executor import MergeCounts
from slate_async.engine.compaction.rounds import Round, as_round
from slate_async.engine.read.covers import NO_COVERS, Covers
from slate_async.engine.read.folding import Folding
from slate_async.engine.read.merge import close_stream, key_at
from slate_async.errors import InternalError
from slate_async.merge_operators.guarded import Guarded
from slate_async.storage.format.ordering import Mask
from slate_async.types import DELETE, MAX_SEQ, MERGE, PUT


class VersionFilter:
    """Finds shadowed versions in rounds of sorted rows; a key may be spread over several of them."""

    def __init__(self, keep_above: int) -> None:
        self._keep_above = keep_above
        self._last_key: bytes | None = None
        self._base_seen = False

    def look(self, found: Round) -> tuple[Mask, Mask]:
        """Of the places of the next round, which are bases, and which are not shadowed; bool[n] each."""
        old = found.in_order(found.rows.seqs) <= self._keep_above
        if int(found.rows.kinds.max()) >= MERGE:
            return self._look_past_operands(found, old)
        under_base = np.zeros(len(old), np.bool_)
        under_base[1:] = old[:-1] & found.repeats[1:]
        if self._base_seen and found.key(0) == self._last_key:
            under_base[0] = True
        base = old & ~under_base
        self._last_key, self._base_seen = found.key(-1), bool(old[-1])
        return base, base | ~old

    def _look_past_operands(self, found: Round, old: Mask) -> tuple[Mask, Mask]:
        """`look` where there are operands: these hide nothing."""
        hides = np.flatnonzero(old & (found.in_order(found.rows.kinds) != MERGE))
        keys = np.cumsum(~found.repeats) - int(not found.repeats[0])
        first_hide = np.full(int(keys[-1]) + 1, len(old))
        np.minimum.at(first_hide, keys[hides], hides)
        if self._base_seen and found.key(0) == self._last_key:
            first_hide[0] = -1
        under_base = np.arange(len(old)) > first_hide[keys]
        base = np.zeros(len(old), np.bool_)
        base[hides] = True
        base &= ~under_base
        self._last_key, self._base_seen = found.key(-1), bool(first_hide[-1] < len(old))
        return base, ~under_base


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
    """Drops rows that no read needs from the merged rows of one key range, round by round."""

    def __init__(
        self, tally: Tally, *, keep_above: int, expired_at_ms: int, bottom: bool, merging: Guarded | None = None
    ) -> None:
        """``merging``: the database's merge operator, if it has one."""
        self._tally = tally
        self._folding: Folding | None = None
        if merging is not None:
            self._folding = Folding(merging, keep_above=keep_above, expired_at_ms=expired_at_ms, bottom=bottom)
        self._expired_at_ms = expired_at_ms
        self._bottom = bottom
        self._filter = VersionFilter(keep_above)

    def keep(self, found: Round) -> Columns:
        """What stays of the rows of the next round. Raises `InternalError` for an operand where nothing is merged."""
        tally = self._tally
        if int(found.rows.kinds.max()) >= MERGE:
            if self._folding is None:
                raise InternalError("an operand in a database that has no merge operator")
            folded = self._folding.fold(found.rows, found.order, found.repeats)
            if folded is not None:
                tally.shadowed += len(found.rows) - len(folded)
                if not len(folded):
                    return folded
                found = as_round(folded)
        rows = found.rows
        base, kept = self._filter.look(found)
        kinds = found.in_order(rows.kinds)
        tally.shadowed += len(rows) - int(np.count_nonzero(kept))
        if self._bottom:
            deleted = base & (kinds == DELETE)
            tally.tombstones += int(np.count_nonzero(deleted))
            kept &= ~deleted
        buried: Mask | None = None
        if rows.expire_ms is not None:
            expired = base & (kinds == PUT) & (found.in_order(rows.expire_ms) <= self._expired_at_ms)
            count = int(np.count_nonzero(expired))
            if self._bottom:
                tally.expired += count
                kept &= ~expired
            elif count:
                tally.buried += count
                buried = expired[kept]
        rest = found.take(kept)
        if buried is not None:
            rest = _bury(rest, buried)
        tally.rows_out += len(rest)
        tally.bytes_out += data_bytes(rest)
        return rest


class SourceRows(AsyncIterator[Columns]):
    """The rows of one source on their way into the merge, counted.

    Of a batch that is all one key the shadowed versions go at once: the merge holds the versions of a key together, and
    a key written over and over must not fill the memory."""

    def __init__(
        self, batches: AsyncIterator[Columns], tally: Tally, keep_above: int, covers: Covers = NO_COVERS
    ) -> None:
        """``covers``: range deletes that every read sees which is still possible: what they hide goes."""
        self._batches = batches
        self._covers = covers
        self._tally = tally
        self._keep_above = keep_above
        self._hot: tuple[bytes, VersionFilter] | None = None

    async def __anext__(self) -> Columns:
        rows = await anext(self._batches)
        self._tally.rows_in += len(rows)
        self._tally.bytes_in += data_bytes(rows)
        if self._covers.newest_seq:
            before, rows = len(rows), self._covers.visible(rows, MAX_SEQ)
            self._tally.shadowed += before - len(rows)
        if not len(rows) or key_at(rows, 0) != key_at(rows, -1):
            self._hot = None
            return rows
        key = key_at(rows, 0)
        if self._hot is None or self._hot[0] != key:
            self._hot = (key, VersionFilter(self._keep_above))
        found = as_round(rows)
        _, kept = self._hot[1].look(found)
        rest = found.take(kept)
        self._tally.shadowed += len(rows) - len(rest)
        return rest

    async def aclose(self) -> None:
        """Close the source. Idempotent."""
        await close_stream(self._batches)


def data_bytes(rows: Columns) -> int:
    """Bytes of the keys and values of ``rows``."""
    if not len(rows):
        return 0
    late = 0 if rows.late is None else rows.late.nbytes
    return binary_nbytes(rows.keys) + binary_nbytes(rows.values) - 8 * (len(rows) + 1) + late


def _bury(rows: Columns, expired: Mask) -> Columns:
    """``rows`` with tombstones in the place of the ``expired`` ones."""
    return replace(
        rows,
        late=None if expired.any() else rows.late,
        values=pc.if_else(mask_array(expired), binary_scalar(b""), rows.values),
        kinds=np.where(expired, np.uint8(DELETE), rows.kinds),
        expire_ms=None if rows.expire_ms is None else np.where(expired, NO_EXPIRY, rows.expire_ms),
    )
