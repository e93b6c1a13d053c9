"""From what a takeover inherited to the memtables a new writer starts with.

Rule 19: rows the manifest already covers (``seq <= last_seq``) are dropped, and the new writer continues after the
highest number replayed or recorded.

Rule 19: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slate_async.codec.columns import Columns, concat
from slate_async.codec.header import ObjectKind
from slate_async.engine.read.sources import Table
from slate_async.engine.write.memtables import MemtableEntry, MemtableList
from slate_async.errors import CorruptionError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.block_parts import StoredBlock
from slate_async.storage.format.joined_blocks import decode_blocks
from slate_async.storage.log.protocol import Inherited, LogObject
from slate_async.storage.log.reader import READS_AT_ONCE
from slate_async.storage.log.rows import (
    check_kind,
    check_room,
    decoded_rows,
    new_rows,
    raw_bytes_of,
    rows_of,
    segment_blocks,
)
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.reader import SstReader
from slate_async.types import MAX_KEY_BYTES

ROWS_PER_TURN = 4096
SMALL_BYTES = 16 * 1024
"""Log objects of fewer bytes, stored and decoded, cost more for being decoded one by one than for being copied."""
TOGETHER_BYTES, TOGETHER_OBJECTS = 4 * SMALL_BYTES, 64
"""So many of them are decoded together, whichever is reached first."""
HIGHEST_KEY = b"\xff" * MAX_KEY_BYTES
"""No key is higher: the range of an SST whose index is not loaded yet is everything."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """tables: memtables with the replayed rows, all of them durable
    log_ssts: ``(log id, table)`` of log objects that are SSTs themselves, newest first
    last_seq, last_tick_ms: highest sequence number and write time in use
    request_s: seconds that reading one object took, about; ``None`` if there was none
    """

    memtables: MemtableList
    log_ssts: list[tuple[int, Table]]
    last_seq: int
    last_tick_ms: int
    request_s: float | None = None


class Replayer:
    """Replays a log as it is read; see `storage.log.protocol.Replay`. What it has so far counts once `finish`ed.

    table_bytes, segment_bytes: as of `MemtableList`; open_sst: opens a log object that is an SST;
    decoding: memory for the rows of a log object until they are in a memtable
    most_bytes: what the memtables may take together"""

    def __init__(
        self,
        *,
        epoch: int,
        table_bytes: int,
        segment_bytes: int,
        offload: Offload,
        open_sst: Callable[[LogObject], SstReader],
        decoding: MemoryBudget,
        most_bytes: int,
    ) -> None:
        self._epoch = epoch
        self._table_bytes = table_bytes
        self._segment_bytes = segment_bytes
        self._offload = offload
        self._open_sst = open_sst
        self._decoding = decoding
        self._most_bytes = most_bytes

    def begin(self, state: ManifestState) -> None:
        """See `Replay`."""
        self._state = state
        self._memtables = MemtableList(
            self._epoch,
            freeze_each_cut=not state.wal_enabled,
            table_bytes=self._table_bytes,
            segment_bytes=self._segment_bytes,
            active=MemtableEntry(Memtable(), state.log_start - 1, state.log_floor),
        )
        self._last_seq, self._tick = state.last_seq, state.last_tick_ms
        self._ssts: list[LogObject] = []
        self._small: list[LogObject] = []
        self._small_blocks: list[StoredBlock] = []
        self._small_bytes = 0
        self._held_bytes = 0

    async def add(self, logged: LogObject) -> None:
        """See `Replay`. Raises `CorruptionError` naming the log object that does not decode."""
        if not self._state.wal_enabled:
            check_kind(logged, ObjectKind.SST)
            self._ssts.append(logged)
            return
        if logged.size < SMALL_BYTES:
            blocks = segment_blocks(logged, self._decoding.capacity_bytes)
            raw_bytes = raw_bytes_of(blocks)
            if raw_bytes < SMALL_BYTES:
                self._small.append(logged)
                self._small_blocks += blocks
                self._small_bytes += raw_bytes
                if self._small_bytes >= TOGETHER_BYTES or len(self._small) >= TOGETHER_OBJECTS:
                    await self.drain()
                return
        await self.drain()
        async with decoded_rows(logged, self._offload, self._decoding) as rows:
            await self._take([logged], rows)

    async def drain(self) -> None:
        """See `Replay`. Small objects are decoded together, which takes a third of the time."""
        objects, blocks = self._small, self._small_blocks
        self._small, self._small_blocks, self._small_bytes = [], [], 0
        if len(objects) > 1:
            try:
                joined = concat(list(decode_blocks(blocks, object_name=objects[0].key)))
            except CorruptionError:
                pass  # one of them is damaged: which, decoding each by itself tells
            else:
                if not np.any(joined.seqs[1:] <= joined.seqs[:-1]):
                    return await self._take(objects, joined)
        for logged in objects:
            await self._take([logged], rows_of(segment_blocks(logged, self._decoding.capacity_bytes), logged.key))

    async def _take(self, objects: Sequence[LogObject], decoded: Columns) -> None:
        columns = new_rows(decoded, self._last_seq)
        self._held_bytes += check_room(objects[-1], columns, self._held_bytes, self._most_bytes)
        await _load(self._memtables, objects, columns)
        if len(columns):
            self._last_seq = int(columns.seqs[-1])
            self._tick = max(self._tick, int(columns.create_ms.max()))

    async def finish(self, inherited: Inherited, seconds: float | None = None) -> Replayed:
        """What came of it, all of ``inherited``, in so many seconds. Raises `CorruptionError`, `UnavailableError`."""
        await self.drain()
        memtables, last_seq, tick = self._memtables, self._last_seq, self._tick
        readers = [(sst.id, self._open_sst(sst)) for sst in reversed(self._ssts)]
        if readers:
            newest = (await readers[0][1].load()).stats
            last_seq, tick = max(last_seq, newest.max_seq), max(tick, newest.max_create_ms)
        memtables.active.log_end = inherited.next_id - 1
        memtables.active.log_floor = self._epoch
        log_ssts = [(log_id, Table(b"", HIGHEST_KEY, reader)) for log_id, reader in readers]
        rounds = math.ceil(len(inherited.objects) / READS_AT_ONCE)
        return Replayed(memtables, log_ssts, last_seq, tick, seconds / rounds if seconds and rounds else None)


async def replay(kept: Inherited, replayer: Replayer) -> Replayed:
    """``kept`` with all of its objects, replayed. Raises `CorruptionError`, `UnavailableError`."""
    replayer.begin(kept.state)
    for logged in kept.objects:
        await replayer.add(logged)
    return await replayer.finish(kept)


async def _load(memtables: MemtableList, objects: Sequence[LogObject], columns: Columns) -> None:
    """Append the rows of neighbouring objects to the active table, a turn of the loop between steps, and freeze it when
    it is full."""
    entry, newest = memtables.active, objects[-1]
    for start in range(0, len(columns), ROWS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        entry.table.extend(columns.slice(start, min(start + ROWS_PER_TURN, len(columns))))
    entry.cut_rows, entry.cut_nbytes = len(entry.table), entry.table.nbytes
    entry.log_end, entry.log_floor = newest.id, newest.header.writer_epoch
    entry.objects += len(objects)
    if entry.table.nbytes >= memtables.table_bytes:
        memtables.freeze()
