"""Edits by which the writer lets committed ingests in (see `slate_async.storage.manifest.edits.ingests`).

Rules 30 and 31: docs/design/protocol-rules.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from slate_async.errors import InternalError
from slate_async.storage.manifest.edits.ingests import (
    FEATURE,
    Batch,
    end_ingest,
    lease_ended,
    pending_ingests,
    unreported_ingests,
    with_batch,
    with_feature,
)
from slate_async.storage.manifest.edits.logged import LogIntoL0
from slate_async.storage.manifest.edits.protocol import check_writer
from slate_async.storage.manifest.edits.subscriptions import keep_for_feeds
from slate_async.storage.manifest.edits.writer import AddL0, WriterPin, pinned
from slate_async.storage.manifest.history import sampled
from slate_async.storage.manifest.state import APPLIED, EXPIRED, Ingest, ManifestState


@dataclass(frozen=True, slots=True)
class ApplyIngests:
    """Rule 30: the writer lets pending ingests in, under ``first_seq`` and the sequence numbers after it, in one step
    with everything that was written before; nothing is written meanwhile, so the next row comes after the state's
    ``last_seq``.

    ids: the jobs, in the order of their sequence numbers; one that was aborted meanwhile takes none
    flush: the L0 flush of what is left in memory; ``log``: without a WAL. One of them, or neither if nothing is left
    now_ms: the write time of the rows; it does not go back
    judged_ms: the writer's clock less the skew that clocks may have: a job whose lease ended by then expires, and takes
        no number
    """

    epoch: int
    ids: tuple[str, ...]
    first_seq: int
    now_ms: int
    flush: AddL0 | None = None
    log: LogIntoL0 | None = None
    log_floor: int = 0
    pin: WriterPin | None = None
    judged_ms: int = 0

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's and the log starts where it did. Its mark is that of the flush,
        else that none of the jobs is pending. Raises `ConflictError` if a compactor took of the log meanwhile."""
        check_writer(state, self.epoch)
        chosen = {ingest.id: ingest for ingest in pending_ingests(state) if ingest.id in self.ids}
        if self.flush is not None:
            flushed = self.flush.apply(state)
            if flushed is None:
                return None
            state = flushed
        elif not chosen:
            return None
        if self.log is not None:
            state = self.log.into(state, self.log_floor, self.now_ms)
        if state.last_seq >= self.first_seq:
            raise InternalError(
                f"an ingest is to be applied under {self.first_seq}, and {state.last_seq} was given already"
            )
        waiting = [chosen[job_id] for job_id in self.ids if job_id in chosen]
        for job in [job for job in waiting if lease_ended(job, self.judged_ms)]:
            waiting.remove(job)
            state = end_ingest(state, job, EXPIRED, self.now_ms)
        for seq, job in enumerate(waiting, self.first_seq):
            state = _applied(state, job, seq, self.now_ms)
        return state if self.pin is None else pinned(state, self.pin)


@dataclass(frozen=True, slots=True)
class ShowIngests:
    """The writer has adopted the state that applied them: they may be reported."""

    epoch: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's. Its mark is that all are reported."""
        check_writer(state, self.epoch)
        if not unreported_ingests(state):
            return None
        records = tuple(record if record.shown else replace(record, shown=True) for record in state.ingest_records)
        return replace(state, ingest_records=records)


def _applied(state: ManifestState, job: Ingest, seq: int, now_ms: int) -> ManifestState:
    tick = max(state.last_tick_ms, now_ms)
    numbers = {"min_seq": seq, "max_seq": seq, "global_seq": seq, "global_create_ms": tick}
    ssts = tuple(structs.replace(sst, **numbers) for sst in job.ssts)
    done = end_ingest(state, job, APPLIED, now_ms, seq=seq)
    batch = None if job.app_id is None else Batch(job.app_id, job.batch_id, job.query_id)
    apps = state.ingest_apps if batch is None else with_batch(state, batch)
    return replace(
        with_feature(done, FEATURE),
        l0=(*ssts, *state.l0),
        checkpoints=keep_for_feeds(state.checkpoints, ssts),
        last_seq=seq,
        ingest_seq=seq,
        last_tick_ms=tick,
        seq_times=sampled(state, seq, tick),
        ingest_apps=apps,
    )
