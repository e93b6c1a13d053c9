"""Running one key range of a compaction: `RangeTask` in, `RangeResult` out, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from slate_async.settings import Compression
from slate_async.storage.manifest.state import Parent, SstRef
from slate_async.types import RangeDelete


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Everything an executor must know; plain values, so that it may run in another process.

    database_id: whose output it is
    base_version: manifest version the output is named by
    sources: sorted sources, newest first: an L0 SST by itself, or SSTs of one run in key order
    start, end: the keys ``[start, end)`` to do; ``None`` = unbounded
    keep_above: versions with higher sequence numbers all stay, and the newest one up to it
    expired_at_ms: a row that expires then or before is a tombstone
    bottom: nothing older lies below these keys: tombstones up to ``keep_above`` go
    sst_bytes, block_bytes, compression, filter_bits_per_key: as in `Settings`
    parents: where inputs lie that are a clone's parents'
    merge_operator: the name of the database's, if it has one; the executor must have it
    range_deletes: those up to ``keep_above`` that may hide rows of the range: these rows go
    swept_seq: all range deletes up to this number are among them; ``None``: the database has none
    """

    database_id: UUID
    base_version: int
    sources: tuple[tuple[SstRef, ...], ...]
    start: bytes | None
    end: bytes | None
    keep_above: int
    expired_at_ms: int
    bottom: bool
    sst_bytes: int
    block_bytes: int
    compression: Compression
    filter_bits_per_key: int
    parents: tuple[Parent, ...] = ()
    merge_operator: str | None = None
    range_deletes: tuple[RangeDelete, ...] = ()
    swept_seq: int | None = None


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge read, wrote and dropped, exactly.

    rows_in, rows_out: versions of rows
    bytes_in, bytes_out: bytes of their keys and values
    stored_out: bytes of the objects written
    shadowed: rows dropped because a newer version hides them from everyone, and operands that were folded into another
    row, or had expired
    tombstones, expired: rows dropped at the bottom
    buried: expired rows that were kept as tombstones, without their value
    """

    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    stored_out: int = 0
    shadowed: int = 0
    tombstones: int = 0
    expired: int = 0
    buried: int = 0


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The output in key order (no SST if every row was dropped), uploaded, and what was done."""

    ssts: tuple[SstRef, ...]
    counts: MergeCounts


class Executor(Protocol):
    """Runs ranges. A cancelled or failed run leaves nothing but objects that no manifest names, which GC deletes."""

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Merge the range and upload its output; ``progress`` is called with what is done so far, now and then.

        Raises `CorruptionError`, `ObjectNotFoundError`, `UnavailableError`, `InternalError`."""
