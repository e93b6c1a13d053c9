"""The log, object by object, and the writer's register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slate_async.engine.stored_database import StoredDatabase
from slate_async.maintenance.verify.log import IN_PARALLEL, CheckedObject, LogCheck
from slate_async.metastore_errors import translated
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.storage.log import register as registers
from slate_async.storage.log.object_status import LogObjectStatus, Seen, classify
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import LogProtocol, ManifestState

LogEntryKind = Literal["segment", "fence", "sst", "unreadable"]
"""What an object of the log is."""
_KINDS: dict[str, LogEntryKind] = {"LOG_SEGMENT": "segment", "FENCE": "fence", "SST": "sst"}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An object of the log.

    epoch: of the writer that made it; ``None`` if that cannot be read
    rows, range_deletes, min_seq, max_seq: ``None`` of what nothing needs any more, which is not read
    range_deletes: how many of the rows delete a range of keys
    status: what it is to the database; `LogObjectStatus`, or ``"damaged"``
    """

    position: int
    epoch: int | None
    kind: LogEntryKind
    rows: int | None
    range_deletes: int | None
    min_seq: int | None
    max_seq: int | None
    size: int
    status: str
    key: str


@dataclass(frozen=True, slots=True)
class LogInspection:
    """The log: positions from ``log_start`` on count. ``register``: of an epoch-prefixed log."""

    protocol: LogProtocol
    wal_enabled: bool
    log_start: int
    log_floor: int
    fence_width: int
    register: WriterRegister | None
    objects: tuple[LogEntry, ...]


async def inspect_log(database: StoredDatabase, decoding: MemoryBudget) -> LogInspection:
    """Read the log as it is now, decoded in the memory of ``decoding``. Raises `InvalidError` if there is no database,
    `UnavailableError`, and `CorruptionError` for a damaged manifest or register; damage in the log is reported with its
    object."""
    state = await database.head()
    register: WriterRegister | None = None
    async with database.register(state.log_protocol) as cell_of:
        cell = None if cell_of is None else await translated(cell_of.read())
        if cell is not None:
            register = registers.decode(cell.value)
    keys = frozenset(sst.location for sst in state.ssts() if sst.database_id is None)
    check = LogCheck(database.store, state, register, keys, database.runtime.offload, decoding)
    listed, _ = await check.listed()
    checked = await map_bounded(lambda entry: check.check(*entry), listed, IN_PARALLEL) if listed else []
    return LogInspection(
        state.log_protocol,
        state.wal_enabled,
        state.log_start,
        state.log_floor,
        state.fence_width,
        register,
        tuple(_entries(state, register, checked)),
    )


def _entries(state: ManifestState, register: WriterRegister | None, checked: Sequence[CheckedObject]) -> list[LogEntry]:
    seen = [
        Seen(logged.name, logged.header.writer_epoch, logged.header.kind)
        for logged in checked
        if logged.header is not None
    ]
    statuses = iter(classify(state, register, seen))
    entries: list[LogEntry] = []
    for logged in checked:
        status = next(statuses) if logged.header is not None else None
        if status is None and not logged.findings:
            continue  # deleted since the listing
        entries.append(_entry(logged, status))
    return entries


def _entry(checked: CheckedObject, status: LogObjectStatus | None) -> LogEntry:
    header, seqs = checked.header, checked.seqs or (None, None)
    return LogEntry(
        position=checked.name.position,
        epoch=checked.name.epoch if header is None else header.writer_epoch,
        kind="unreadable" if header is None else _KINDS[header.kind.name],
        rows=checked.rows if checked.whole and not checked.findings else None,
        range_deletes=checked.range_deletes if checked.whole and not checked.findings else None,
        min_seq=seqs[0],
        max_seq=seqs[1],
        size=checked.info.size,
        status="damaged" if checked.findings or status is None else status.value,
        key=checked.info.key,
    )
