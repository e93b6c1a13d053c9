"""The rows of one ingest, part by part. They share one sequence number and were never in the log.

They come SST by SST in the order of their keys, so an ingest of any size takes little memory. After a compaction they
stand among others; then they are looked for there, by that. A part may end between two versions of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.reading import read_batches
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.engine.read.merge import first_row_after, key_at
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.reader import SstReader

PART_BYTES = 8 << 20
READ_BYTES = 1 << 20


class IngestedRows:
    """See the module docstring. ``ssts`` may hold rows of sequence number ``seq``, of which those are given whose keys
    are in ``span``. A failed call may be retried."""

    def __init__(
        self, seq: int, ssts: Sequence[SstRef], open_sst: Callable[[SstRef], SstReader], span: KeyRange = EVERY_KEY
    ) -> None:
        self.seq = seq
        self._span = span
        self._left = [sst for sst in reversed(ssts) if span.overlaps(sst.first_key, sst.last_key)]
        self._open = open_sst
        self._last: tuple[bytes, int] | None = None
        """Key and sequence number of the row that was looked at last."""
        self._reader: SstReader | None = None

    @property
    def over(self) -> bool:
        """Whether all rows were given."""
        return not self._left

    async def next(self) -> list[Columns]:
        """The next rows, perhaps none. Raises `MissingError`, `CorruptionError`, `UnavailableError`."""
        if self.over:
            return []
        sst = self._left[-1]
        reader = self._reader or self._open(sst)
        start = self._span.start if self._last is None else self._last[0]
        found: list[Columns] = []
        nbytes = 0
        async with aclosing(read_batches(reader, start, self._span.end, read_bytes=READ_BYTES)) as batches:
            async for batch in batches:
                unseen = self._unseen(batch)
                if not len(unseen):
                    continue
                rows = unseen if sst.min_seq == sst.max_seq else unseen.take(np.flatnonzero(unseen.seqs == self.seq))
                if len(rows):
                    found.append(rows)
                nbytes += unseen.nbytes
                if nbytes >= PART_BYTES:
                    self._reader, self._last = reader, (key_at(unseen, -1), int(unseen.seqs[-1]))
                    return found
        self._left.pop()
        self._reader = self._last = None
        return found

    def _unseen(self, batch: Columns) -> Columns:
        """``batch``, which begins with the last key or above, without the rows that were looked at before."""
        if self._last is None:
            return batch
        key, seq = self._last
        return batch.slice(int((batch.seqs[: first_row_after(batch, key)] >= seq).sum()), len(batch))
