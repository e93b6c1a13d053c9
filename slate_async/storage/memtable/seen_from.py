"""From when on every row of a scanned piece is seen: see `slate_async.codec.columns.Columns.seen_from`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.types import PUT


def with_seen_from(newest: Columns) -> Columns:
    """``newest``, one version of each key, with what can be said of `Columns.seen_from`."""
    if newest.expire_ms is not None or not len(newest) or np.any(newest.kinds != PUT):
        return newest
    return replace(newest, seen_from=int(newest.seqs.max()))
