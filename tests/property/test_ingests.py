"""As `tests.property.test_database`, with bulk ingests and compactions among everything else."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import slate_async as slate
from tests.engine import KINDS, Kind, on, runtime
from tests.property.machines import run_machine
from tests.property.test_database import KEYS, VALUES, DatabaseMachine, View, Write

EXPIRIES = st.none() | st.none() | st.integers(1, 500)
ROWS = st.dictionaries(KEYS, st.none() | st.tuples(VALUES, EXPIRIES), min_size=1, max_size=6)
Rows = dict[bytes, tuple[bytes, int | None] | None]


class IngestMachine(DatabaseMachine):
    """See the module docstring. ``pending``: what is committed and waits for a writer."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[tuple[str, Rows, int]] = []
        self.jobs = 0
        self.compacted = False
        self.replacing: set[str] = set()

    @rule(rows=ROWS, sst_bytes=st.sampled_from([1, 1000]))
    def ingest(self, rows: Rows, sst_bytes: int) -> None:
        """Beside the live writer, which applies it as soon as it looks at the manifest."""
        self.commit(rows, sst_bytes)
        self.run(self.db.confirm())
        self.applied()
        self.compare(self.db, self.current())

    @rule(rows=ROWS, sst_bytes=st.sampled_from([1, 1000]))
    def ingest_that_nobody_looks_for(self, rows: Rows, sst_bytes: int) -> None:
        self.commit(rows, sst_bytes)

    @rule(rows=ROWS, sst_bytes=st.sampled_from([1, 1000]), looked_for=st.booleans())
    def replace(self, rows: Rows, sst_bytes: int, looked_for: bool) -> None:
        """Every key that is there when it begins, if it is durable by then."""
        if self.pending:
            self.look_at_the_manifest()
        self.flush(l0=False)
        self.commit(rows, sst_bytes, replaced=set(self.current().rows()))
        if looked_for:
            self.look_at_the_manifest()
            self.compare(self.db, self.current())

    @precondition(lambda self: bool(self.pending))
    @rule()
    def look_at_the_manifest(self) -> None:
        self.run(self.db.confirm())
        self.applied()

    def current(self) -> View:
        """A read sees whatever the writer has applied, which it may do at any time: every read looks first."""
        if self.pending:
            self.look_at_the_manifest()
        return super().current()

    def catch_up(self, before_seq: int) -> None:
        """The writer may have looked on its own, before a row or behind it. Each ingest takes one number."""
        while self.pending and before_seq > (self.writes[-1].seq if self.writes else 0) + 1:
            self.note(self.pending.pop(0), cut=False)

    @rule(ms=st.integers(-20, 300))
    def time_passes(self, ms: int) -> None:
        """Compaction drops rows that have expired by its clock; a reader with an earlier clock misses them."""
        super().time_passes(max(0, ms) if self.compacted else ms)

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        self.run(self.db.compact(full=full))
        self.compacted = True
        if self.pending:
            self.applied()  # it has looked at the manifest
        self.acknowledged = self.writes[-1].seq if self.writes else 0

    def commit(self, rows: Rows, sst_bytes: int, *, replaced: set[bytes] | None = None) -> None:
        """Without looking for it. ``replaced``: the keys that one that replaces must delete. It also deletes what has
        expired and is still stored: that depends on compactions, so its checkpoint is asked."""
        self.jobs += 1
        job_id, now_ms = f"job-{self.jobs}", self.clock.wall_ms
        if replaced is not None:
            self.replacing.add(job_id)
        settings = slate.Settings(sst_bytes=sst_bytes, block_bytes=1)

        async def work() -> set[bytes]:
            async with self.open_job(job_id, settings, replace=replaced is not None) as job:
                stored = set() if replaced is None else await self.stored(job.spec.replaces)
                await job.write([table(rows, now_ms)])
                assert (await job.commit(wait=False)).state == "pending"
                return stored

        deleted = self.run(work())
        assert deleted >= (replaced or set())
        self.pending.append((job_id, {**dict.fromkeys(deleted), **rows}, now_ms))

    async def stored(self, checkpoint: UUID | None) -> set[bytes]:
        """The keys that the database has at a checkpoint, also those whose rows have expired."""
        opening = on(runtime(self.clock)).open_reader(self.store, name="memory://test", checkpoint=checkpoint)
        async with opening as reader, reader.snapshot(include_expired=True) as snapshot:
            return {key async for key, _ in snapshot.scan()}

    def open_job(self, job_id: str, settings: slate.Settings, *, replace: bool = False) -> Any:
        return on(runtime(self.clock)).open_ingest(
            self.store,
            job_id=job_id,
            name="memory://test",
            settings=settings,
            replace=replace,
        )

    def applied(self) -> None:
        """Wait until everything pending is applied; everything written before is durable by then."""
        for ingest in self.pending:
            self.note(ingest, cut=True)
        self.pending = []

    def note(self, ingest: tuple[str, Rows, int], *, cut: bool) -> None:
        """Wait for it. ``cut``: what was written and has a higher number than it went down with a writer."""
        job_id, rows, begun_ms = ingest

        async def wait() -> slate.IngestInfo:
            settings = slate.Settings(manifest_poll_interval_ms=10)
            async with self.open_job(job_id, settings, replace=job_id in self.replacing) as job:
                return await job.wait()

        info = self.run(wait())
        if cut:
            self.writes = [write for write in self.writes if write.seq < info.seq]
        self.add(info.seq, info.since_ms, rows, begun_ms)
        self.acknowledged = max(self.acknowledged, info.seq)

    def add(self, seq: int, create_ms: int, rows: Rows, begun_ms: int) -> None:
        assert seq == (self.writes[-1].seq if self.writes else 0) + 1
        assert self.tick_ms <= create_ms
        self.tick_ms = create_ms
        self.highest_tick_ms = max(self.highest_tick_ms, create_ms)
        keys = sorted(rows)
        for key in keys:
            value, ttl = rows[key] or (None, None)
            expire = None if ttl is None else begun_ms + ttl
            self.writes.append(Write(key, value, seq, create_ms, expire, key == keys[-1]))

    def come_back(self) -> None:
        """A writer that opens the database applies waiting ingests before it does anything else."""
        if not self.pending:
            super().come_back()
            return
        self.db = self.run(self.opened())
        acknowledged, before = self.acknowledged, self.writes
        self.applied()
        assert [write for write in before if write.seq <= acknowledged] == self.writes[: _until(before, acknowledged)]
        self.compare(self.db, self.current())


def _until(writes: list[Write], seq: int) -> int:
    return sum(write.seq <= seq for write in writes)


def table(rows: Rows, now_ms: int) -> pa.Table:
    """Sorted, with deletes and times of expiry."""
    keys = sorted(rows)
    values = [rows[key] for key in keys]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([None if row is None else row[0] for row in values], pa.binary()),
            "op": ["delete" if row is None else "put" for row in values],
            "expire_time": pa.array(
                [None if row is None or row[1] is None else now_ms + row[1] for row in values], pa.int64()
            ),
        }
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_replacement_deletes_what_had_expired_and_is_stored_also_if_it_was_put_since(kind: Kind) -> None:
    """Readers whose clocks are behind still see the old row, and the job cannot tell the new one from it."""
    machine = type("Machine", (IngestMachine,), {"kind": kind})()
    machine.open()
    machine.batch([(b"a", b"", 1)], durable=True)
    machine.time_passes(1)
    machine.replace({b"b": None}, 1, looked_for=False)
    machine.batch([(b"a", b"again", None)], durable=True)
    machine.close_and_open()
    assert b"a" not in machine.current().rows()
    machine.teardown()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ingests_take_their_place_among_the_writes(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(IngestMachine, kind, slice_seed, examples=1000 if full else 10, steps=40)
