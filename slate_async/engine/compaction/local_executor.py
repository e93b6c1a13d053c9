"""`LocalExecutor`: one key range in this process, merged slice by slice on worker threads.

Memory of a range, whatever the size of the runs, about::

    sources x (3 x read ahead + metadata of one SST) + rows of a round x 3 + 2 x sst_bytes
    + all kept versions of the largest key

with a read ahead, in bytes after decompression, of `READ_AHEAD_BYTES` shared by the sources, at least
`LEAST_READ_AHEAD_BYTES` and at most `MOST_READ_AHEAD_BYTES` each. Index and filter of an SST take about 2 % of it.

The output depends on nothing but the task, the inputs and the ids drawn for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeAlias

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.merge import Merge, SourceRows, Tally
from slate_async.engine.compaction.output import SstOutput
from slate_async.engine.compaction.reading import read_batches
from slate_async.engine.compaction.rounds import Rounds
from slate_async.engine.compaction.sweep import swept
from slate_async.engine.read.covers import Covers
from slate_async.merge_operators.guarded import merging
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.storage.format.sst import SstMeta
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.reader import SstReader

OpenSst: TypeAlias = Callable[[SstRef], SstReader]

READ_AHEAD_BYTES = 32 << 20
LEAST_READ_AHEAD_BYTES = 512 << 10
MOST_READ_AHEAD_BYTES = 4 << 20
ROUND_BYTES = 4 << 20
"""What is merged before the next look at the loop: some ten milliseconds of a worker thread, which lets go of the
interpreter at each of its calls into numpy, Arrow and the codecs."""


class LocalExecutor:
    """Implements `engine.compaction.executor.Executor`. ``open_sst`` gives a reader of an input, wherever it
    lies (a clone's inputs may be its parent's); output goes to ``store``."""

    def __init__(self, store: ObjectStore, open_sst: OpenSst, runtime: Runtime) -> None:
        self._store = store
        self._open_sst = open_sst
        self._runtime = runtime

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Merge the range and upload its output. See `Executor.run`."""
        tally = Tally()
        merge = Merge(
            tally,
            keep_above=task.keep_above,
            expired_at_ms=task.expired_at_ms,
            bottom=task.bottom,
            merging=merging(task.merge_operator),
        )
        epoch = max(sst.writer_epoch for source in task.sources for sst in source)
        output = SstOutput(task, epoch, self._store, self._runtime, tally)
        rounds = Rounds(self._sources(task, tally), nbytes=ROUND_BYTES)
        try:
            while await rounds.fill():
                left = await self._runtime.offload.run(lambda: output.add(merge.keep(rounds.step())))
                while len(left):
                    if left.late is None:
                        await output.seal()
                    else:
                        left = await left.late.complete(left)
                    left = await self._runtime.offload.run(lambda rest=left: output.add(rest))  # type: ignore[misc]
                if progress is not None:
                    progress(tally.counts())
            return RangeResult(swept(await output.finish(), task.swept_seq), tally.counts())
        finally:
            await rounds.aclose()
            await output.close()

    def _sources(self, task: RangeTask, tally: Tally) -> list[SourceRows]:
        share = READ_AHEAD_BYTES // len(task.sources)
        read_ahead = min(MOST_READ_AHEAD_BYTES, max(LEAST_READ_AHEAD_BYTES, share))
        covers = Covers(task.range_deletes)
        return [
            SourceRows(self._read(source, task.start, task.end, read_ahead), tally, task.keep_above, covers)
            for source in task.sources
        ]

    async def _read(
        self, ssts: tuple[SstRef, ...], start: bytes | None, end: bytes | None, read_ahead: int
    ) -> AsyncGenerator[Columns, None]:
        """The rows of ``[start, end)`` that ``ssts`` hold. ``read_ahead`` is in bytes after decompression."""
        for sst in ssts:
            if (end is not None and end <= sst.first_key) or (start is not None and start > sst.last_key):
                continue
            reader = self._open_sst(sst)
            meta = await reader.load()
            stored = max(1, int(read_ahead * _stored_share(meta)))
            async with aclosing(read_batches(reader, start, end, read_bytes=stored, merged=True)) as batches:
                async for rows in batches:
                    yield rows


def _stored_share(meta: SstMeta) -> float:
    """Stored bytes for each byte of a block after decompression."""
    return sum(meta.index.stored_bytes) / max(1, meta.stats.raw_block_bytes)
