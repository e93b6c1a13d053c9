"""Rows of the log, object by object, in the order of their sequence numbers.

With a WAL an object holds its rows in that order; without one it is an SST, and is sorted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import numpy as np

from slate_async.compaction.reading import read_batches
from slate_async.follow.tail import Position
from slate_async.format.columns import Columns, concat
from slate_async.format.header import ObjectKind
from slate_async.log.protocol import LogObject
from slate_async.manifest.state import ManifestState
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Offload
from slate_async.sst.locate import SstOpener
from slate_async.write.replay import check_kind, decode_rows

SSTS_IN_PARALLEL = 4
READ_BYTES = 4 << 20


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
        """The rows of each. Raises `CorruptionError`, `MissingError`, `UnavailableError`."""
        if self._wal_enabled:
            most, of = self._ssts.cache.decoding.capacity_bytes, self._database_id
            return [self._placed(one, await decode_rows(one, of, self._offload, most)) for one in objects]
        return await map_bounded(self._sorted, objects, SSTS_IN_PARALLEL) if objects else []

    async def _sorted(self, one: LogObject) -> LoggedRows:
        check_kind(one, ObjectKind.SST)
        reader = self._ssts.open_log(one.key, one.size, one.header.object_id)
        parts: list[Columns] = []
        async with aclosing(read_batches(reader, None, None, read_bytes=READ_BYTES)) as batches:
            async for batch in batches:
                parts.append(batch)

        def by_seq() -> Columns:
            rows = concat(parts)
            return rows.take(np.argsort(rows.seqs))

        return self._placed(one, await self._offload.run(by_seq))

    def _placed(self, one: LogObject, rows: Columns) -> LoggedRows:
        return LoggedRows(one.key, rows, Position(one.id + 1, one.header.writer_epoch))
