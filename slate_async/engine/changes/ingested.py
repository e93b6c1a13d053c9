"""The rows of one ingest, part by part. They share one sequence number and were never in the log.

They come in the order of their keys, whatever the SSTs are in which they stand: a job's own follow one another, and
those of a compaction, in which they stand among others, are merged. So a key says how far somebody has got (rule
33), and memory is bounded by the levels of SSTs.

Rule 33: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import takewhile

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.reading import read_batches
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.engine.read.merge import MergedRows, Stream, key_at
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
        self.over = False
        """Whether all rows were given."""
        self._start, self._end = span.start, span.end
        self._lanes = lanes([sst for sst in ssts if span.overlaps(sst.first_key, sst.last_key)])
        self._open = open_sst
        self._readers: dict[bytes, SstReader] = {}  # by object id

    async def next(self) -> list[Columns]:
        """The next rows, perhaps none. Raises `MissingError`, `CorruptionError`, `UnavailableError`."""
        found: list[Columns] = []
        nbytes = 0
        if self.over:
            return found
        async with aclosing(self._rows()) as batches:
            async for rows in batches:
                found.append(rows)
                nbytes += rows.nbytes
                if nbytes >= PART_BYTES:
                    self._go_on_behind(key_at(rows, -1))
                    return found
        self.over = True
        self._readers.clear()
        return found

    def _go_on_behind(self, key: bytes) -> None:
        self._start = key + b"\0"
        for lane in self._lanes:
            for sst in list(takewhile(lambda sst: sst.last_key <= key, lane)):
                lane.remove(sst)
                self._readers.pop(sst.object_id, None)

    async def _rows(self) -> AsyncGenerator[Columns, None]:
        """All that are left, in order; no batch is empty."""
        if len(self._lanes) == 1:
            async with aclosing(self._lane(self._lanes[0])) as batches:
                async for rows in batches:
                    yield rows
            return
        async with aclosing(MergedRows([Stream(self._lane(lane)) for lane in self._lanes])) as rounds:
            async for joined in rounds:
                yield joined.all()

    async def _lane(self, ssts: Sequence[SstRef]) -> AsyncGenerator[Columns, None]:
        for sst in ssts:
            if sst.object_id not in self._readers:
                self._readers[sst.object_id] = self._open(sst)
            batches = read_batches(self._readers[sst.object_id], self._start, self._end, read_bytes=READ_BYTES)
            async with aclosing(batches):
                async for batch in batches:
                    rows = batch if sst.min_seq == sst.max_seq else self._own(batch)
                    if len(rows):
                        yield rows

    def _own(self, batch: Columns) -> Columns:
        """Those of ``batch`` that are the ingest's: one of a key at most."""
        own = batch.seqs == self.seq
        return batch if own.all() else batch.take(np.flatnonzero(own))


def lanes(ssts: Sequence[SstRef]) -> list[list[SstRef]]:
    """``ssts`` in as few lists as may be, in each of which their keys follow one another."""
    found: list[list[SstRef]] = []
    for sst in sorted(ssts, key=lambda sst: sst.first_key):
        lane = next((lane for lane in found if lane[-1].last_key < sst.first_key), None)
        if lane is None:
            found.append([sst])
        else:
            lane.append(sst)
    return found
