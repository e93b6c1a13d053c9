"""A task's part of an ingest: sorted batches in, uploaded SSTs out.

Needs the store and the specification only: no manifest, no role. Names are unique to the attempt, so a task that is
repeated, or runs twice at once, harms nothing: the job's commit names what counts, and collectors take the rest.

Memory: two SSTs, the batch that is taken, and the next.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.merge import Tally
from slate_async.engine.compaction.output import SstOutput
from slate_async.engine.ingest.digest import MODULUS, rows_digest
from slate_async.engine.ingest.replacement import Gap, OpenOld, deletes_between, gaps, old_rows, over_deletes
from slate_async.engine.ingest.rows import Duplicates, RowChecker
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.errors import InvalidError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.types import FORMAT_LIMITS, RowLimits

JOB = "slate-ingest"
"""Object metadata: the job that an SST was made for."""
SLICE_ROWS = 65_536
"""A larger batch is taken in slices of so many rows."""
GAPS_IN_PARALLEL = 4
Arrow: TypeAlias = pa.RecordBatch | pa.Table
Batches: TypeAlias = Arrow | Iterable[Arrow] | AsyncIterable[Arrow]
"""What an ingest writes: Arrow data at once or piece by piece."""


async def write_ssts(
    store: ObjectStore,
    spec: IngestSpec,
    batches: Batches,
    runtime: Runtime,
    *,
    duplicates: Duplicates = "error",
    digest: bool = False,
    open_old: OpenOld | None = None,
    limits: RowLimits = FORMAT_LIMITS,
) -> list[IngestedSst]:
    """Write ``batches`` (columns as in `slate_async.engine.ingest.rows`; keys ascending over all of them) as SSTs.

    digest: also make a digest of ``batches``, a part of each result
    open_old: of a job that replaces: its other keys, from the first to the last of ``batches``, are deleted

    The SSTs, in key order; none for no rows. Raises `InvalidError` for rows that cannot be taken, naming the first,
    `ConflictError` if what is replaced is kept no longer, `UnavailableError`; what was uploaded then is garbage."""
    if duplicates not in ("error", "last"):
        raise InvalidError(f"duplicates is 'error' or 'last', not {duplicates!r}")
    intake = _Intake(RowChecker(spec.begun_ms, duplicates, limits), 0 if digest else None)
    async with aclosing(_checked(batches, intake, runtime)) as rows:
        if spec.replaces is None:
            return await _stored(rows, intake, store, spec, runtime)
        assert open_old is not None
        open_rows = partial(old_rows, open_old, spec)
        async with aclosing(over_deletes(rows, open_rows, spec.begun_ms, runtime)) as replacing:
            return await _stored(replacing, intake, store, spec, runtime)


class Replaced(NamedTuple):
    """seq: sequence number of what a job replaces; deletes: what its tasks do not delete"""

    seq: int
    deletes: list[IngestedSst]


async def write_deletes(
    store: ObjectStore, spec: IngestSpec, ssts: Sequence[IngestedSst], open_old: OpenOld, runtime: Runtime
) -> Replaced:
    """Write deletes of what the job replaces and the tasks that wrote ``ssts`` do not answer for. Raises as
    `write_ssts`."""
    async with old_rows(open_old, spec) as old:

        async def fill(gap: Gap) -> list[IngestedSst]:
            async with aclosing(deletes_between(old, gap, spec.begun_ms)) as rows:
                return await _stored(rows, None, store, spec, runtime)

        made = await map_bounded(fill, gaps(ssts), GAPS_IN_PARALLEL)
        return Replaced(old.seq, [sst for part in made for sst in part])


@dataclass(slots=True)
class _Intake:
    """What one call is given, checked. ``digest``: of it, so far, if wanted: deletes that the call adds by itself are
    no part of it."""

    checker: RowChecker
    digest: int | None

    def take(self, batch: pa.RecordBatch | None) -> list[Columns]:
        """As the checker does; ``None``: the end."""
        parts = self.checker.finish() if batch is None else self.checker.take(batch)
        if self.digest is not None:
            self.digest = (self.digest + sum(map(rows_digest, parts))) % MODULUS
        return parts


async def _stored(
    rows: AsyncIterator[Columns], intake: _Intake | None, store: ObjectStore, spec: IngestSpec, runtime: Runtime
) -> list[IngestedSst]:
    output = SstOutput(spec, spec.writer_epoch, store, runtime, Tally(), metadata={JOB: spec.job_id})
    try:
        async for part in rows:
            while len(part := await runtime.offload.run(lambda part=part: output.add(part))):  # type: ignore[misc]
                await output.seal()
        ssts, attempt = await output.finish(), runtime.ids.token()
        digest = None if intake is None else intake.digest
        return [IngestedSst.of(sst, attempt, digest) for sst in ssts]
    finally:
        await output.close()


async def _checked(batches: Batches, intake: _Intake, runtime: Runtime) -> AsyncGenerator[Columns, None]:
    async for batch in _sliced(batches):
        for rows in await runtime.offload.run(lambda batch=batch: intake.take(batch)):  # type: ignore[misc]
            yield rows
    for rows in intake.take(None):
        yield rows


async def _sliced(batches: Batches) -> AsyncIterator[pa.RecordBatch]:
    async for found in _each(batches):
        if not isinstance(found, pa.RecordBatch | pa.Table):
            raise InvalidError(f"an ingest takes record batches or tables of pyarrow, not {type(found).__name__}")
        parts = [found] if isinstance(found, pa.RecordBatch) else found.to_batches()
        for part in parts:
            for start in range(0, part.num_rows, SLICE_ROWS):
                yield part.slice(start, SLICE_ROWS)


async def _each(batches: Batches) -> AsyncIterator[Arrow]:
    if isinstance(batches, pa.RecordBatch | pa.Table):  # which are iterable, too: by their columns
        yield batches
    elif isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield batch
    else:
        for batch in batches:
            yield batch
