"""What operands make of the rows of their keys: from a chain of visible versions to the row that a read returns.

A chain is the newest visible versions of a key, newest first: operands, and below them their *base*, the newest row
that is none, if there is one. An operand that has expired counts for nothing. A tombstone, an expired base and no base
are all an absent value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import number_array
from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.engine.read.merge import MergedRows, Round, key_at
from slate_async.merge_operators.guarded import Guarded
from slate_async.storage.format.ordering import Mask
from slate_async.types import MERGE, PUT, RowHit


def merged_hit(merging: Guarded, key: bytes, chain: Iterable[RowHit], now_ms: int) -> RowHit | None:
    """The live row that ``chain`` makes, ``None`` if there is none. Raises `MergeError`."""
    operands: list[RowHit] = []
    base: RowHit | None = None
    number, expire_ms = 0, NO_EXPIRY
    for hit in chain:
        number = number or hit.seq
        if hit.kind != MERGE:
            base = hit if hit.kind == PUT and hit.expire_ms > now_ms else None
            break
        if hit.expire_ms > now_ms:
            operands.append(hit)
            if hit.expire_ms < expire_ms:
                expire_ms = hit.expire_ms
    if not operands:
        return base if base is None or not merging.numbered_by_newest else base._replace(seq=number)
    newest = operands[0]
    if base is not None:
        expire_ms = min(expire_ms, base.expire_ms)
    values = [hit.value for hit in reversed(operands)]
    value = merging.merged(key, None if base is None else base.value, values)
    return RowHit(value, number if merging.numbered_by_newest else newest.seq, PUT, expire_ms, newest.create_ms)


def merged_rows(
    merging: Guarded,
    rows: Columns,
    places: npt.NDArray[np.int64],
    repeats: Mask,
    chosen: npt.NDArray[np.int64],
    now_ms: int,
) -> Columns:
    """The live rows at ``chosen`` places, which ascend, each key's newest visible version. ``places`` says which of
    ``rows`` stands at each place: by key, then newest first; ``repeats`` whether it has the key of the place before.
    Raises `MergeError`."""
    chained = rows.kinds[places[chosen]] == MERGE
    plain = chosen[~chained]
    alive = rows.kinds[places[plain]] == PUT
    if rows.expire_ms is not None:
        alive &= rows.expire_ms[places[plain]] > now_ms
    plain = plain[alive]
    firsts = np.append(np.flatnonzero(~repeats), len(places))
    chains = chosen[chained]
    stops = firsts[np.searchsorted(firsts, chains, side="right")]
    at: list[int] = []
    found: list[tuple[bytes, RowHit]] = []
    for place, stop in zip(chains.tolist(), stops.tolist(), strict=True):
        key = rows.keys[int(places[place])].as_py()
        row = merged_hit(merging, key, _chain(rows, places[place:stop]), now_ms)
        if row is not None:
            at.append(place)
            found.append((key, row))
    both = concat([rows.take(places[plain]), columns_of(found)])
    return both.take(np.argsort(np.concatenate([plain, np.array(at, np.int64)]), kind="stable"))


def _chain(rows: Columns, versions: npt.NDArray[np.int64]) -> Iterable[RowHit]:
    """Those of ``rows``, the versions of a key from the newest on, down to its base."""
    bases = np.flatnonzero(rows.kinds[versions] != MERGE)
    if len(bases):
        versions = versions[: bases[0] + 1]
    expires = [NO_EXPIRY] * len(versions) if rows.expire_ms is None else rows.expire_ms[versions].tolist()
    return map(
        RowHit,
        rows.values.take(number_array(versions)).to_pylist(),
        rows.seqs[versions].tolist(),
        rows.kinds[versions].tolist(),
        expires,
        rows.create_ms[versions].tolist(),
    )


def hit_at(rows: Columns, row: int) -> RowHit:
    """One of ``rows``."""
    return RowHit(
        rows.values[row].as_py(),
        int(rows.seqs[row]),
        int(rows.kinds[row]),
        NO_EXPIRY if rows.expire_ms is None else int(rows.expire_ms[row]),
        int(rows.create_ms[row]),
    )


def columns_of(found: Sequence[tuple[bytes, RowHit]]) -> Columns:
    """The rows as columns."""
    hits = [hit for _, hit in found]
    expires = np.array([hit.expire_ms for hit in hits], np.int64)
    return Columns(
        pa.array([key for key, _ in found], pa.binary()),
        pa.array([hit.value for hit in hits], pa.binary()),
        np.array([hit.seq for hit in hits], np.uint64),
        np.array([hit.kind for hit in hits], np.uint8),
        expires if np.any(expires != NO_EXPIRY) else None,
        np.array([hit.create_ms for hit in hits], np.int64),
    )


class WholeChains(AsyncIterator[Round]):
    """The rounds of ``merged``; rows that come one by one, and with their values late, come with all of their chain."""

    def __init__(self, merged: MergedRows) -> None:
        self._merged = merged
        self._ahead: deque[Round] = deque()

    async def __anext__(self) -> Round:
        first = await self._next()
        if len(first.rows) != 1 or int(first.rows.kinds[0]) != MERGE:
            return first
        chain, key = [await _whole(first.rows)], key_at(first.rows, 0)
        while int(chain[-1].kinds[0]) == MERGE:
            try:
                following = await self._next()
            except StopAsyncIteration:
                break
            if len(following.rows) != 1 or key_at(following.rows, 0) != key:
                self._ahead.append(following)
                break
            chain.append(await _whole(following.rows))
        return Round(concat(chain))

    async def _next(self) -> Round:
        return self._ahead.popleft() if self._ahead else await anext(self._merged)

    async def aclose(self) -> None:
        """Close the streams. Idempotent."""
        self._ahead.clear()
        await self._merged.aclose()


async def _whole(rows: Columns) -> Columns:
    whole = rows if rows.late is None else await rows.late.complete(rows)
    return replace(whole, seen_from=None)
