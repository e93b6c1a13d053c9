"""Rows in order in, uploaded SSTs out: the output of one key range of a compaction, or of one task of an ingest.

Invariant: all versions of a key are in one SST, for a reader looks for a key in one SST of a run only. So an SST ends
before the key that would take it past its size; one key's versions may make it larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

import numpy as np

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.merge import Tally
from slate_async.engine.read.merge import first_row_after, key_at, same_key_as_previous
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.freed_memory import LARGE_BYTES, give_back
from slate_async.runtime.protocol import Runtime
from slate_async.settings import Compression
from slate_async.storage.format.sst_builder import SstBuilder, raw_ends
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reference import sst_ref

LEAST_ROOM = 16
"""An SST that has less room left than this part of its size is full."""


class SstShape(Protocol):
    """Whose SSTs are made and how; see `slate_async.engine.compaction.executor.RangeTask`."""

    @property
    def database_id(self) -> UUID: ...
    @property
    def base_version(self) -> int: ...
    @property
    def sst_bytes(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def compression(self) -> Compression: ...
    @property
    def filter_bits_per_key(self) -> int: ...


class SstOutput:
    """Builds SSTs one after another and uploads each while the next is built, one upload at a time.

    `add` is CPU work for a worker thread; no two calls of anything here may overlap. `close` in any case."""

    def __init__(
        self,
        task: SstShape,
        writer_epoch: int,
        store: ObjectStore,
        runtime: Runtime,
        tally: Tally,
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """``metadata``: of each object, beside the epoch."""
        self._task = task
        self._metadata = {"slate-epoch": str(writer_epoch), **(metadata or {})}
        self._writer_epoch = writer_epoch
        self._store = store
        self._runtime = runtime
        self._tally = tally
        self._builder: SstBuilder | None = None
        self._object_id = self._draw_id()
        self._last_key: bytes | None = None
        self._upload: asyncio.Task[None] | None = None
        self._done: list[SstRef] = []

    def add(self, rows: Columns) -> Columns:
        """Put ``rows`` into the SST in the making as far as they fit; what is left calls for `seal` first. A row whose
        value is late is left until it has it."""
        while len(rows) and rows.late is None:
            if self._builder is None:
                self._builder = self._begin()
            room = self._task.sst_bytes - self._builder.size_estimate
            full = room * LEAST_ROOM < self._task.sst_bytes
            stop = self._cut(rows, 0 if full else room)
            if not stop:
                return rows
            self._builder.add(rows.slice(0, stop))
            self._last_key = key_at(rows, stop - 1)
            rows = rows.slice(stop, len(rows))
        return rows

    async def seal(self) -> None:
        """End the SST in the making, if there is one, and start its upload once the one before is through."""
        if self._builder is None:
            return
        await self._uploaded()  # first, so that no more than two SSTs are in memory
        builder, object_id = self._builder, self._object_id
        self._builder, self._last_key, self._object_id = None, None, self._draw_id()
        location = sst_key(self._task.base_version, object_id)

        encoded = await self._runtime.offload.run(builder.finish)
        self._done.append(sst_ref(location, object_id, encoded, self._writer_epoch))
        self._tally.stored_out += encoded.size
        self._upload = asyncio.create_task(self._put(location, encoded.buffers), name=f"upload {location}")

    async def finish(self) -> tuple[SstRef, ...]:
        """End the last SST and wait for its upload. All SSTs, in key order."""
        await self.seal()
        await self._uploaded()
        return tuple(self._done)

    async def close(self) -> None:
        """Stop an upload that is under way. Idempotent."""
        if self._upload is not None:
            self._upload.cancel()
            await asyncio.gather(self._upload, return_exceptions=True)
            self._upload = None

    def _draw_id(self) -> bytes:
        return self._runtime.ids.ulid(self._runtime.clock.now_ms())

    def _begin(self) -> SstBuilder:
        return SstBuilder(
            database_id=self._task.database_id,
            object_id=self._object_id,
            writer_epoch=self._writer_epoch,
            manifest_version=self._task.base_version,
            block_bytes=self._task.block_bytes,
            compression=self._task.compression,
            filter_bits_per_key=self._task.filter_bits_per_key,
        )

    def _cut(self, rows: Columns, room: int) -> int:
        """How many of ``rows`` to add where there is ``room`` for that many bytes, no key being split."""
        ends = raw_ends(rows)
        if ends[-1] <= room:
            return len(rows)
        begins = np.flatnonzero(~same_key_as_previous(rows)) + 1
        fitting = begins[ends[begins - 1] <= room]
        if fitting.size:
            return int(fitting[-1])
        first = key_at(rows, 0)
        if self._last_key is None or self._last_key == first:
            return first_row_after(rows, first)
        return 0

    async def _put(self, location: str, data: list[bytes]) -> None:
        await self._store.put(location, data, metadata=self._metadata)
        if sum(map(len, data)) >= LARGE_BYTES:
            data = []
            await self._runtime.offload.run(give_back)

    async def _uploaded(self) -> None:
        if self._upload is not None:
            await self._upload
            self._upload = None
