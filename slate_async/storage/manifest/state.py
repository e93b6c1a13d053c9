"""`ManifestState`: one frozen value that says what the database is.

Invariants (checked by `storage.manifest.successor` before every commit): identity fields never change, unless a removed
database is recreated; epochs, ``log_start``, ``log_floor``, ``last_seq``, ``last_tick_ms``, ``fence_width``,
``sst_floor``, ``last_run_id`` and ``ingest_seq`` never go back, ``history_floor`` and ``expiry_floor_ms`` only when a
removed database is recreated; a database that is ``marked`` stays so until then; L0 SSTs are listed newest first with
disjoint, falling sequence ranges, but for those of one ingest, which share one number and have disjoint keys; ids of
checkpoints, compactions and ingests are unique.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast
from uuid import UUID

import msgspec

from metastores.protocol import VersionRef
from slate_async.codec.records import NO_FIELDS, no_fields
from slate_async.storage.manifest.features import MARKER_FEATURE
from slate_async.types import RangeDelete

LogProtocol = Literal["contiguous", "epoch_prefixed"]
CompactionStyle = Literal["size_tiered", "leveled"]
NO_VERSION = VersionRef(0, "")
THIS_VERSION = VersionRef(0, "")
"""In an edit's result: the version that the commit will make."""


class SstRef(msgspec.Struct, frozen=True, gc=False):
    """A finished SST: where it is and what it spans, never its block metadata. A struct: there may be a hundred
    thousand, whose making and whose looking through by the garbage collector would hold the event loop up.

    location: key relative to the database's path
    object_id: the 16 bytes its header and footer carry
    size: bytes of the object
    rows, tombstones: counts, all versions included
    first_key, last_key: smallest and largest key, inclusive
    min_seq, max_seq: sequence numbers of its rows
    global_seq, global_create_ms: of an ingest: every row's sequence number and write time, whatever is stored
    min_expire_ms, max_expire_ms: expiry times present, ``None`` when no row expires
    writer_epoch: the highest epoch that produced any of its rows
    database_id: the database whose object it is, when that is another one (a parent of this clone)
    swept_seq: range deletes up to this number hide no row of it: those rows were dropped; ``None``: nobody swept it
    unknown: fields of newer versions, kept as they are
    """

    location: str
    object_id: bytes
    size: int
    rows: int
    tombstones: int
    first_key: bytes
    last_key: bytes
    min_seq: int
    max_seq: int
    writer_epoch: int
    min_expire_ms: int | None = None
    max_expire_ms: int | None = None
    global_seq: int | None = None
    global_create_ms: int | None = None
    database_id: UUID | None = None
    swept_seq: int | None = None
    unknown: Mapping[str, Any] = NO_FIELDS


@dataclass(frozen=True, slots=True)
class SortedRun:
    """SSTs with disjoint key ranges in key order; together one sorted sequence. ``level`` is 0 unless the database is
    compacted by levels; there is at most one run of each other level, and lower levels are newer."""

    id: int
    ssts: tuple[SstRef, ...]
    level: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


CheckpointOwner = Literal["user", "writer", "reader", "clone", "feed", "ingest"]
"""Who made a checkpoint, and lengthens it."""


@dataclass(frozen=True, slots=True)
class FeedMark:
    """Where a change feed stands whose subscription retains what it has not delivered.

    seq: rows up to here are not needed any more
    log_seq: every row above it is in the log from ``log_position`` on; rows between ``seq`` and it are in the SSTs of
    the checkpoint's version
    log_position: a position of the log; ``log_floor``: the epoch below which objects from there on are a zombie's
    ingests: SSTs of ingests above ``log_seq``, which were never in the log; as they were applied
    """

    seq: int
    log_seq: int
    log_position: int
    log_floor: int
    ingests: tuple[SstRef, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A version of the manifest that stays readable, with the part of the log that belongs to it.

    ref: the version; `THIS_VERSION` in an edit's result stands for the very version that will hold it
    create_ms, expire_ms: wall clock, milliseconds; ``None`` = never expires
    owner: the role that made it. ``epoch`` is the writer's for owner ``"writer"``, else 0
    log_start, log_end: the log positions it needs, both inclusive; ``log_end`` ``None`` = all from ``log_start`` on
    log_ranges: for the epoch-prefixed log, ``(epoch, first position)`` of the epochs that own those positions
    name: the user's, not unique but among feeds
    feed: of owner ``"feed"``: where it stands
    """

    id: UUID
    ref: VersionRef
    create_ms: int
    owner: CheckpointOwner
    log_start: int
    expire_ms: int | None = None
    log_end: int | None = None
    log_ranges: tuple[tuple[int, int], ...] = ()
    epoch: int = 0
    name: str | None = None
    feed: FeedMark | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over at ``now_ms``."""
        return self.expire_ms is not None and self.expire_ms <= now_ms


@dataclass(frozen=True, slots=True)
class RangeOutput:
    """What one finished key range of a compaction became, in key order; no SST if every row was dropped."""

    index: int
    ssts: tuple[SstRef, ...]
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A registered compaction and what of it is finished: the current compactor resumes or evicts it.

    epoch: the compactor epoch that runs it
    base_version: the manifest version its output is named by; it holds ``sst_floor`` down
    expired_at_ms: the earliest time that a read still has; every part of it judges expiry by this time
    keep_above: versions of a key with higher sequence numbers are all kept, and the newest one up to it
    bottom: nothing older lies below its output, so tombstones end there
    l0, runs: its inputs, neighbours in age order, newest first: object ids and run ids
    ssts: object ids of the SSTs it takes out of ``runs``, which keep the others; ``None`` = all of theirs
    target_run, target_level: the run it makes, or joins: see `slate_async.storage.manifest.compaction_inputs`
    log_end: without a WAL, the last log position it takes; ``None`` = none
    bounds: keys that cut it into ``len(bounds) + 1`` ranges
    finished: outputs of finished ranges, by index
    """

    id: UUID
    epoch: int
    base_version: int
    expired_at_ms: int
    keep_above: int
    bottom: bool
    l0: tuple[bytes, ...]
    runs: tuple[int, ...]
    target_run: int
    target_level: int
    ssts: tuple[bytes, ...] | None = None
    log_end: int | None = None
    bounds: tuple[bytes, ...] = ()
    finished: tuple[RangeOutput, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class SeqTime:
    """Every row up to sequence number ``seq`` was written at ``time_ms`` or before, every later one then or after."""

    seq: int
    time_ms: int
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class SkippedSeqs:
    """No row has a sequence number from ``first`` to ``last``: a writer gave them to rows that an outage has cost."""

    first: int
    last: int
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class Parent:
    """A database some of whose SSTs this clone still names.

    path: its URL, without credentials
    checkpoint_id: the checkpoint in it that holds them; ``None`` for a parent's own parent, held by the parent's
    source_id: the checkpoint in it that was cloned; ``None`` = its head
    detached: nothing here names an SST of it any more; the entry remembers its checkpoint until that is deleted
    """

    database_id: UUID
    path: str
    checkpoint_id: UUID | None = None
    source_id: UUID | None = None
    detached: bool = False
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Says that this database is a mirror, and of what.

    path: its source's URL, without credentials
    checkpoint_id, manifest_version: the checkpoint of the source that it shows; unset before the first is whole
    writer_epoch, compactor_epoch: as that checkpoint has them; another one here, and the mirror was written to
    """

    path: str
    checkpoint_id: UUID | None = None
    manifest_version: int = 0
    writer_epoch: int = 0
    compactor_epoch: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class Ingest:
    """A bulk ingest on its way: registered while its SSTs are made, pending once they are committed; the writer applies
    it then (see `slate_async.storage.manifest.edits.ingests`).

    id: the job's, chosen by the caller
    base_version: its SSTs are named by it; until they are committed it holds ``sst_floor`` down
    begun_ms, expire_ms: wall clock; a job that is registered, or leased, ends at ``expire_ms`` unless it is renewed
    pending: its ``ssts``, in key order with disjoint key ranges, are committed and wait to be applied
    app_id, batch_id, query_id: the batch of a stream that it is, if it is one; which query counts those, if one does
    replaces: the checkpoint of what it replaces, if it does; it is there until the job is committed, or ends
    leased: it ends with its driver: nobody else knows its name; ``None``: no, or its driver left it pending
    digest: of the rows that its tasks were given, if they made one (see `slate_async.engine.ingest.digest`)
    """

    id: str
    base_version: int
    begun_ms: int
    expire_ms: int
    pending: bool = False
    ssts: tuple[SstRef, ...] = ()
    app_id: str | None = None
    batch_id: int = 0
    replaces: UUID | None = None
    query_id: str | None = None
    leased: bool | None = None
    digest: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


IngestEnd = Literal["applied", "aborted", "expired", "duplicate"]
IngestOutcome = Literal["admitted", "withdrawn", "expired", "repeated"]
"""As it is stored; `OUTCOME_NAMES` has the terms."""
APPLIED: Final = "admitted"
ABORTED: Final = "withdrawn"
EXPIRED: Final = "expired"
DUPLICATE: Final = "repeated"
OUTCOME_NAMES: Final[Mapping[IngestOutcome, IngestEnd]] = {
    APPLIED: "applied",
    ABORTED: "aborted",
    EXPIRED: "expired",
    DUPLICATE: "duplicate",
}


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """What became of an ingest that has ended.

    outcome: `DUPLICATE`: the batch was there already, so this job's SSTs were not taken
    seq, rows: the number its rows were applied under, and how many were, deletes counted; 0 if none
    shown: of one that was applied: the writer's own reads see it, so it may be reported
    replacing: it was to replace what was there; ``None``: no
    deletes, ssts, size: of what was applied: rows that are deletes, SSTs and their bytes; ``None`` if nothing was
    leased: it ended with its driver, and never begins anew; ``None``: no. digest: of an applied one, as of an `Ingest`
    """

    id: str
    outcome: IngestOutcome
    ended_ms: int
    seq: int = 0
    rows: int = 0
    app_id: str | None = None
    batch_id: int = 0
    shown: bool = True
    replacing: bool | None = None
    deletes: int | None = None
    ssts: int | None = None
    size: int | None = None
    leased: bool | None = None
    digest: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def end(self) -> IngestEnd:
        """The outcome in today's terms; a word of a later release as it is."""
        return cast(IngestEnd, OUTCOME_NAMES.get(self.outcome, self.outcome))


@dataclass(frozen=True, slots=True)
class AppBatch:
    """The newest batch of stream ``app_id`` that was applied, and all before it, as query ``query_id`` counts them."""

    app_id: str
    batch_id: int
    query_id: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class ManifestState:
    """See the module docstring. ``ref`` is ``(0, "")`` until the first commit.

    initialized: false while a clone, or a mirror's first state, is being made
    destroyed_at_ms: when it was destroyed; no process opens it from then on
    removed: destroyed, and its contents given up: this version is its tombstone. A database recreated on the same path
    continues from it
    ingest_seq: the highest sequence number under which an ingest was applied
    skipped: numbers above ``history_floor`` that no row has, ascending; ``None``: none
    heartbeat_interval_ms: how often the newest writer says that it lives; ``None``: it does not
    store_id, marked: of a database with the feature `MARKER_FEATURE`: the store id in its place's marker. Until it is
    marked nothing of it is anywhere, and ``store_id`` is that of the database it was recreated in place of, or unset
    merge_operator: name of what merges the operands of its keys; ``None``: nothing does, and it has none
    """

    # fixed at creation
    database_id: UUID
    log_protocol: LogProtocol
    wal_enabled: bool
    created_ms: int
    properties: Mapping[str, str] = field(default_factory=no_fields)
    merge_operator: str | None = None
    # the version this state is
    ref: VersionRef = NO_VERSION
    # the place its objects are in
    store_id: UUID | None = None
    marked: bool = False
    # ownership
    initialized: bool = True
    destroyed_at_ms: int | None = None
    removed: bool = False
    writer_epoch: int = 0
    writer_token: str = ""
    compactor_epoch: int = 0
    compactor_token: str = ""
    fence_width: int = 1
    heartbeat_interval_ms: int | None = None
    # positions
    log_start: int = 1
    log_last_seen: int = 0
    log_floor: int = 0
    last_seq: int = 0
    last_tick_ms: int = 0
    sst_floor: int = 0
    last_run_id: int = 0
    # contents, newest first
    l0: tuple[SstRef, ...] = ()
    runs: tuple[SortedRun, ...] = ()
    # range deletes that may hide rows of these, ascending by number; ``None``: none
    range_deletes: tuple[RangeDelete, ...] | None = None
    # what must stay beside the contents
    checkpoints: tuple[Checkpoint, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    parents: tuple[Parent, ...] = ()
    mirrored: Mirrored | None = None
    # bulk ingests: those on their way, the oldest first; what became of the last ones; the streams they came from
    ingests: tuple[Ingest, ...] = ()
    ingest_records: tuple[IngestRecord, ...] = ()
    ingest_apps: tuple[AppBatch, ...] = ()
    ingest_seq: int = 0
    # history: how much is kept, from which sequence number and which time of expiry on it is exact, when numbers were
    # written (ascending)
    retention_ms: int = 0
    history_floor: int = 0
    expiry_floor_ms: int = 0
    seq_times: tuple[SeqTime, ...] = ()
    skipped: tuple[SkippedSeqs, ...] | None = None
    compaction: CompactionStyle = "size_tiered"
    # compatibility
    required_features: tuple[str, ...] = ()
    optional_features: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def version(self) -> int:
        """The manifest version this state was committed as."""
        return self.ref.version

    @property
    def has_marker(self) -> bool:
        """Whether a marker proves its place, or will."""
        return MARKER_FEATURE in self.required_features

    def ssts(self) -> Iterator[SstRef]:
        """Every SST it reads from, newest first."""
        yield from self.l0
        for run in self.runs:
            yield from run.ssts

    def checkpoint(self, checkpoint_id: UUID) -> Checkpoint | None:
        """The checkpoint of that id, expired or not."""
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.id == checkpoint_id), None)

    @property
    def skipped_end(self) -> int:
        """The highest sequence number that no row will ever have; 0 if there is none."""
        return self.skipped[-1].last if self.skipped else 0

    def rows_up_to(self, seq: int) -> int:
        """``seq`` less the numbers up to it that no row has: of rows one after another, one more each."""
        return seq - sum(max(0, min(seq, span.last) - span.first + 1) for span in self.skipped or ())

    @property
    def log_held_from(self) -> int:
        """The first log position that is still read: where the log starts, or earlier for a change feed."""
        return min(
            [self.log_start, *(checkpoint.log_start for checkpoint in self.checkpoints if checkpoint.owner == "feed")]
        )


def of_one_ingest(newer: SstRef, older: SstRef) -> bool:
    """Whether two neighbours in L0 were applied together: one sorted sequence, in key order."""
    return newer.global_seq is not None and newer.global_seq == older.global_seq


def in_order(newer: SstRef, older: SstRef) -> bool:
    """Whether ``newer`` may stand right before ``older`` in L0."""
    if of_one_ingest(newer, older):
        return newer.last_key < older.first_key
    return newer.min_seq > older.max_seq


def l0_units(l0: Sequence[SstRef]) -> list[tuple[SstRef, ...]]:
    """``l0`` as sorted sequences, newest first: an SST by itself, or all of one ingest in key order."""
    units: list[tuple[SstRef, ...]] = []
    start = 0
    for at in range(1, len(l0) + 1):
        if at == len(l0) or not of_one_ingest(l0[at - 1], l0[at]):
            units.append(tuple(l0[start:at]))
            start = at
    return units


def settle(state: ManifestState, ref: VersionRef) -> ManifestState:
    """``state`` as version ``ref`` stores it: `THIS_VERSION` in its checkpoints replaced. Its own ``ref`` stays."""
    if all(checkpoint.ref != THIS_VERSION for checkpoint in state.checkpoints):
        return state
    named = tuple(replace(held, ref=ref) if held.ref == THIS_VERSION else held for held in state.checkpoints)
    return replace(state, checkpoints=named)
