"""A whole database against a plain list of writes: whatever is written, flushed, crashed and taken over, every read
shows what the list says.

Hypothesis drives one database of each kind, small enough that a few writes cross memtables, log objects, L0 SSTs
and blocks. Time is virtual. After a crash or a takeover the writes that survive must be a prefix of those made, and
hold all that were acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import slate_async as slate
from slate_async.engine.read import hot
from slate_async.storage.sst import block_rows
from slate_async.types import Row
from tests.engine import KINDS, Kind, ManualClock, abandon, memory_store, open_db, settle
from tests.property.machines import run_machine

T = TypeVar("T")

KEYS = st.sampled_from([b"\0", b"a", b"a\0", b"ab", b"b", b"b\xff", b"c", b"ca", b"cb", b"\xff", b"\xff\xff"])
BOUNDS = st.none() | KEYS | st.sampled_from([b"", b"a\0\0", b"bb", b"\xff\xff\xff"])
PREFIXES = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"\xff", b"zz"])
VALUES = st.binary(max_size=12) | st.integers(1, 400).map(bytes)
TTLS = st.none() | st.none() | st.integers(1, 500)
WRITES = st.tuples(KEYS, st.none() | VALUES, TTLS)
SMALL = {
    "flush_interval_ms": 0,
    "flush_bytes": 200,
    "l0_sst_bytes": 1500,
    "block_bytes": 64,
    "skip_memtable_bytes": 300,
    "flush_parallelism": 2,
    "manifest_full_every": 3,
}


@dataclass(frozen=True)
class Write:
    """One row as it was written; ``value`` is ``None`` for a tombstone. ``last_of_batch``: a crash may cut here."""

    key: bytes
    value: bytes | None
    seq: int
    create_ms: int
    expire_ms: int | None
    last_of_batch: bool


@dataclass
class View:
    """What a read is compared with: the writes up to a number, judged at a time."""

    writes: list[Write]
    max_seq: int
    now_ms: int

    def rows(self) -> dict[bytes, Row]:
        newest = {write.key: write for write in self.writes if write.seq <= self.max_seq}
        return {
            key: Row(
                key,
                write.value,
                write.seq,
                write.create_ms / 1000,
                None if write.expire_ms is None else write.expire_ms / 1000,
            )
            for key, write in sorted(newest.items())
            if write.value is not None and (write.expire_ms is None or write.expire_ms > self.now_ms)
        }


class DatabaseMachine(RuleBasedStateMachine):
    """See the module docstring. ``kind`` is set by the test."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.store = memory_store()
        self.writes: list[Write] = []
        self.acknowledged = 0
        self.tick_ms = self.highest_tick_ms = 0
        self.snapshots: list[tuple[slate.Snapshot, View]] = []
        self.zombies: list[slate.Db] = []

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(20):
                return await call

        return self.runner.run(limited())

    @initialize()
    def open(self) -> None:
        self.db = self.run(self.opened())

    async def opened(self) -> slate.Db:
        return await open_db(self.store, self.kind, clock=self.clock, **SMALL)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.run(self.db.close())
        for zombie in self.zombies:
            self.run(self.end(zombie))
        self.runner.close()

    async def end(self, zombie: slate.Db) -> None:
        with contextlib.suppress(slate.FencedError):
            await zombie.close()

    def catch_up(self, before_seq: int) -> None:
        """Note rows the database was given by others than this machine, numbered below ``before_seq``."""

    # writing

    def wrote(
        self, handle: slate.WriteHandle, rows: list[tuple[bytes, bytes | None, int | None]], durable: bool
    ) -> None:
        first = handle.seq - len(rows) + 1
        self.catch_up(first)
        tick_ms = round(handle.create_time * 1000)
        assert max(self.tick_ms, self.clock.wall_ms) <= tick_ms <= max(self.highest_tick_ms, self.clock.wall_ms)
        self.tick_ms = tick_ms
        self.highest_tick_ms = max(self.highest_tick_ms, tick_ms)
        assert first == (self.writes[-1].seq if self.writes else 0) + 1
        for seq, (key, value, ttl_ms) in enumerate(rows, first):
            expire = None if ttl_ms is None or value is None else self.tick_ms + ttl_ms
            self.writes.append(Write(key, value, seq, self.tick_ms, expire, seq == handle.seq))
        if durable:
            assert handle.is_durable
            self.acknowledged = handle.seq

    @rule(key=KEYS, value=VALUES, ttl_ms=TTLS, durable=st.booleans())
    def put(self, key: bytes, value: bytes, ttl_ms: int | None, durable: bool) -> None:
        ttl = None if ttl_ms is None else ttl_ms / 1000
        self.wrote(self.run(self.db.put(key, value, ttl=ttl, await_durable=durable)), [(key, value, ttl_ms)], durable)

    @rule(key=KEYS, durable=st.booleans())
    def delete(self, key: bytes, durable: bool) -> None:
        self.wrote(self.run(self.db.delete(key, await_durable=durable)), [(key, None, None)], durable)

    @rule(rows=st.lists(WRITES, min_size=1, max_size=7), durable=st.booleans())
    def batch(self, rows: list[tuple[bytes, bytes | None, int | None]], durable: bool) -> None:
        batch = slate.WriteBatch()
        for key, value, ttl_ms in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value, ttl=None if ttl_ms is None else ttl_ms / 1000)
        self.wrote(self.run(self.db.write(batch, await_durable=durable)), rows, durable)

    @rule(ms=st.integers(-20, 300))
    def time_passes(self, ms: int) -> None:
        self.clock.wall_ms += ms

    @rule(data=st.data(), early_ms=st.integers(0, 1))
    def time_reaches_an_expiry(self, data: st.DataObject, early_ms: int) -> None:
        times = sorted(
            {w.expire_ms for w in self.writes if w.expire_ms is not None and w.expire_ms > self.clock.wall_ms}
        )
        if times:
            self.clock.wall_ms = data.draw(st.sampled_from(times)) - early_ms

    @rule(turns=st.integers(1, 40))
    def tasks_run(self, turns: int) -> None:
        self.run(settle(turns))

    @rule(l0=st.booleans())
    def flush(self, l0: bool) -> None:
        self.run(self.db.flush(l0=l0))
        self.catch_up(self.db.status().last_seq + 1)
        self.acknowledged = self.writes[-1].seq if self.writes else 0
        status = self.db.status()
        assert status.durable_seq == status.last_seq == self.acknowledged
        if l0:
            assert status.unflushed_bytes == 0

    # opening again

    @rule()
    def close_and_open(self) -> None:
        self.snapshots.clear()
        self.run(self.db.close())
        self.acknowledged = self.writes[-1].seq if self.writes else 0
        self.come_back()

    @rule(turns=st.integers(0, 30))
    def crash_and_open(self, turns: int) -> None:
        self.snapshots.clear()
        self.run(settle(turns))
        self.note_durable()
        self.run(abandon(self.db))
        self.come_back()

    @rule(turns=st.integers(0, 30))
    def take_over(self, turns: int) -> None:
        """The old writer lives on and does not know yet."""
        self.snapshots.clear()
        self.run(settle(turns))
        self.note_durable()
        zombie = self.db
        self.come_back()
        assert zombie.status().durable_seq <= self.acknowledged, "acknowledged while it was taken over, and lost"
        self.zombies.append(zombie)

    @precondition(lambda self: bool(self.zombies))
    @rule(key=KEYS)
    def a_zombie_writes(self, key: bytes) -> None:
        with pytest.raises(slate.FencedError):
            self.run(self.zombies[-1].put(key, b"from a zombie"))
        self.run(self.end(self.zombies.pop()))

    def note_durable(self) -> None:
        self.acknowledged = max(self.acknowledged, self.db.status().durable_seq)

    def come_back(self) -> None:
        self.db = self.run(self.opened())
        last = self.db.status().last_seq
        assert self.acknowledged <= last, "an acknowledged write is lost"
        self.writes = [write for write in self.writes if write.seq <= last]
        assert last == (self.writes[-1].seq if self.writes else 0)
        assert not self.writes or self.writes[-1].last_of_batch, "a torn batch"
        self.acknowledged = last
        self.tick_ms = max((write.create_ms for write in self.writes), default=0)
        self.compare(self.db, self.current())

    # reading

    def current(self) -> View:
        return View(list(self.writes), self.writes[-1].seq if self.writes else 0, self.clock.wall_ms)

    def compare(self, readable: slate.Db | slate.Snapshot, view: View) -> None:
        async def rows() -> list[Row]:
            return [row async for row in readable.scan().rows()]

        assert self.run(rows()) == list(view.rows().values())

    @rule()
    def scan_everything(self) -> None:
        self.compare(self.db, self.current())

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        expected = self.current().rows().get(key)
        assert self.run(self.db.get_row(key)) == expected
        assert self.run(self.db.get(key)) == (None if expected is None else expected.value)

    @rule(keys=st.lists(KEYS, max_size=8))
    def get_many(self, keys: list[bytes]) -> None:
        rows = self.current().rows()
        expected = [rows[key].value if key in rows else None for key in keys]
        assert self.run(self.db.get_many(keys)) == expected

    @rule(
        start=BOUNDS,
        end=BOUNDS,
        reverse=st.booleans(),
        limit=st.none() | st.integers(0, 6),
        form=st.sampled_from(["pairs", "rows", "batches"]),
        on=st.sampled_from(["now", "durable", "snapshot"]),
    )
    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool, limit: int | None, form: str, on: str
    ) -> None:
        def within(key: bytes) -> bool:
            return (start is None or start <= key) and (end is None or key < end)

        self.check_scan({"start": start, "end": end}, within, reverse, limit, form, on)

    @rule(prefix=PREFIXES, reverse=st.booleans(), limit=st.none() | st.integers(0, 4))
    def scan_prefix(self, prefix: bytes | None, reverse: bool, limit: int | None) -> None:
        self.check_scan({"prefix": prefix}, lambda key: key.startswith(prefix or b""), reverse, limit, "pairs", "now")

    def check_scan(
        self, bounds: dict[str, bytes | None], within: Any, reverse: bool, limit: int | None, form: str, on: str
    ) -> None:
        readable: slate.Db | slate.Snapshot = self.db
        view = self.current()
        more: dict[str, Any] = {}
        if on == "snapshot" and self.snapshots:
            readable, view = self.snapshots[-1]
        if on == "durable":
            more["durable"] = True

        async def collect() -> list[Row]:
            if on == "durable":
                view.max_seq = self.db.status().durable_seq
                assert view.max_seq >= self.acknowledged
            scan = readable.scan(**bounds, reverse=reverse, limit=limit, **more)
            if form == "rows":
                return [row async for row in scan.rows()]
            if form == "pairs":
                return [Row(key, value, 0, 0.0, None) async for key, value in scan]
            table = pa.Table.from_batches([batch async for batch in scan.batches(3)], schema=SCHEMA)
            return [Row(*columns, 0.0, None) for columns in zip(*table.to_pydict().values(), strict=True)]

        found = self.run(collect())
        expected = [row for row in view.rows().values() if within(row.key)]
        if reverse:
            expected.reverse()
        expected = expected[:limit]
        if form == "pairs":
            expected = [row._replace(seq=0) for row in expected]
        if form != "rows":
            expected = [row._replace(create_time=0.0, expire_time=None) for row in expected]
        assert found == expected

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def durable_reads(self, keys: list[bytes]) -> None:
        async def read() -> tuple[int, bytes | None, list[bytes | None]]:
            seq = self.db.status().durable_seq
            return seq, await self.db.get(keys[0], durable=True), await self.db.get_many(keys, durable=True)

        self.current()  # whatever waits is looked at first
        seq, one, many = self.run(read())
        assert seq >= self.acknowledged
        rows = View(self.writes, seq, self.clock.wall_ms).rows()
        assert one == (rows[keys[0]].value if keys[0] in rows else None)
        after = View(self.writes, self.db.status().durable_seq, self.clock.wall_ms).rows()
        expected = [[found[key].value if key in found else None for key in keys] for found in (rows, after)]
        assert many in expected  # the second read may see what became durable during the first

    # snapshots

    @rule(durable=st.booleans())
    def snapshot(self, durable: bool) -> None:
        async def take() -> slate.Snapshot:
            return self.db.snapshot(durable=durable)

        view = self.current()
        snap = self.run(take())
        assert snap.seq <= view.max_seq
        assert snap.seq >= self.acknowledged
        assert durable or snap.seq == view.max_seq
        view.max_seq = snap.seq
        self.snapshots.append((snap, view))

    @precondition(lambda self: bool(self.snapshots))
    @rule(data=st.data(), key=KEYS)
    def read_a_snapshot(self, data: st.DataObject, key: bytes) -> None:
        snap, view = data.draw(st.sampled_from(self.snapshots))
        self.compare(snap, view)
        expected = view.rows().get(key)
        assert self.run(snap.get_row(key)) == expected
        assert self.run(snap.get_many([key])) == [None if expected is None else expected.value]

    @precondition(lambda self: bool(self.snapshots))
    @rule()
    def close_a_snapshot(self) -> None:
        self.snapshots.pop(0)[0].close()


SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("seq", pa.uint64())])


@pytest.fixture(autouse=True)
def _soon_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point reads go through hot ranges as soon as that is possible."""
    monkeypatch.setattr(hot, "READS_PER_LOOK", 1)
    monkeypatch.setattr(hot, "WORTH_LOOKUPS", 1)
    monkeypatch.setattr(block_rows, "WORTH_LOOKS", 2)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_database_agrees_with_its_list_of_writes(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(DatabaseMachine, kind, slice_seed, examples=1000 if full else 30, steps=60)
