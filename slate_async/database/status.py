"""What a database says about itself: plain values, cheap to read, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slate_async.database.handle import HandleState
from slate_async.engine.compaction.open import OpenedCompactor
from slate_async.engine.context import DatabaseContext
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.source import ReaderSource
from slate_async.engine.write.open import Opened
from slate_async.errors import SlateError
from slate_async.objectstore.costs import MonthlyRequests


@dataclass(frozen=True, slots=True)
class Status:
    """The state of an open database.

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
    range_deletes: range deletes that compaction has not used up, in memory or stored
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
    range_deletes: int
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
    """The state of a reader.

    path: the database's URL, without credentials
    state: ``"open"``, ``"closing"``, ``"closed"`` or ``"failed"``
    following: whether it follows the database; else it reads one checkpoint
    checkpoint: the checkpoint it reads, or the newest that it made; ``None`` without one
    checkpoints: how many that manifest version names, of all owners, with expired ones that GC has not removed yet
    own_checkpoints: how many it made and holds, those of unfinished scans included
    manifest_version: the manifest version it reads
    log_start, log_end: first log position not in L0 or runs; last position replayed
    last_seq: highest sequence number it sees
    lag_ms: age of what it shows: everything durable so long ago is in; ``None`` for a checkpoint
    failed_polls: polls in a row that got no answer
    memtables, memtable_bytes: tables of replayed rows; estimated bytes held
    l0_ssts, sorted_runs: SSTs the log and L0 hold; sorted runs
    sst_bytes: bytes of all SSTs the manifest names
    range_deletes: range deletes that compaction has not used up, in memory or stored
    monthly_requests: as in `Status`
    """

    path: str
    database_id: str
    state: HandleState
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
    range_deletes: int
    monthly_requests: MonthlyRequests | None = None


@dataclass(frozen=True, slots=True)
class CompactorStatus:
    """The state of a compactor.

    path: the database's URL, without credentials
    state: ``"open"``, ``"closing"``, ``"closed"``, ``"fenced"`` or ``"failed"``
    epoch: this compactor's epoch; 0 once it has given the role up
    style: ``"size_tiered"`` or ``"leveled"``
    manifest_version: the newest manifest version seen
    running, registered: compactions under way in this process; those the manifest holds
    l0_ssts, sorted_runs, sst_bytes, range_deletes: of that manifest version
    """

    path: str
    database_id: str
    state: HandleState
    epoch: int
    style: Literal["size_tiered", "leveled"]
    manifest_version: int
    running: int
    registered: int
    l0_ssts: int
    sorted_runs: int
    sst_bytes: int
    range_deletes: int


def writer_status(context: DatabaseContext, life: HandleState, opened: Opened, outage: SlateError | None) -> Status:
    """The status of a database whose handle is in the state ``life``."""
    writer, state = opened.writer, opened.writer.state.manifest
    tables = [entry.table for entry in (*writer.state.memtables.frozen, writer.state.memtables.active)]
    oldest = writer.oldest_unacknowledged_ms
    lost = outage is not None or opened.driver.contact.lost
    return Status(
        path=context.name,
        database_id=str(state.database_id),
        state="degraded" if life == "open" and lost else life,
        log_protocol=state.log_protocol,
        wal_enabled=state.wal_enabled,
        epoch=writer.epoch,
        manifest_version=state.version,
        log_start=state.log_start,
        log_end=writer.state.acknowledged_end,
        log_objects=writer.state.log_objects,
        replay_ms=writer.replay_ms,
        last_seq=writer.sequencer.last_seq,
        durable_seq=writer.state.durable_seq,
        memtables=len(tables),
        memtable_bytes=sum(table.nbytes for table in tables),
        unflushed_bytes=writer.sequencer.unflushed_bytes,
        flushes_in_flight=writer.flusher.in_flight,
        waiting_writes=writer.admission.waiting,
        l0_ssts=len(state.l0) + len(writer.state.log_ssts),
        sorted_runs=len(state.runs),
        sst_bytes=sum(sst.size for sst in state.ssts()),
        range_deletes=writer.state.range_deletes,
        compactor=writer.compactor_role.describe(),
        compactions=len(state.compactions),
        l0_stall=writer.pressure.reason,
        ingests=sum(not ingest.pending for ingest in state.ingests),
        pending_ingests=sum(ingest.pending for ingest in state.ingests),
        last_contact_ms=opened.driver.contact.last_ms,
        oldest_unacknowledged_ms=None if oldest is None else max(0, context.runtime.clock.now_ms() - oldest),
        outage=None if outage is None else str(outage),
        monthly_requests=context.month_of_requests(),
    )


def reader_status(context: DatabaseContext, life: HandleState, source: ReaderSource, failed_polls: int) -> ReaderStatus:
    """The status of a reader whose handle is in the state ``life``."""
    reader_state, follower = source.reader_state, source if isinstance(source, Follower) else None
    state, tables = reader_state.manifest, [table for table in reader_state.memtables if len(table)]
    pins = None if follower is None else follower.pins
    held = source.checkpoint_id
    return ReaderStatus(
        path=context.name,
        database_id=str(state.database_id),
        state=life,
        log_protocol=state.log_protocol,
        wal_enabled=state.wal_enabled,
        following=follower is not None,
        checkpoint=None if held is None else str(held),
        checkpoints=len(state.checkpoints),
        own_checkpoints=0 if pins is None else pins.count,
        manifest_version=state.version,
        log_start=state.log_start,
        log_end=reader_state.position.next_id - 1,
        last_seq=reader_state.last_seq,
        lag_ms=None if follower is None else max(0, context.runtime.clock.now_ms() - follower.caught_up_ms),
        failed_polls=failed_polls,
        memtables=len(tables),
        memtable_bytes=sum(table.nbytes for table in tables),
        l0_ssts=len(state.l0) + reader_state.log_sst_count,
        sorted_runs=len(state.runs),
        sst_bytes=sum(sst.size for sst in state.ssts()),
        range_deletes=reader_state.range_deletes,
        monthly_requests=context.month_of_requests(),
    )


def compactor_status(context: DatabaseContext, life: HandleState, opened: OpenedCompactor) -> CompactorStatus:
    """The status of a compactor whose handle is in the state ``life``."""
    state = opened.driver.head
    assert state is not None  # it was claimed in one
    return CompactorStatus(
        path=context.name,
        database_id=str(state.database_id),
        state=life,
        epoch=opened.compactor.epoch,
        style=state.compaction,
        manifest_version=state.version,
        running=opened.compactor.running,
        registered=len(state.compactions),
        l0_ssts=len(state.l0),
        sorted_runs=len(state.runs),
        sst_bytes=sum(sst.size for sst in state.ssts()),
        range_deletes=len(state.range_deletes or ()),
    )
