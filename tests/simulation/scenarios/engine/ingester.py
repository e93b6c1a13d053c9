"""Drivers of bulk ingests: processes that hand SSTs to the database beside its writers, and die like anybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa

from slate_async.engine.ingest.manage import IngestInfo, IngestPendingError, abort, commit, register, until_applied
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import write_ssts
from slate_async.errors import ConflictError, SlateError
from slate_async.storage.manifest.edits.ingests import pending_ingests
from tests.simulation.checkers import Violation
from tests.simulation.history import Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import CONTENDED, MARKER
from tests.simulation.scenarios.engine.workload import CONTENDED_KEYS, Session

CALM = 2
"""Turns once the calm has begun."""
ATTEMPTS = 3
LIFETIME_MS = 1_500
WAIT_SECONDS = 3.0
POLL_SECONDS = 0.2


class Ingester:
    """One process's jobs. Each write is a batch of the process's own stream: a job that may or may not be in is
    repeated under another name, and must not be in twice."""

    def __init__(self, database: SimulatedDatabase, node: Node) -> None:
        self._database = database
        self._node = node
        self._handle = database.handle(node)
        self._app = f"{node.name}/{node.runtime.ids.token()[:8]}"

    async def step(self) -> None:
        """One write, in a few attempts."""
        write = self.begin()
        batch = (self._app, write.id) if self._node.rng.random() < 0.7 else None
        for attempt in range(1 if batch is None else ATTEMPTS):
            try:
                info = await self._attempt(write, f"{self._app}/{write.id}/{attempt}", batch)
            except IngestPendingError:
                self._database.count("ingests-pending")
                return
            except ConflictError:
                self._database.count("ingests-refused")
                return
            except SlateError:
                self._database.count("ingest-errors")
                continue
            if info is not None and info.done:
                write.seq = info.seq or write.seq
                self._database.history.ack(write)
                self._database.count(f"ingests-{info.state}")
            return

    def begin(self) -> Write:
        """A write by chance."""
        rng, history = self._node.rng, self._database.history
        number = history.next_id
        keys = rng.sample(CONTENDED_KEYS, rng.choice((0, 1, 2, 3)))
        changes = {key: None if rng.random() < 0.35 else b"%d" % number for key in keys}
        write = history.begin(f"{self._app}/{number}", 0, changes)
        write.ingested = True
        return write

    async def run(self, write: Write, job_id: str) -> IngestInfo:
        """The whole job, and the wait until a writer has applied it."""
        node, handle = self._node, self._handle
        clock, settings = node.runtime.clock, self._database.params.settings(node.rng, None)
        spec = await register(handle.driver, node.runtime, settings, job_id, LIFETIME_MS)
        assert spec is not None
        await commit(handle.driver, clock, spec, await self._make(spec, write))
        return await until_applied(handle.driver, clock, job_id, timeout_s=WAIT_SECONDS, poll_s=POLL_SECONDS)

    async def _attempt(self, write: Write, job_id: str, batch: tuple[str, int] | None) -> IngestInfo | None:
        """Make, commit and wait; ``None`` if it is left where it is."""
        database, node, handle = self._database, self._node, self._handle
        clock, rng = node.runtime.clock, node.rng
        settings = database.params.settings(rng, None).replace(sst_bytes=rng.choice((1, 100_000)))
        if (state := await handle.driver.load()) is None:
            database.count("ingests-too-early")
            return None
        await database.settle(handle, state)
        spec = await register(handle.driver, node.runtime, settings, job_id, LIFETIME_MS)
        assert spec is not None
        ssts = await self._make(spec, write)
        if rng.random() < 0.2:
            ssts = await self._make(spec, write)  # the task ran twice
        await handle.nap(rng.choice((0, 0.1, 1)))
        if (way := rng.random()) < 0.05:
            return None  # it forgot
        await commit(handle.driver, clock, spec, ssts, batch)
        if rng.random() < 0.2:
            await commit(handle.driver, clock, spec, await self._make(spec, write), batch)  # and again: no effect
        if way < 0.15:
            return await self._abort(write, job_id)
        return await until_applied(handle.driver, clock, job_id, timeout_s=WAIT_SECONDS, poll_s=POLL_SECONDS)

    async def _abort(self, write: Write, job_id: str) -> IngestInfo | None:
        info = await abort(self._handle.driver, self._node.runtime.clock, job_id)
        self._database.count(f"ingests-{info.state}-on-abort")
        write.refused = info.state == "aborted"
        return None

    async def _make(self, spec: IngestSpec, write: Write) -> Sequence[IngestedSst]:
        return await write_ssts(self._handle.store, spec, batches_of(write.id, write.changes), self._node.runtime)


def batches_of(write_id: int, changes: Mapping[bytes, bytes | None]) -> list[pa.RecordBatch]:
    """``changes`` as rows, and the write's marker as the last of them."""
    rows = {**changes, MARKER + b"%06d" % write_id: b""}
    keys = sorted(rows)
    ops = ["delete" if rows[key] is None else "put" for key in keys]
    table = pa.table(
        {"key": pa.array(keys, pa.binary()), "value": pa.array([rows[key] for key in keys], pa.binary()), "op": ops}
    )
    return table.to_batches()


async def ingest(database: SimulatedDatabase, node: Node) -> None:
    """Ingest until the calm."""
    ingester = Ingester(database, node)
    for _ in database.turns(CALM):
        await ingester._handle.nap(0.6)
        await ingester.step()


async def see_all_applied(session: Session) -> None:
    """The last writer, which lives on, applies whatever waits."""
    for _ in range(100):
        await session.db.confirm()
        if not pending_ingests(session.db._writer.state.manifest):
            return
        await asyncio.sleep(0.5)
    raise Violation("stuck", f"ingests wait for ever: {session.db._writer.state.manifest.ingests}")


assert CONTENDED < MARKER  # so the marker is the last row
