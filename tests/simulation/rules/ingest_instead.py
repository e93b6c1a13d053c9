"""What stands in for a part of rules 30 and 31 that is switched off."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from dataclasses import replace

from slate_async.codec.columns import Columns
from slate_async.engine.ingest.ending import Ending
from slate_async.engine.ingest.manage import IngestInfo
from slate_async.engine.ingest.replacement import Gap
from slate_async.engine.ingest.spec import IngestedSst
from slate_async.engine.write.sequencer import Sequencer
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.manifest.edits import apply_ingests
from slate_async.storage.manifest.edits.apply_ingests import ApplyIngests
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.ingests import ForgetApp, find_ingest
from slate_async.storage.manifest.edits.protocol import check_writer
from slate_async.storage.manifest.edits.writer import pinned
from slate_async.storage.manifest.state import ManifestState


def under_the_last_number(self: ApplyIngests, state: ManifestState) -> ManifestState | None:
    """An ingest takes the number of the last row that was flushed."""
    check_writer(state, self.epoch)
    jobs = [job for job_id in self.ids if (job := find_ingest(state, job_id)) is not None and job.pending]
    if self.flush is not None:
        flushed = self.flush.apply(state)
        if flushed is None:
            return None
        state = flushed
    elif not jobs:
        return None
    if self.log is not None:
        state = self._with_log(state, self.log)
    for job in jobs:
        state = apply_ingests._applied(state, job, max(1, state.last_seq), self.now_ms)
    return state if self.pin is None else pinned(state, self.pin)


@contextlib.contextmanager
def never_paused(self: Sequencer) -> Iterator[None]:
    """Writes go on while an ingest is applied, and are numbered and logged as if it were not."""
    yield


def number_left_alone(self: Sequencer, seq: int) -> None:
    """The numbers of an ingest's rows are given to others, too."""


def nothing_pending(state: ManifestState) -> frozenset[str]:
    """What is committed and not applied is not reachable."""
    return frozenset()


def no_batch(state: ManifestState, app_id: str) -> int | None:
    """No batch of any stream was ever there."""
    return None


def no_query(state: ManifestState, app_id: str) -> str | None:
    """Nobody knows who counts the batches of a stream."""
    return None


def query_that_applied(state: ManifestState, app_id: str) -> str | None:
    """Batches that wait say nothing of who counts them."""
    return next((app.query_id for app in state.ingest_apps if app.app_id == app_id), None)


def forgotten_but_for_jobs(self: ForgetApp, state: ManifestState) -> ManifestState | None:
    """The last batch of a stream is forgotten, and what became of its jobs is not."""
    kept = tuple(app for app in state.ingest_apps if app.app_id != self.app_id)
    return None if kept == state.ingest_apps else replace(state, ingest_apps=kept)


async def taken_for_aborted(self: Ending) -> None:
    """Nothing is committed, and the job is said to have been aborted."""
    self._info = IngestInfo(self._job_id, "aborted", 0)


def base_without_log(runtime: Runtime, now_ms: int, end_ms: int, extent: LogExtent) -> CreateCheckpoint:
    """What is in the log only is no part of what an ingest replaces."""
    return CreateCheckpoint(runtime.ids.uuid(), "ingest", now_ms, end_ms, log_end=0, log_ranges=extent.ranges)


async def only_rows(
    rows: AsyncIterator[Columns], open_rows: object, create_ms: int, runtime: Runtime
) -> AsyncGenerator[Columns, None]:
    """A task of an ingest that replaces deletes nothing."""
    async for part in rows:
        yield part


def no_gaps(ssts: Iterable[IngestedSst]) -> list[Gap]:
    """Nobody answers for what lies outside the ranges of tasks."""
    return []
