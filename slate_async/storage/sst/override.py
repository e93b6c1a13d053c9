"""What the manifest says of every row of an SST, instead of what is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.storage.format.sst import SstFooter, SstMeta


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


def cache_owner(database_id: UUID, object_id: bytes, size: int, footer: SstFooter, override: Override | None) -> bytes:
    """What tells the blocks of an SST, with the numbers that count, from all others in a cache."""
    seq = 0 if override is None else override.seq
    numbers = size.to_bytes(8, "little") + footer.directory_crc.to_bytes(4, "little") + seq.to_bytes(8, "little")
    return database_id.bytes + object_id + numbers
