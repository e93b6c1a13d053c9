"""Rows of the log, object by object, in the order of their sequence numbers.

With a WAL an object holds its rows in that order; without one it is an SST, and is sorted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from slate_async.codec.columns import Columns, concat
from slate_async.codec.header import ObjectKind
from slate_async.engine.compaction.reading import read_batches
from slate_async.engine.follow.tail import Position
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Offload
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.rows import check_kind, decoded_rows
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.reader import SstReader

SSTS_IN_PARALLEL = 4
READ_BYTES = 4 << 20
ROOM_SHARE = 2
"""Rows of the objects that are read together hold the memory for decoding divided by this, or little more."""


class LoggedRows(NamedTuple):
    """The rows of one log object, and the position behind it."""

    key: str
    rows: Columns
    end: Position


class LogRows:
    """Reads the rows of log objects of one database. ``like``: any of its states."""

    def __init__(self, like: ManifestState, ssts: SstOpener, offload: Offload) -> None:
        self._database_id = like.database_id
        self._wal_enabled = like.wal_enabled
        self._ssts = ssts
        self._offload = offload

    async def read(self, objects: Sequence[LogObject]) -> list[LoggedRows]:
        """The rows of each, or of the first ones, at least one, if they hold much once they are decoded. Raises
        `CorruptionError`, `MissingError`, `UnavailableError`."""
        if not objects:
            return []
        decoding = self._ssts.cache.decoding
        room = decoding.capacity_bytes // ROOM_SHARE
        if not self._wal_enabled:
            return await map_bounded(self._sorted, await self._fitting(objects, room), SSTS_IN_PARALLEL)
        read: list[LoggedRows] = []
        for logged in objects:
            async with decoded_rows(logged, self._offload, decoding) as rows:
                read.append(self._placed(logged, rows))
            room -= read[-1].rows.nbytes
            if room <= 0:
                break
        return read

    async def _fitting(self, objects: Sequence[LogObject], room: int) -> list[tuple[LogObject, SstReader]]:
        """The first of the objects, one at least, whose rows hold no more than ``room``."""
        for logged in objects:
            check_kind(logged, ObjectKind.SST)
        readers = [self._ssts.open_log(logged.key, logged.size, logged.header.object_id) for logged in objects]
        fitting: list[tuple[LogObject, SstReader]] = []
        metas = await map_bounded(SstReader.load, readers, SSTS_IN_PARALLEL)
        for logged, reader, meta in zip(objects, readers, metas, strict=True):
            room -= meta.stats.raw_block_bytes
            if fitting and room < 0:
                break
            fitting.append((logged, reader))
        return fitting

    async def _sorted(self, opened: tuple[LogObject, SstReader]) -> LoggedRows:
        logged, reader = opened
        parts: list[Columns] = []
        async with aclosing(read_batches(reader, None, None, read_bytes=READ_BYTES)) as batches:
            async for batch in batches:
                parts.append(batch)

        def by_seq() -> Columns:
            rows = concat(parts)
            return rows.take(np.argsort(rows.seqs))

        return self._placed(logged, await self._offload.run(by_seq))

    def _placed(self, logged: LogObject, rows: Columns) -> LoggedRows:
        return LoggedRows(logged.key, rows, Position(logged.id + 1, logged.header.writer_epoch))
