"""Edits of bulk ingests (see `slate_async.storage.manifest.edits.protocol` for what an edit is).

A job is *registered*, which keeps collectors from its SSTs; *committed*: its SSTs are pending, and stay whatever
happens, unless it is *leased*: then it expires once its driver renews it no longer; *applied* by the writer, in one
step with everything written before, under a sequence number of its own, and *shown* once that writer's own reads see
it: its owner learns of it only then; or it ends before that. Of a job that has ended a record stays, the mark of every
edit of it: one of the last `MAX_RECORDS` of batches of streams, or of the last `MAX_RECORDS` of others, whose name
alone says that they are done.

Rule 30: only the owner of the writer's epoch orders data. So a commit gives no sequence number, and a pending ingest is
never read.

Rule 31: a leased job that has ended never begins anew, and is never applied. Its end is an edit, as its renewal and its
application are: of two of them the second finds what the first one did.

Rules 30 and 31: docs/design/protocol-rules.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from slate_async.errors import ConflictError, InvalidError, Outcome
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.protocol import check_usable, check_writer
from slate_async.storage.manifest.features import LEASE_FEATURE
from slate_async.storage.manifest.state import (
    ABORTED,
    APPLIED,
    DUPLICATE,
    EXPIRED,
    AppBatch,
    Checkpoint,
    Ingest,
    IngestOutcome,
    IngestRecord,
    ManifestState,
    SstRef,
)

MAX_RECORDS = 256
"""What became of so many ended jobs of either kind is remembered: some 20 KB of a full manifest version each."""
MAX_JOBS = 256
"""Jobs on their way at once."""
MAX_APPS = 1_000
"""Streams whose last batch is remembered. None is forgotten by itself: its batches could be taken twice then."""
FEATURE = "ingest"


class OthersWaitError(ConflictError):
    """A job that replaces what is there cannot begin: others wait to be applied."""


class UnknownStreamError(InvalidError):
    """Nothing is known of the batches before this one."""


class Batch(NamedTuple):
    """Batch ``batch_id`` of stream ``app_id``, as query ``query_id`` counts it, if that is known. Numbers of one stream
    rise.

    first: of a stream that is not known, the last batch that may come first, from a query of no other; ``None``: any"""

    app_id: str
    batch_id: int
    query_id: str | None = None
    first: int | None = None


# ---- what a state says


def find_ingest(state: ManifestState, job_id: str) -> Ingest | None:
    """The job, registered or pending."""
    return next((ingest for ingest in state.ingests if ingest.id == job_id), None)


def find_record(state: ManifestState, job_id: str) -> IngestRecord | None:
    """What became of the job, if it has ended not too long ago."""
    return next((record for record in reversed(state.ingest_records) if record.id == job_id), None)


def pending_ingests(state: ManifestState) -> tuple[Ingest, ...]:
    """Those that wait for a writer, the oldest first."""
    return tuple(ingest for ingest in state.ingests if ingest.pending)


def lease_ended(job: Ingest, judged_ms: int) -> bool:
    """Whether nobody has renewed a pending job whose driver must, at ``judged_ms``: a wall clock less the allowed
    skew."""
    return bool(job.leased) and job.pending and job.expire_ms <= judged_ms


def unreported_ingests(state: ManifestState) -> bool:
    """Whether some were applied that are not reported to their owners yet."""
    return any(not record.shown for record in state.ingest_records)


def applied_batch(state: ManifestState, app_id: str) -> int | None:
    """The newest batch of the stream that is in the database."""
    return next((app.batch_id for app in state.ingest_apps if app.app_id == app_id), None)


def committed_batch(state: ManifestState, app_id: str) -> int | None:
    """The newest batch of the stream that is in the database, or waits to be."""
    waiting = [ingest.batch_id for ingest in state.ingests if ingest.pending and ingest.app_id == app_id]
    newest = applied_batch(state, app_id)
    return max([*waiting, *([] if newest is None else [newest])], default=None)


def counting_query(state: ManifestState, app_id: str) -> str | None:
    """The query that counts the stream's batches, of those in the database and those that wait; ``None``: not known."""
    pending = (ingest.query_id for ingest in pending_ingests(state) if ingest.app_id == app_id)
    applied = (app.query_id for app in state.ingest_apps if app.app_id == app_id)
    return next((query_id for query_id in (*pending, *applied) if query_id is not None), None)


# ---- the life of a job


@dataclass(frozen=True, slots=True)
class RegisterIngest:
    """Begin job ``id``: from here on its SSTs are spared, until ``expire_ms`` or its end. A registered job is
    lengthened once half of such a life is over, because the driver that resumes it may come late. A job that was
    aborted, or has expired, may begin anew, unless it was ``leased``; one that is applied stays so.

    leased: it is to end with its driver
    replaces: the checkpoint to make of what the job is to replace; of one that is on its way, the first one stays.
    Nothing may wait to be applied then: it would be no part of the checkpoint, and come in before the job"""

    id: str
    now_ms: int
    expire_ms: int
    replaces: CreateCheckpoint | None = None
    leased: bool = False

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is the job, or its record. Raises `InvalidError` if there are too many, or if it is on its way and
        replaces what was there where this one does not, or the other way round; `ConflictError` if it was leased and
        has ended; `OthersWaitError`."""
        job, ended = find_ingest(state, self.id), find_record(state, self.id)
        if job is not None:
            self._check_same(replacing=job.replaces is not None)
            return self._longer(state, job)
        if ended is not None and ended.outcome in (APPLIED, DUPLICATE):
            self._check_same(replacing=bool(ended.replacing))
            return None
        if ended is not None and ended.leased:
            raise ConflictError(
                f"ingest {self.id!r} was {ended.end}, and does not begin anew: it was to end with its driver",
                outcome="not_applied",
            )
        check_usable(state)
        if len(state.ingests) >= MAX_JOBS:
            raise InvalidError(
                f"{len(state.ingests)} ingests are under way, the most there may be; abort one that no driver"
                " will finish",
                outcome="not_applied",
            )
        begun = Ingest(self.id, state.version, self.now_ms, self.expire_ms, leased=True if self.leased else None)
        if self.replaces is not None:
            if waiting := pending_ingests(state):
                raise OthersWaitError(
                    f"ingest {waiting[0].id!r} waits to be applied; open the database to write, or abort the ingest",
                    outcome="not_applied",
                )
            state = self.replaces.apply(state) or state
            begun = replace(begun, replaces=self.replaces.id)
        records = tuple(record for record in state.ingest_records if record.id != self.id)
        return replace(state, ingests=(*state.ingests, begun), ingest_records=records)

    def _check_same(self, *, replacing: bool) -> None:
        if replacing != (self.replaces is not None):
            known, asked = ("replaces what was there", "adds") if replacing else ("adds rows", "replaces")
            raise InvalidError(
                f"ingest {self.id!r} {known}, and was begun so; one that {asked} needs another job id",
                outcome="not_applied",
            )

    def _longer(self, state: ManifestState, job: Ingest) -> ManifestState | None:
        if job.pending or job.expire_ms >= (self.now_ms + self.expire_ms) // 2:
            return None
        return _lengthened(state, job, self.expire_ms)


@dataclass(frozen=True, slots=True)
class RenewIngest:
    """Let a registered job live until ``expire_ms``."""

    id: str
    expire_ms: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Changes nothing of one that is committed or has ended. Raises `ConflictError` if there is none."""
        job = _on_its_way(state, self.id)
        if job is None or job.pending or job.expire_ms >= self.expire_ms:
            return None
        return _lengthened(state, job, self.expire_ms)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Let a committed job that is leased wait until ``expire_ms``. ``base_version``: of the job that is meant."""

    id: str
    base_version: int
    expire_ms: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Changes nothing of one that has no lease, or is applied. Raises `ConflictError` if it has ended: what has
        expired stays so."""
        job = _on_its_way(state, self.id, of_base=self.base_version)
        if job is None or not (job.pending and job.leased) or job.expire_ms >= self.expire_ms:
            return None
        return _lengthened(state, job, self.expire_ms)


@dataclass(frozen=True, slots=True)
class CommitIngest:
    """Let ``ssts``, in key order, wait to be applied. Asked for again, whatever was asked first stands. Of those that
    replace what was there, and do not know of each other, the first to be committed wins: the others end.

    batch: which batch of a stream it is; if that one, or a later one, is there or waits, the job ends without effect.
    The first query that says it counts them does so for good; if batches came in before that, it begins with the
    newest or later
    base_version: of the job whose tasks made ``ssts``: an earlier job of the same id may have ended
    alone: ``(epoch, sequence number)``: of the writer that this driver has become, which it must be still; of what the
    job replaces: nothing has come in since, nor waits
    lease_ms: of a leased job: until when it may be applied unless it is renewed; ``None``: it stays until it is applied
    digest: of the rows that its tasks were given, if they made one
    """

    database_id: UUID
    id: str
    base_version: int
    ssts: tuple[SstRef, ...]
    now_ms: int
    batch: Batch | None = None
    alone: tuple[int, int] | None = None
    lease_ms: int | None = None
    digest: int | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that the job is pending, or its record. Raises `ConflictError` if the job has ended, or never
        began; `InvalidError` for SSTs that cannot belong together."""
        if state.database_id != self.database_id:
            raise InvalidError("another database was made in this one's place", outcome="not_applied")
        job = _on_its_way(state, self.id, of_base=self.base_version)
        if job is None or job.pending:
            return None
        check_usable(state)
        self._check_ssts()
        if self.alone is not None:
            self._check_alone(state, *self.alone)
        if self.base_version < state.sst_floor:
            raise ConflictError(
                f"GC may have deleted SSTs of ingest {self.id!r} already; begin it again", outcome="not_applied"
            )
        if self.batch is not None:
            _check_stream(state, self.batch, before := committed_batch(state, self.batch.app_id))
            if before is not None and before >= self.batch.batch_id:
                return end_ingest(state, job, DUPLICATE, self.now_ms, batch=self.batch)
            if before is None and len(state.ingest_apps) >= MAX_APPS:
                raise InvalidError(
                    f"{MAX_APPS} streams have a last batch already, the most: forget one (admin.ingests.apps)",
                    outcome="not_applied",
                )
        if job.replaces is not None:
            state = self._without_rivals(state)
        if not self.ssts:
            done = end_ingest(state, replace(job, digest=self.digest), APPLIED, self.now_ms, batch=self.batch)
            return done if self.batch is None else replace(done, ingest_apps=with_batch(done, self.batch))
        waiting = replace(job, pending=True, ssts=self.ssts, leased=None, digest=self.digest)
        if self.batch is not None:
            app_id, batch_id, query_id, _ = self.batch
            waiting = replace(waiting, app_id=app_id, batch_id=batch_id, query_id=query_id)
        if job.leased and self.lease_ms is not None:
            waiting = replace(waiting, leased=True, expire_ms=self.lease_ms)
            state = with_feature(state, LEASE_FEATURE)
        # the last in line, for its batch may follow one that was committed after this job began
        others = tuple(ingest for ingest in state.ingests if ingest is not job)
        return replace(state, ingests=(*others, waiting), checkpoints=_without_base(state, job))

    def _without_rivals(self, state: ManifestState) -> ManifestState:
        for ingest in state.ingests:
            if ingest.id != self.id and ingest.replaces is not None and not ingest.pending:
                state = end_ingest(state, ingest, ABORTED, self.now_ms)
        return state

    def _check_alone(self, state: ManifestState, epoch: int, replaced_seq: int) -> None:
        check_writer(state, epoch)
        if state.last_seq > replaced_seq or pending_ingests(state):
            raise ConflictError(
                f"ingest {self.id!r} replaces all rows, but another ingest was applied meanwhile; begin it again",
                outcome="not_applied",
            )

    def _check_ssts(self) -> None:
        for before, after in pairwise(self.ssts):
            if before.last_key >= after.first_key:
                raise InvalidError(
                    "two tasks wrote overlapping keys: partition by ranges of keys (in Spark: repartitionByRange before"
                    f" save, or bulk_load with sort_mode='global'). One ends at {before.last_key[:64]!r}, another one"
                    f" begins at {after.first_key[:64]!r} (SSTs {before.location} and {after.location})",
                    outcome="not_applied",
                )


@dataclass(frozen=True, slots=True)
class AbortIngest:
    """End job ``id`` before it is applied; ``unless_pending``: before it is committed. Nothing is deleted: collectors
    find what nothing names any more.

    base_version: of the job that is meant: one of its name may have been begun anew. ``None``: whichever is there"""

    id: str
    now_ms: int
    unless_pending: bool = False
    base_version: int | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that the job is not on its way, or spared. Raises `ConflictError` if a later batch of its stream
        waits."""
        job = find_ingest(state, self.id)
        if job is None or (job.pending and self.unless_pending) or self.base_version not in (None, job.base_version):
            return None
        if job.pending and job.app_id is not None:
            last = committed_batch(state, job.app_id)
            if last is not None and last > job.batch_id:
                raise ConflictError(
                    f"batch {last} of {job.app_id!r} waits behind batch {job.batch_id}; abort that one first",
                    outcome="not_applied",
                )
        return end_ingest(state, job, ABORTED, self.now_ms)


@dataclass(frozen=True, slots=True)
class ForgetApp:
    """Forget a stream that has ended: its last batch, and the records of its jobs, whose names a stream of the same app
    id may use again."""

    app_id: str

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that nothing is remembered. Raises `ConflictError` while a batch waits to be applied, or to be
        reported to its owner."""
        if waiting := self._waiting(state):
            raise ConflictError(
                f"ingest {waiting!r} of app {self.app_id!r} is committed, and not in yet: a writer applies it soon"
                " after it opens the database; or abort the ingest. Then forget the app",
                outcome="not_applied",
            )
        apps = tuple(app for app in state.ingest_apps if app.app_id != self.app_id)
        records = tuple(record for record in state.ingest_records if record.app_id != self.app_id)
        if (len(apps), len(records)) == (len(state.ingest_apps), len(state.ingest_records)):
            return None
        return replace(state, ingest_apps=apps, ingest_records=records)

    def _waiting(self, state: ManifestState) -> str | None:
        unreported = (record for record in state.ingest_records if not record.shown)
        jobs: tuple[Ingest | IngestRecord, ...] = (*pending_ingests(state), *unreported)
        return next((job.id for job in jobs if job.app_id == self.app_id), None)


def without_expired(state: ManifestState, now_ms: int) -> ManifestState:
    """``state`` with the jobs ended that no driver committed or renewed in time."""
    for job in state.ingests:
        if (not job.pending and job.expire_ms <= now_ms) or lease_ended(job, now_ms):
            state = end_ingest(state, job, EXPIRED, now_ms)
    return state


def without_registered(state: ManifestState, now_ms: int) -> ManifestState:
    """``state`` with the jobs ended that are not committed."""
    for job in state.ingests:
        if not job.pending:
            state = end_ingest(state, job, EXPIRED, now_ms)
    return state


# ---- parts


def with_feature(state: ManifestState, feature: str) -> ManifestState:
    """``state``, which releases that do not know ``feature`` refuse."""
    known = state.required_features
    return state if feature in known else replace(state, required_features=(*known, feature))


def _on_its_way(state: ManifestState, job_id: str, *, of_base: int | None = None) -> Ingest | None:
    """The job; ``None`` if it has ended with effect. Raises `ConflictError` if it has ended without, or never began; as
    far as is known: what became of a job is forgotten in time."""
    job, ended = find_ingest(state, job_id), find_record(state, job_id)
    if job is not None and (of_base is None or job.base_version == of_base):
        return job
    if job is None and ended is not None and ended.outcome in (APPLIED, DUPLICATE):
        return None
    why = "it is not registered"
    if job is not None:
        why = "it had ended, and was begun anew"
    elif ended is not None and ended.outcome == EXPIRED:
        why = "it expired: its driver did not renew it in time"
    elif ended is not None:
        why = f"it was {ended.end}, by hand or by another ingest that replaced everything first"
    outcome: Outcome = "unknown" if ended is None else "not_applied"
    raise ConflictError(f"ingest {job_id!r} cannot go on: {why}; begin again", outcome=outcome)


def _lengthened(state: ManifestState, job: Ingest, expire_ms: int) -> ManifestState:
    """The job lives until ``expire_ms``, and so does the checkpoint of what it replaces."""
    longer = replace(job, expire_ms=expire_ms)
    checkpoints = (
        replace(checkpoint, expire_ms=expire_ms) if checkpoint.id == job.replaces else checkpoint
        for checkpoint in state.checkpoints
    )
    return replace(
        state,
        ingests=tuple(longer if ingest is job else ingest for ingest in state.ingests),
        checkpoints=tuple(checkpoints),
    )


def end_ingest(
    state: ManifestState,
    job: Ingest,
    outcome: IngestOutcome,
    now_ms: int,
    *,
    seq: int = 0,
    batch: Batch | None = None,
) -> ManifestState:
    """``seq``: the number of its rows, if they are applied; the writer's own reads are to show them then."""
    app_id, batch_id = (job.app_id, job.batch_id) if batch is None else batch[:2]
    record = IngestRecord(job.id, outcome, now_ms, app_id=app_id, batch_id=batch_id, leased=job.leased)
    if job.replaces is not None:
        record = replace(record, replacing=True)
    if outcome == APPLIED:
        record = replace(record, digest=job.digest)
    if seq:
        rows, deletes, size = (sum(getattr(sst, name) for sst in job.ssts) for name in ("rows", "tombstones", "size"))
        record = replace(record, seq=seq, rows=rows, shown=False, deletes=deletes, ssts=len(job.ssts), size=size)
    records = [record for record in state.ingest_records if record.id != job.id]
    alike = [record for record in records if (record.app_id is None) == (app_id is None)]
    forgotten = alike[: len(alike) + 1 - MAX_RECORDS] if len(alike) >= MAX_RECORDS else []
    return replace(
        state,
        ingests=tuple(ingest for ingest in state.ingests if ingest.id != job.id),
        checkpoints=_without_base(state, job),
        ingest_records=(*(kept for kept in records if kept not in forgotten), record),
    )


def _without_base(state: ManifestState, job: Ingest) -> tuple[Checkpoint, ...]:
    """The checkpoints without that of what ``job`` replaces."""
    return tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.id != job.replaces)


def with_batch(state: ManifestState, batch: Batch) -> tuple[AppBatch, ...]:
    others = tuple(app for app in state.ingest_apps if app.app_id != batch.app_id)
    known = applied_batch(state, batch.app_id)
    query_id = counting_query(state, batch.app_id) if batch.query_id is None else batch.query_id
    newest = batch.batch_id if known is None else max(known, batch.batch_id)
    return (*others, AppBatch(batch.app_id, newest, query_id))


def counts_anew(batch: Batch, newest: int | None) -> bool:
    """Whether a query cannot have brought the batches of its app up to ``newest``, which named none. It may bring the
    newest again, of which it has not learnt that it is in; but batch 0 is that of any query that begins."""
    return newest is not None and batch.batch_id < max(newest, 1)


def _check_stream(state: ManifestState, batch: Batch, newest: int | None) -> None:
    known = counting_query(state, batch.app_id)
    if batch.query_id is not None and known is None and counts_anew(batch, newest):
        raise InvalidError(
            f"the batches of app {batch.app_id!r} up to {newest} are in, or wait, and name no query: batch"
            f" {batch.batch_id} comes from query {batch.query_id}, which counts anew. A new query goes with another app"
            " id; or forget the batches of this one (admin.ingests.forget_app)",
            outcome="not_applied",
        )
    if known is not None and batch.query_id not in (None, known):
        raise InvalidError(
            f"the batches of app {batch.app_id!r} are counted by query {known}, and this one comes from query"
            f" {batch.query_id}, which counts anew: with another checkpoint goes another app id; or forget the batches"
            " of this one (admin.ingests.forget_app)",
            outcome="not_applied",
        )
    if batch.first is None:
        return
    counts: list[Ingest | AppBatch] = [*pending_ingests(state), *state.ingest_apps]
    if any(None is not of.query_id == batch.query_id and of.app_id != batch.app_id for of in counts):
        said = (
            f"query {batch.query_id} has another app id than {batch.app_id!r} here: what it repeats would be in twice"
        )
        raise InvalidError(f"{said}. Keep that; or begin with another checkpoint", outcome="not_applied")
    if newest is None and batch.batch_id > batch.first:
        raise UnknownStreamError("it knows none", outcome="not_applied")
