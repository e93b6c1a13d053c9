"""Sequencer: rows within the lease change memory only; whatever else has to happen ends the lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from slate_async.engine.write import sequencer
from slate_async.engine.write.admission import Admission
from slate_async.engine.write.batch import WriteBatch, rows_of
from slate_async.engine.write.memtables import MemtableEntry, MemtableList
from slate_async.engine.write.sequencer import STORED_ROW_BYTES, Sequencer
from slate_async.engine.write.signals import WriterSignals
from slate_async.errors import ClosedError
from slate_async.storage.memtable import ROW_OVERHEAD_BYTES, Memtable
from slate_async.types import DELETE, MAX_SEQ, PUT

ROW = 10 + ROW_OVERHEAD_BYTES
"""What `Bench.now` reserves for a row."""


@dataclass
class TurnedClock:
    ms: int = 1000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


@dataclass
class Bench:
    """A sequencer, and its news. ``room``: what may be in memory; ``flush``, ``segment``: see there."""

    room: int = 100 * ROW
    flush: int = 10_000
    segment: int = 10_000
    skip: int = 10_000
    most: int = 1 << 30
    clock: TurnedClock = field(default_factory=TurnedClock)
    news: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        signals = WriterSignals()
        active = MemtableEntry(Memtable(), 0, 1)
        self.memtables = MemtableList(1, False, 1 << 30, self.segment, active, signals=signals)
        self.admission = Admission(self.room)
        self.sequencer = Sequencer(
            state=SimpleNamespace(memtables=self.memtables),  # type: ignore[arg-type]
            admission=self.admission,
            last_seq=0,
            tick_ms=0,
            most_bytes=self.most,
            skip_bytes=self.skip,
            flush_bytes=self.flush,
            clock=self.clock,
            signals=signals,
        )
        signals.connect(
            rows_added=[lambda: self.news.append("added")],
            space_wanted=[lambda: self.news.append("space_wanted")],
            memtable_cut=[self.sequencer.end_lease],
        )

    def now(self, number: int, kind: int = PUT) -> bool:
        """Whether a row of 10 bytes was applied as one that changes memory only."""
        return self.sequencer.row_now(b"%04d" % number, b"6bytes", kind, None) is not None

    async def row(self, number: int, value: bytes = b"6bytes") -> None:
        await self.sequencer.row(b"%04d" % number, value, PUT, None)

    async def applied_now(self) -> int:
        """How many rows after one awaited row need nothing else."""
        await self.row(0)
        count = 0
        while self.now(count + 1):
            count += 1
        return count


async def test_the_first_row_wakes_the_flusher_and_those_after_it_need_not() -> None:
    bench = Bench()
    assert not bench.now(0)
    await bench.row(0)
    assert bench.now(1)
    assert bench.now(2, DELETE)
    assert bench.news == ["added"]
    assert bench.sequencer.last_seq == 3
    hit = bench.memtables.active.table.get(b"0002", MAX_SEQ)
    assert hit is not None
    assert (hit.seq, hit.kind, hit.create_ms) == (3, DELETE, 1000)
    assert bench.sequencer.unflushed_bytes == bench.memtables.active.table.nbytes == 3 * ROW


async def test_a_cut_ends_the_lease_and_gives_back_what_is_left() -> None:
    bench = Bench()
    await bench.row(0)
    assert bench.admission.used > ROW
    before = bench.sequencer.newest_group
    bench.memtables.cut()
    assert bench.admission.used == ROW
    assert not bench.now(1)
    await bench.row(1)
    assert bench.sequencer.newest_group is not before
    assert before is not None
    assert (before.writes, bench.memtables.group.writes) == (1, 1)


async def test_a_frozen_table_gets_no_row() -> None:
    bench = Bench()
    await bench.row(0)
    bench.memtables.freeze()
    assert not bench.now(1)
    await bench.row(1)
    assert bench.now(2)
    assert [len(entry.table) for entry in (*bench.memtables.frozen, bench.memtables.active)] == [1, 2]


async def test_the_lease_ends_before_memory_is_full() -> None:
    bench = Bench(room=4 * ROW)
    assert await bench.applied_now() == 3
    assert bench.admission.used == bench.sequencer.unflushed_bytes == 4 * ROW
    waiting = asyncio.create_task(bench.row(9))
    await asyncio.sleep(0)
    assert bench.news == ["added", "space_wanted"]
    assert bench.admission.waiting == 1
    assert not bench.now(10)  # first come, first served
    bench.admission.release(2 * ROW)
    assert not bench.now(10)
    await waiting
    assert bench.sequencer.last_seq == 5
    assert bench.now(11)


async def test_a_row_that_waits_may_have_what_was_lent() -> None:
    bench = Bench(room=4 * ROW)
    await bench.row(0)
    await bench.row(1, bytes(3 * ROW - ROW_OVERHEAD_BYTES - 4))
    assert bench.admission.used == 4 * ROW
    assert bench.news == ["added", "added"]


async def test_the_flusher_is_woken_by_the_row_that_makes_a_full_flush() -> None:
    bench = Bench(room=10**6, flush=1000)
    woken_by = []
    for number in range(150):
        if not bench.now(number):
            await bench.row(number)
            woken_by.append(number + 1)
    assert 1000 // 10 in woken_by
    assert len(woken_by) < 75


async def test_segments_are_cut_at_their_size() -> None:
    bench = Bench(segment=50)
    for number in range(12):
        if not bench.now(number):
            await bench.row(number)
    assert [segment.stop - segment.start for segment in bench.memtables.queue] == [5, 5]
    assert [segment.group.writes for segment in bench.memtables.queue] == [5, 5]


async def test_rows_that_need_nothing_else_stay_within_what_a_log_object_may_take_decoded() -> None:
    """Short rows take many times their bytes there."""
    bench = Bench(room=10**6, most=1_000)
    in_lease = 0
    for number in range(100):
        if bench.now(number):
            in_lease += 1
        else:
            await bench.row(number)
    bench.memtables.cut()
    rows = [segment.stop - segment.start for segment in bench.memtables.queue]
    assert in_lease > 50
    assert sum(rows) == 100
    assert max(rows) == 1_000 // (10 + STORED_ROW_BYTES)


async def test_a_large_value_is_a_table_of_its_own() -> None:
    bench = Bench(skip=3 * ROW)
    await bench.row(0)
    large = bytes(3 * ROW + 1)
    assert bench.sequencer.row_now(b"a", large, PUT, None) is None
    await bench.row(1, large)
    assert not bench.now(2)
    await bench.row(2)
    assert [len(entry.table) for entry in (*bench.memtables.frozen, bench.memtables.active)] == [1, 1, 1]


async def test_write_times_never_go_back_and_expiry_counts_from_them() -> None:
    bench = Bench()
    await bench.row(0)
    bench.clock.ms = 500
    handle = bench.sequencer.row_now(b"a", b"", PUT, 30)
    bench.clock.ms = 1500
    later = bench.sequencer.row_now(b"b", b"", PUT, None)
    assert handle is not None
    assert later is not None
    assert (handle.create_time, later.create_time, bench.sequencer.tick_ms) == (1.0, 1.5, 1500)
    hit = bench.memtables.active.table.get(b"a", MAX_SEQ)
    assert hit is not None
    assert hit.expire_ms == 1030


async def test_a_batch_counts_once_and_rows_go_on_after_it() -> None:
    bench = Bench()
    await bench.row(0)
    batch = WriteBatch()
    for number in range(3):
        batch.put(b"%04d" % number, b"6bytes")
    assert (await bench.sequencer.batch(rows_of(batch))).seq == 4
    assert bench.now(5)
    assert bench.sequencer.unflushed_bytes == bench.memtables.active.table.nbytes == 5 * ROW
    assert bench.memtables.group.writes == 3
    empty = await bench.sequencer.batch(rows_of(WriteBatch()))
    assert (empty.seq, empty.is_durable) == (5, False)
    bench.memtables.group.resolve()
    assert empty.is_durable


async def test_refused_writes_change_nothing() -> None:
    bench = Bench()
    await bench.row(0)
    bench.sequencer.refuse(lambda: ClosedError("closed", outcome="not_applied"))
    assert not bench.now(1)
    with pytest.raises(ClosedError):
        await bench.row(1)
    assert bench.sequencer.last_seq == 1
    assert bench.admission.used == ROW


async def test_a_row_that_the_log_object_before_it_cannot_hold_begins_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequencer, "MAX_BATCH_BYTES", 100)
    bench = Bench()
    for number in range(3):
        await bench.row(number, b"x" * 56)
    assert [segment.nbytes for segment in bench.memtables.queue] == [60, 60]
    bench = Bench()
    await bench.row(0, b"x" * 36)
    await bench.row(1, b"x" * 56)
    assert not bench.memtables.queue


async def test_a_log_object_holds_no_more_than_may_be_decoded() -> None:
    bench = Bench(most=3 * (60 + sequencer.STORED_ROW_BYTES))
    for number in range(4):
        await bench.row(number, b"x" * 56)
    assert [segment.nbytes for segment in bench.memtables.queue] == [180]


async def test_a_full_log_lets_no_row_in_until_something_leaves_it() -> None:
    bench = Bench()
    full = True
    bench.admission._full = lambda: full
    await bench.row(0)  # nothing else is in
    assert not bench.now(1)
    waiting = asyncio.create_task(bench.row(1))
    await asyncio.sleep(0)
    assert (bench.admission.waiting, bench.news[-1]) == (1, "space_wanted")
    full = False
    bench.admission.release(ROW)
    await waiting


async def test_a_life_begins_by_the_own_clock_where_the_last_write_time_is_far_ahead() -> None:
    bench = Bench()
    year = 365 * 86_400_000
    bench.sequencer.tick_ms = bench.clock.ms + year  # inherited
    batch = WriteBatch()
    batch.put(b"batch", b"v", ttl=5)
    await bench.sequencer.batch(rows_of(batch))
    await bench.sequencer.row(b"row", b"v", PUT, 5000)
    assert bench.sequencer.row_now(b"now", b"v", PUT, 5000) is not None
    for key in (b"batch", b"row", b"now"):
        hit = bench.memtables.active.table.get(key, MAX_SEQ)
        assert hit is not None
        assert (hit.create_ms, hit.expire_ms) == (1000 + year, 1000 + sequencer.CLOCK_SKEW_MS + 5000)


async def test_a_life_begins_with_the_write_time_where_the_own_clock_is_a_little_behind() -> None:
    bench = Bench()
    bench.sequencer.tick_ms = bench.clock.ms + sequencer.CLOCK_SKEW_MS
    await bench.sequencer.row(b"row", b"v", PUT, 5000)
    hit = bench.memtables.active.table.get(b"row", MAX_SEQ)
    assert hit is not None
    assert hit.expire_ms == hit.create_ms + 5000
