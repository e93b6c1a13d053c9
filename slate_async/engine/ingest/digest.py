"""A digest of an ingest's rows, which tells whether two loads bring the same ones.

Each row has a hash of its key, its value, whether it is a delete, and whether it expires; the digest is the sum of all
of them modulo 2**64. So it depends neither on the order of rows nor on how tasks share them, and the sum of the tasks'
digests is the job's. When rows expire is no part of it: a load that is asked again counts its times to live from then.

Rows that differ have the same digest by chance, once in 2**64. It is no protection from those who choose their rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import xxhash

from slate_async.codec.columns import NO_EXPIRY, Columns, binary_nbytes
from slate_async.engine.ingest.spec import IngestedSst
from slate_async.storage.format.xxh3 import xxh3_64_each

MODULUS = 1 << 64
EXPIRES = 1 << 8
"""Beside the kind, which is below."""
_STEP_ROWS = 4096
_STEP_BYTES = 1 << 20
"""Of values that are objects of their own at a time."""
_HASH = xxhash.xxh3_64_intdigest


def rows_digest(rows: Columns) -> int:
    """Of ``rows``, as an ingest takes them."""
    seeds = xxh3_64_each(rows.keys)
    seeds ^= rows.kinds
    if rows.expire_ms is not None:
        seeds ^= np.where(rows.expire_ms == NO_EXPIRY, np.uint64(0), np.uint64(EXPIRES))
    step = min(_STEP_ROWS, max(1, _STEP_BYTES * len(rows) // max(1, binary_nbytes(rows.values))))
    return sum(_sum(rows.slice(at, at + step), seeds[at : at + step]) for at in range(0, len(rows), step)) % MODULUS


def _sum(rows: Columns, seeds: npt.NDArray[np.uint64]) -> int:
    values = rows.values.to_numpy(zero_copy_only=False).tolist()
    return int(np.fromiter(map(_HASH, values, seeds.tolist()), np.uint64, len(values)).sum())


def job_digest(ssts: Iterable[IngestedSst]) -> int | None:
    """Of all rows that the calls that wrote ``ssts`` were given; ``None`` if one of them made none."""
    parts = {sst.part: sst.digest for sst in ssts}
    known = [digest for digest in parts.values() if digest is not None]
    return sum(known) % MODULUS if len(known) == len(parts) else None
