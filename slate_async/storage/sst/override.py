"""What the manifest says of every row of an SST, instead of what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.storage.format.sst import SstMeta


class Override(NamedTuple):
    """What the manifest says of every row of an ingest's SST: its sequence number and its write time."""

    seq: int
    create_ms: int

    def of_rows(self, rows: Columns) -> Columns:
        """``rows`` with these numbers."""
        count = len(rows)
        seqs, create = np.full(count, self.seq, np.uint64), np.full(count, self.create_ms, np.int64)
        return replace(rows, seqs=seqs, create_ms=create, seen_from=None)

    def of_meta(self, meta: SstMeta) -> SstMeta:
        """``meta`` with the statistics of such rows."""
        seq, create_ms = self
        stats = replace(meta.stats, min_seq=seq, max_seq=seq, min_create_ms=create_ms, max_create_ms=create_ms)
        return replace(meta, stats=stats)
