"""What a database says about itself: plain values, cheap to read, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slate_async.objectstore.costs import MonthlyRequests


@dataclass(frozen=True, slots=True)
class Status:
    """A database at one moment.

    path: its URL, without credentials
    state: ``"open"``, ``"degraded"`` (open, but its store or metadata do not answer), ``"closing"``, ``"closed"``,
    ``"fenced"`` or ``"failed"``
    epoch: this writer's epoch
    manifest_version: the newest manifest version adopted
    log_start, log_end: first log position not in L0 or runs; last position acknowledged
    log_objects: positions of the log that the next opening would read
    replay_ms: about how long that would take, ``None`` while nothing says how fast the store is
    last_seq, durable_seq: highest sequence number applied; highest one acknowledged durable
    memtables, memtable_bytes: tables in memory, the active one included; estimated bytes held
    unflushed_bytes: bytes counted against ``max_unflushed_bytes``
    flushes_in_flight: log objects on their way
    waiting_writes: writes held back by ``max_unflushed_bytes``
    l0_ssts, sorted_runs: SSTs the log and L0 hold; sorted runs
    sst_bytes: bytes of all SSTs the manifest names
    compactor: what compacts the database, in words
    compactions: compactions under way, here or elsewhere
    l0_stall: why the writer waits for compaction, ``None`` if it does not
    ingests, pending_ingests: bulk ingests whose SSTs are being made; those that wait to be applied
    last_contact_ms: how long ago store or metadata last answered
    oldest_unacknowledged_ms: age of the oldest write that waits to be durable, ``None`` without one
    outage: why writes are refused until the store answers again, ``None`` if they are not
    monthly_requests: the requests of a month that goes on as it did since the store's client was opened, of all that
        share the `Environment` and the bucket; ``None`` in the first ten seconds
    """

    path: str
    database_id: str
    state: Literal["open", "degraded", "closing", "closed", "fenced", "failed"]
    log_protocol: str
    wal_enabled: bool
    epoch: int
    manifest_version: int
    log_start: int
    log_end: int
    log_objects: int
    replay_ms: int | None
    last_seq: int
    durable_seq: int
    memtables: int
    memtable_bytes: int
    unflushed_bytes: int
    flushes_in_flight: int
    waiting_writes: int
    l0_ssts: int
    sorted_runs: int
    sst_bytes: int
    compactor: str
    compactions: int
    l0_stall: str | None
    ingests: int = 0
    pending_ingests: int = 0
    last_contact_ms: int = 0
    oldest_unacknowledged_ms: int | None = None
    outage: str | None = None
    monthly_requests: MonthlyRequests | None = None


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """A reader at one moment.

    path: the database's URL, without credentials
    state: ``"open"``, ``"closing"``, ``"closed"`` or ``"failed"``
    following: whether it follows the database; else it reads one checkpoint
    checkpoint: the checkpoint it reads, or the newest that it made; ``None`` without one
    checkpoints: how many that manifest version names, whoever's, expired ones that were not collected yet included
    own_checkpoints: how many it made and holds, those of unfinished scans included
    manifest_version: the manifest version it reads
    log_start, log_end: first log position not in L0 or runs; last position replayed
    last_seq: highest sequence number it sees
    lag_ms: age of what it shows: everything durable so long ago is in; ``None`` for a checkpoint
    failed_polls: polls in a row that got no answer
    memtables, memtable_bytes: tables of replayed rows; estimated bytes held
    l0_ssts, sorted_runs: SSTs the log and L0 hold; sorted runs
    sst_bytes: bytes of all SSTs the manifest names
    monthly_requests: as in `Status`
    """

    path: str
    database_id: str
    state: Literal["open", "closing", "closed", "fenced", "failed"]
    log_protocol: str
    wal_enabled: bool
    following: bool
    checkpoint: str | None
    checkpoints: int
    own_checkpoints: int
    manifest_version: int
    log_start: int
    log_end: int
    last_seq: int
    lag_ms: int | None
    failed_polls: int
    memtables: int
    memtable_bytes: int
    l0_ssts: int
    sorted_runs: int
    sst_bytes: int
    monthly_requests: MonthlyRequests | None = None


@dataclass(frozen=True, slots=True)
class CompactorStatus:
    """A compactor at one moment.

    path: the database's URL, without credentials
    state: ``"open"``, ``"closing"``, ``"closed"``, ``"fenced"`` or ``"failed"``
    epoch: this compactor's epoch; 0 once it has given the role up
    style: ``"size_tiered"`` or ``"leveled"``
    manifest_version: the newest manifest version seen
    running, registered: compactions under way in this process; those the manifest holds
    l0_ssts, sorted_runs, sst_bytes: of that manifest version
    """

    path: str
    database_id: str
    state: Literal["open", "closing", "closed", "fenced", "failed"]
    epoch: int
    style: Literal["size_tiered", "leveled"]
    manifest_version: int
    running: int
    registered: int
    l0_ssts: int
    sorted_runs: int
    sst_bytes: int
