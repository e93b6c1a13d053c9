"""Followers against a plain list of writes: whatever is written, flushed, compacted, collected and taken over, and
wherever a follower's look is cut short, it shows exactly the state of the sequence number it says, and never an older
one than before. What it pinned stays readable.

Hypothesis drives one database of each kind and three readers of it; compactor and collector work by hand in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import slate_async as slate
from tests.engine import KINDS, Kind, ManualClock, abandon, contents, memory_store, open_db, open_reader
from tests.property.machines import run_machine
from tests.support.manifests import collect, compact, head

T = TypeVar("T")
KEYS = [b"a", b"b", b"c", b"d"]
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(1, 300)), min_size=1, max_size=4)
READERS = st.integers(0, 2)
SMALL = {
    "flush_interval_ms": 0,
    "flush_bytes": 200,
    "l0_sst_bytes": 1500,
    "block_bytes": 64,
    "block_cache_bytes": 64,
    "flush_parallelism": 2,
    "manifest_full_every": 3,
    "auto_compaction": False,
    "l0_max_ssts": 4_096,
}


class FollowerMachine(RuleBasedStateMachine):
    """See the module docstring. ``kind`` is set by the test."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.store = memory_store()
        self.states: list[dict[bytes, bytes]] = [{}]  # by sequence number
        self.compacted = False
        self.pinned: list[tuple[slate.Snapshot, int]] = []

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(20):
                return await call

        return self.runner.run(limited())

    @initialize()
    def open(self) -> None:
        self.db = self.run(self.opened())
        self.readers = [self.run(self.reader(number)) for number in range(3)]
        self.seen = [0, 0, 0]

    async def opened(self) -> slate.Db:
        return await open_db(self.store, self.kind, clock=self.clock, **SMALL)

    async def reader(self, number: int) -> slate.DbReader:
        """The last one holds no checkpoints."""
        return await open_reader(
            self.store, clock=self.clock, pin=number < 2, reader_memtable_bytes=1_000, block_cache_bytes=0
        )

    def teardown(self) -> None:
        if hasattr(self, "readers"):
            for reader in self.readers:
                self.run(reader.close())
            assert [
                checkpoint for checkpoint in self.run(head(self.store)).checkpoints if checkpoint.owner == "reader"
            ] == []
            self.run(self.db.close())
        self.runner.close()

    @rule(rows=ROWS)
    def write(self, rows: list[tuple[bytes, int | None]]) -> None:
        batch = slate.WriteBatch()
        for key, size in rows:
            state = dict(self.states[-1])
            if size is None:
                batch.delete(key)
                state.pop(key, None)
            else:
                state[key] = b"%d" % len(self.states) + b"." * size
                batch.put(key, state[key])
            self.states.append(state)
        assert self.run(self.written(batch)).seq == len(self.states) - 1

    async def written(self, batch: slate.WriteBatch) -> slate.WriteHandle:
        return await self.db.write(batch)

    @rule()
    def flush(self) -> None:
        self.run(self.db.flush(l0=True))

    @rule()
    def take_over(self) -> None:
        self.run(abandon(self.db))
        self.db = self.run(self.opened())

    @rule()
    def compact_and_collect(self) -> None:
        self.run(self.compacted_and_collected())

    async def compacted_and_collected(self) -> None:
        await compact(self.store)
        self.compacted = True
        for _ in range(2):  # a pin of the writer goes at the look after the one that made the next
            await self.db.confirm()
        await collect(self.store, self.clock.now_ms())

    @rule(number=READERS, turns=st.integers(0, 40), patient=st.booleans())
    def look_cut_short(self, number: int, turns: int, patient: bool) -> None:
        async def cut() -> None:
            follower = self.readers[number]._follower
            assert follower is not None
            work = asyncio.ensure_future(follower.catch_up(patient=patient))
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])

        self.run(cut())

    @rule(number=READERS, turns=st.integers(0, 40))
    def look_while_all_is_compacted(self, number: int, turns: int) -> None:
        async def meanwhile() -> None:
            follower = self.readers[number]._follower
            assert follower is not None
            work = asyncio.ensure_future(follower.catch_up())
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.compacted_and_collected()
            await work

        self.run(meanwhile())

    @rule(number=READERS, patient=st.booleans())
    def look(self, number: int, patient: bool) -> None:
        follower = self.readers[number]._follower
        assert follower is not None
        self.run(follower.catch_up(patient=patient))
        assert self.readers[number].status().last_seq == len(self.states) - 1

    @rule(number=st.integers(0, 1))
    def snapshot(self, number: int) -> None:
        taken = self.run(self.taken(number))
        self.pinned.append((taken, taken.seq))

    async def taken(self, number: int) -> slate.Snapshot:
        return self.readers[number].snapshot()

    @rule(which=st.integers(0, 9), keep=st.booleans())
    def read_snapshot(self, which: int, keep: bool) -> None:
        if self.pinned:
            snapshot, seq = self.pinned[which % len(self.pinned)]
            assert self.run(contents(snapshot)) == self.states[seq]
            if not keep:
                snapshot.close()
                self.pinned.remove((snapshot, seq))

    @rule(number=READERS, back=st.integers(0, 6))
    def look_back(self, number: int, back: int) -> None:
        """Nothing here keeps history, so only what was not compacted is compared."""
        seq = self.readers[number].status().last_seq - back
        if seq >= 0 and not self.compacted:
            assert self.run(self.at(number, seq)) == self.states[seq]

    async def at(self, number: int, seq: int) -> dict[bytes, bytes]:
        async with self.readers[number].as_of(seq=seq) as then:
            return await contents(then)

    @rule()
    def time_passes(self) -> None:
        """Over half of a checkpoint's life; its owners look in time."""
        self.clock.wall_ms += 301_000
        for reader in self.readers[:2]:
            self.run(reader.refresh())

    @rule(number=READERS)
    def reopen(self, number: int) -> None:
        for snapshot, _ in self.pinned:
            snapshot.close()
        self.pinned = []
        self.run(self.readers[number].close())
        self.readers[number] = self.run(self.reader(number))
        assert self.readers[number].status().last_seq == len(self.states) - 1

    @rule(number=READERS)
    def read(self, number: int) -> None:
        """A scan stays at its read point, also where it looks at the head again and the reader advances."""
        reader = self.readers[number]
        before = reader.status().last_seq
        try:
            found = self.run(contents(reader))
        except slate.ConflictError:
            assert number == 2, "what a checkpoint holds is not removed"
            before = reader.status().last_seq
            found = self.run(contents(reader))
        after = reader.status().last_seq
        assert found in self.states[before : after + 1]
        values = self.run(self.values(reader))
        assert values in [
            [state.get(key) for key in KEYS] for state in self.states[after : reader.status().last_seq + 1]
        ]

    async def values(self, reader: slate.DbReader) -> list[bytes | None]:
        return [await reader.get(key) for key in KEYS]

    @invariant()
    def never_back(self) -> None:
        if hasattr(self, "readers"):
            now = [reader.status().last_seq for reader in self.readers]
            assert all(after >= before for before, after in zip(self.seen, now, strict=True))
            self.seen = now


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_followers_of_each_kind(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(FollowerMachine, kind, slice_seed, examples=400 if full else 15, steps=40, shrink=full)
