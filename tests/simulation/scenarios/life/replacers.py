"""Drivers of bulk ingests some of which replace what is there: of the keys that writers contend for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

import pyarrow as pa

from slate_async.database.reader import DbReader
from slate_async.database.snapshot import Snapshot
from slate_async.engine.ingest.manage import (
    IngestPendingError,
    abort,
    commit,
    register,
    until_applied,
    until_none_waits,
)
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import write_deletes, write_ssts
from slate_async.engine.read.scan import Scan
from slate_async.errors import ConflictError, InvalidError
from slate_async.storage.log.extent import find_extent
from slate_async.storage.manifest.edits.ingests import find_ingest
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind, Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.ingester import (
    CALM,
    POLL_SECONDS,
    WAIT_SECONDS,
    Ingester,
    batches_of,
)
from tests.simulation.scenarios.engine.rows import CONTENDED, MARKER, record_view
from tests.simulation.scenarios.life.beside import nap, writes_of
from tests.simulation.scenarios.life.estate import EXPECTED, Estate, rows_of

REPLACING = 0.35
LIFETIMES_MS = (1_500, 10_000)
"""Nobody renews these jobs."""


async def ingest_or_replace(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """One or the other until the calm."""
    ingester, replacer = Ingester(database, node), Replacer(estate, database, node)
    for _ in database.turns(CALM):
        await nap(node, 0.6)
        await (replacer if node.rng.random() < REPLACING else ingester).step()


class Replacer:
    """One process's jobs that replace. What a job deletes is what its checkpoint holds, which must be a state the
    database was in, not before what was acknowledged when the job began."""

    def __init__(self, estate: Estate, database: SimulatedDatabase, node: Node) -> None:
        self._estate = estate
        self._database = database
        self._node = node
        self._handle = database.handle(node)
        self._ingester = Ingester(database, node)
        self._end_ms = 0

    async def step(self) -> None:
        """One job, which is begun, and then perhaps left."""
        acked = self._estate.acknowledged()
        write = self._ingester.begin()
        try:
            await self._replace(write, acked)
        except IngestPendingError:
            self._database.count("replacements-pending")
        except ConflictError:
            self._database.count("replacements-refused")
        except InvalidError as error:
            head = self._estate.eye(self._database).head
            registered = head is not None and find_ingest(head, self._job_id(write)) is not None
            if registered and self._node.clock.now_ms() < self._end_ms:
                raise Violation("replaced", f"write {write.id} lost what it replaces: {error}") from error
            self._database.count("replacements-expired" if registered else "replacements-overtaken")
        except EXPECTED:
            self._database.count("replacement-errors")

    async def _replace(self, write: Write, acked: list[Write]) -> None:
        node, handle = self._node, self._handle
        clock, rng = node.runtime.clock, node.rng
        job_id = self._job_id(write)
        settings = self._database.params.settings(rng, None).replace(sst_bytes=rng.choice((1, 100_000)))
        register_of = handle.register if self._database.params.protocol == "epoch_prefixed" else None
        await until_none_waits(handle.driver, clock, timeout_s=WAIT_SECONDS, poll_s=POLL_SECONDS)
        extent = await find_extent(handle.store, handle.driver.load, register_of)
        await nap(node, 0.3)
        lifetime_ms = rng.choice(LIFETIMES_MS)
        self._end_ms = clock.now_ms() + lifetime_ms
        spec = await register(handle.driver, node.runtime, settings, job_id, lifetime_ms, extent)
        assert spec is not None
        own = batches_of(write.id, write.changes)
        write.changes = {**await self._deletes(spec, acked), **write.changes}
        await nap(node, 0.5)
        ssts = await self._make(spec, own)
        if rng.random() < 0.2:
            ssts = await self._make(spec, own)  # all of it ran twice
        await commit(handle.driver, clock, spec, ssts)
        if rng.random() < 0.1:
            info = await abort(handle.driver, clock, job_id)
            write.refused = info.state == "aborted"
            return
        info = await until_applied(handle.driver, clock, job_id, timeout_s=WAIT_SECONDS, poll_s=POLL_SECONDS)
        write.seq = info.seq
        self._database.history.ack(write)
        self._database.count("replacements-applied")

    def _job_id(self, write: Write) -> str:
        return f"{self._node.name}/replaces/{write.id}"

    async def _deletes(self, spec: IngestSpec, acked: list[Write]) -> dict[bytes, bytes | None]:
        async with self._estate.reader(self._node, self._database, checkpoint=spec.replaces) as old:
            rows = await rows_of(old)
        record_view(self._database.history, self._node.name, Kind.DURABLE, rows)
        missing = {write.id for write in acked}.difference(writes_of(rows))
        if missing:
            raise Violation("stale", f"{spec.job_id} replaces without writes {sorted(missing)}, acknowledged before")
        return {key: None for key, _, _ in rows if key.startswith(CONTENDED)}

    async def _make(self, spec: IngestSpec, own: list[pa.RecordBatch]) -> list[IngestedSst]:
        """The rows, and the deletes that the product finds."""
        store, runtime = self._handle.store, self._node.runtime
        made = await write_ssts(store, spec, own, runtime, open_old=self._open_old)
        return made + (await write_deletes(store, spec, made, self._open_old, runtime)).deletes

    @asynccontextmanager
    async def _open_old(self, checkpoint: UUID) -> AsyncGenerator[Contended, None]:
        async with self._estate.reader(self._node, self._database, checkpoint=checkpoint) as reader:
            yield Contended(reader)


class Contended:
    """Only the keys that writers contend for: the markers of other writes are to stay."""

    def __init__(self, reader: DbReader) -> None:
        self._reader = reader

    @asynccontextmanager
    async def snapshot(self, *, include_expired: bool) -> AsyncGenerator[ContendedRows, None]:
        """See `OldDatabase`."""
        async with self._reader.snapshot(include_expired=include_expired) as snapshot:
            yield ContendedRows(snapshot)


class ContendedRows:
    """See `Contended`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def seq(self) -> int:
        """Of the snapshot."""
        return self._snapshot.seq

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Scan:
        """See `OldRows`."""
        last = MARKER if end is None else min(end, MARKER)
        first = CONTENDED if start is None else min(start, last)
        return self._snapshot.scan(first, last)
