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
"""What `SequencerHarness.now` reserves for a row."""


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
class SequencerHarness:
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
            most_batch_bytes=1 << 30,
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
    harness = SequencerHarness()
    assert not harness.now(0)
    await harness.row(0)
    assert harness.now(1)
    assert harness.now(2, DELETE)
    assert harness.news == ["added"]
    assert harness.sequencer.last_seq == 3
    hit = harness.memtables.active.table.get(b"0002", MAX_SEQ)
    assert hit is not None
    assert (hit.seq, hit.kind, hit.create_ms) == (3, DELETE, 1000)
    assert harness.sequencer.unflushed_bytes == harness.memtables.active.table.nbytes == 3 * ROW


async def test_a_cut_ends_the_lease_and_gives_back_what_is_left() -> None:
    harness = SequencerHarness()
    await harness.row(0)
    assert harness.admission.used > ROW
    before = harness.sequencer.newest_group
    harness.memtables.cut()
    assert harness.admission.used == ROW
    assert not harness.now(1)
    await harness.row(1)
    assert harness.sequencer.newest_group is not before
    assert before is not None
    assert (before.writes, harness.memtables.group.writes) == (1, 1)


async def test_a_frozen_table_gets_no_row() -> None:
    harness = SequencerHarness()
    await harness.row(0)
    harness.memtables.freeze()
    assert not harness.now(1)
    await harness.row(1)
    assert harness.now(2)
    assert [len(entry.table) for entry in (*harness.memtables.frozen, harness.memtables.active)] == [1, 2]


async def test_the_lease_ends_before_memory_is_full() -> None:
    harness = SequencerHarness(room=4 * ROW)
    assert await harness.applied_now() == 3
    assert harness.admission.used == harness.sequencer.unflushed_bytes == 4 * ROW
    waiting = asyncio.create_task(harness.row(9))
    await asyncio.sleep(0)
    assert harness.news == ["added", "space_wanted"]
    assert harness.admission.waiting == 1
    assert not harness.now(10)  # first come, first served
    harness.admission.release(2 * ROW)
    assert not harness.now(10)
    await waiting
    assert harness.sequencer.last_seq == 5
    assert harness.now(11)


async def test_a_row_that_waits_may_have_what_was_lent() -> None:
    harness = SequencerHarness(room=4 * ROW)
    await harness.row(0)
    await harness.row(1, bytes(3 * ROW - ROW_OVERHEAD_BYTES - 4))
    assert harness.admission.used == 4 * ROW
    assert harness.news == ["added", "added"]


async def test_the_flusher_is_woken_by_the_row_that_makes_a_full_flush() -> None:
    harness = SequencerHarness(room=10**6, flush=1000)
    woken_by = []
    for number in range(150):
        if not harness.now(number):
            await harness.row(number)
            woken_by.append(number + 1)
    assert 1000 // 10 in woken_by
    assert len(woken_by) < 75


async def test_segments_are_cut_at_their_size() -> None:
    harness = SequencerHarness(segment=50)
    for number in range(12):
        if not harness.now(number):
            await harness.row(number)
    assert [segment.stop - segment.start for segment in harness.memtables.queue] == [5, 5]
    assert [segment.group.writes for segment in harness.memtables.queue] == [5, 5]


async def test_rows_that_need_nothing_else_stay_within_what_a_log_object_may_take_decoded() -> None:
    """Short rows take many times their bytes there."""
    harness = SequencerHarness(room=10**6, most=1_000)
    in_lease = 0
    for number in range(100):
        if harness.now(number):
            in_lease += 1
        else:
            await harness.row(number)
    harness.memtables.cut()
    rows = [segment.stop - segment.start for segment in harness.memtables.queue]
    assert in_lease > 50
    assert sum(rows) == 100
    assert max(rows) == 1_000 // (10 + STORED_ROW_BYTES)


async def test_a_large_value_is_a_table_of_its_own() -> None:
    harness = SequencerHarness(skip=3 * ROW)
    await harness.row(0)
    large = bytes(3 * ROW + 1)
    assert harness.sequencer.row_now(b"a", large, PUT, None) is None
    await harness.row(1, large)
    assert not harness.now(2)
    await harness.row(2)
    assert [len(entry.table) for entry in (*harness.memtables.frozen, harness.memtables.active)] == [1, 1, 1]


async def test_write_times_never_go_back_and_expiry_counts_from_them() -> None:
    harness = SequencerHarness()
    await harness.row(0)
    harness.clock.ms = 500
    handle = harness.sequencer.row_now(b"a", b"", PUT, 30)
    harness.clock.ms = 1500
    later = harness.sequencer.row_now(b"b", b"", PUT, None)
    assert handle is not None
    assert later is not None
    assert (handle.create_time, later.create_time, harness.sequencer.tick_ms) == (1.0, 1.5, 1500)
    hit = harness.memtables.active.table.get(b"a", MAX_SEQ)
    assert hit is not None
    assert hit.expire_ms == 1030


async def test_a_batch_counts_once_and_rows_go_on_after_it() -> None:
    harness = SequencerHarness()
    await harness.row(0)
    batch = WriteBatch()
    for number in range(3):
        batch.put(b"%04d" % number, b"6bytes")
    assert (await harness.sequencer.batch(rows_of(batch))).seq == 4
    assert harness.now(5)
    assert harness.sequencer.unflushed_bytes == harness.memtables.active.table.nbytes == 5 * ROW
    assert harness.memtables.group.writes == 3
    empty = await harness.sequencer.batch(rows_of(WriteBatch()))
    assert (empty.seq, empty.is_durable) == (5, False)
    harness.memtables.group.resolve()
    assert empty.is_durable


async def test_refused_writes_change_nothing() -> None:
    harness = SequencerHarness()
    await harness.row(0)
    harness.sequencer.refuse(lambda: ClosedError("closed", outcome="not_applied"))
    assert not harness.now(1)
    with pytest.raises(ClosedError):
        await harness.row(1)
    assert harness.sequencer.last_seq == 1
    assert harness.admission.used == ROW


async def test_a_row_that_the_log_object_before_it_cannot_hold_begins_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequencer, "MAX_BATCH_BYTES", 100)
    harness = SequencerHarness()
    for number in range(3):
        await harness.row(number, b"x" * 56)
    assert [segment.nbytes for segment in harness.memtables.queue] == [60, 60]
    harness = SequencerHarness()
    await harness.row(0, b"x" * 36)
    await harness.row(1, b"x" * 56)
    assert not harness.memtables.queue


async def test_a_log_object_holds_no_more_than_may_be_decoded() -> None:
    harness = SequencerHarness(most=3 * (60 + sequencer.STORED_ROW_BYTES))
    for number in range(4):
        await harness.row(number, b"x" * 56)
    assert [segment.nbytes for segment in harness.memtables.queue] == [180]


async def test_a_full_log_lets_no_row_in_until_something_leaves_it() -> None:
    harness = SequencerHarness()
    full = True
    harness.admission._full = lambda: full
    await harness.row(0)  # nothing else is in
    assert not harness.now(1)
    waiting = asyncio.create_task(harness.row(1))
    await asyncio.sleep(0)
    assert (harness.admission.waiting, harness.news[-1]) == (1, "space_wanted")
    full = False
    harness.admission.release(ROW)
    await waiting


async def test_a_life_begins_by_the_own_clock_where_the_last_write_time_is_far_ahead() -> None:
    harness = SequencerHarness()
    year = 365 * 86_400_000
    harness.sequencer.tick_ms = harness.clock.ms + year  # inherited
    batch = WriteBatch()
    batch.put(b"batch", b"v", ttl=5)
    await harness.sequencer.batch(rows_of(batch))
    await harness.sequencer.row(b"row", b"v", PUT, 5000)
    assert harness.sequencer.row_now(b"now", b"v", PUT, 5000) is not None
    for key in (b"batch", b"row", b"now"):
        hit = harness.memtables.active.table.get(key, MAX_SEQ)
        assert hit is not None
        assert (hit.create_ms, hit.expire_ms) == (1000 + year, 1000 + sequencer.CLOCK_SKEW_MS + 5000)


async def test_a_life_begins_with_the_write_time_where_the_own_clock_is_a_little_behind() -> None:
    harness = SequencerHarness()
    harness.sequencer.tick_ms = harness.clock.ms + sequencer.CLOCK_SKEW_MS
    await harness.sequencer.row(b"row", b"v", PUT, 5000)
    hit = harness.memtables.active.table.get(b"row", MAX_SEQ)
    assert hit is not None
    assert hit.expire_ms == hit.create_ms + 5000
