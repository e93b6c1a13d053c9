"""Rows of unsorted sources in the order of their numbers: in memory, on disk, and again and again."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.codec.columns import Columns
from slate_async.engine.changes.selection import SeqSource, select
from slate_async.engine.changes.spill import Spill
from tests.engine import ManualClock, memory_store, open_db, runtime
from tests.support.feeds import all_of

ROW_BYTES = 40


def rows_of(seqs: list[int], rows_per_ms: int) -> Columns:
    numbers = np.array(seqs, np.uint64)
    keys = pa.array([b"%05d" % seq for seq in seqs], pa.binary())
    return Columns(keys, keys, numbers, np.zeros(len(seqs), np.uint8), None, (numbers // rows_per_ms).astype(np.int64))


@dataclass
class Table:
    """Rows in the order of nothing, in small batches; counts how often it was read."""

    rows: Columns
    reads: int = 0

    @property
    def source(self) -> SeqSource:
        return SeqSource(int(self.rows.seqs.min()), int(self.rows.seqs.max()), self.open)

    async def open(self) -> AsyncIterator[Columns]:
        self.reads += 1
        for start in range(0, len(self.rows), 7):
            yield self.rows.slice(start, min(start + 7, len(self.rows)))


def tables(rng: random.Random, count: int, rows_per_ms: int) -> list[Table]:
    """Numbers from 1 on, in two tables of which each has some of all, and a third one above them."""
    seqs = list(range(1, count + 1))
    rng.shuffle(seqs)
    later = list(range(count + 1, count + 50))
    return [Table(rows_of(part, rows_per_ms)) for part in (seqs[: count // 3], seqs[count // 3 :], later)]


async def in_ranges(found: list[Table], last: int, room: int, spill: int) -> list[list[int]]:
    ranges: list[list[int]] = []
    after, rest = 0, None
    while after < last:
        if rest is not None and not rest.over:
            assert rest.after == after
            rows, after = await rest.next(), rest.after
        else:
            selected = await select([table.source for table in found], after, last, room, spill, runtime())
            rows, after, rest = selected.rows, selected.end, selected.rest
        if rows is not None:
            ranges.append([int(seq) for seq in rows.seqs])
            assert rows.keys.to_pylist() == [b"%05d" % seq for seq in ranges[-1]]
    return ranges


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rows_per_ms", [1, 5, 1_000])
@pytest.mark.parametrize("spill_rows", [0, 60, 250, 10_000])
@pytest.mark.parametrize("room_rows", [1, 30, 10_000])
async def test_all_rows_come_once_in_order_and_no_write_is_torn(
    seed: int, rows_per_ms: int, spill_rows: int, room_rows: int
) -> None:
    found = tables(random.Random(seed), 300, rows_per_ms)
    ranges = await in_ranges(found, 349, room_rows * ROW_BYTES, spill_rows * ROW_BYTES)
    assert [seq for seqs in ranges for seq in seqs] == list(range(1, 350))
    if room_rows < 10_000 and rows_per_ms < 1_000:
        assert len(ranges) > 3
        ends = [seqs[-1] for seqs in ranges[:-1]]
        assert all((end + 1) % rows_per_ms == 0 for end in ends), "where the time changes"


async def test_what_fits_on_disk_is_read_once_and_more_as_often_as_needed() -> None:
    reads = {}
    for spill_rows in (0, 200, 10_000):
        found = tables(random.Random(1), 1_000, 1)
        await in_ranges(found, 1_049, 20 * ROW_BYTES, spill_rows * 2 * ROW_BYTES)
        reads[spill_rows] = found[0].reads
    assert reads[10_000] == 1
    assert 3 <= reads[200] < reads[0] / 3


async def test_the_disk_is_not_filled_with_what_was_given_up() -> None:
    """Twenty times as many rows as there is place for, in runs."""
    rng, sort_spill_bytes = random.Random(3), 40_000
    spill = Spill(1_000_000, 6_400, sort_spill_bytes, runtime())
    for _ in range(100):
        below = [seq for seq in sorted(rng.sample(range(1, 1_000_000), 200)) if seq <= spill.until]
        if below:
            await spill.add(rows_of(below, 1))
    assert spill.until < 100_000
    assert sum(chunk.size for chunk in spill._chunks) <= sort_spill_bytes
    assert spill._end < 2 * sort_spill_bytes


async def test_without_room_on_disk_all_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    found = tables(random.Random(2), 300, 1)
    ranges = await in_ranges(found, 349, 30 * ROW_BYTES, 10_000 * ROW_BYTES)
    assert [seq for seqs in ranges for seq in seqs] == list(range(1, 350))
    assert found[0].reads > 3
    assert "without spill files" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"\0"])
async def test_what_comes_back_wrong_is_read_from_ssts_again(
    damage: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pread, asked = os.pread, []

    def wrong(file: int, size: int, offset: int) -> bytes:
        asked.append(offset)
        return damage * size if len(asked) % 5 == 3 else pread(file, size, offset)

    clock = ManualClock()
    async with open_db(memory_store(), clock=clock) as db:
        for number in range(200):
            clock.wall_ms += 1
            await db.put(b"%d" % (number * 37 % 200), b"value", await_durable=False)
        await db.compact(full=True)
        monkeypatch.setattr(os, "pread", wrong)
        found = await all_of(db.changes(follow=False, sort_memory_bytes=20 * ROW_BYTES))
    assert [change.seq for change in found] == list(range(1, 201))
    assert "a spill file cannot be read" in caplog.text


async def test_how_much_goes_to_disk_is_a_number() -> None:
    async with open_db(memory_store()) as db:
        for wrong in (-1, True, "1"):
            with pytest.raises(slate.InvalidError, match="sort_spill_bytes"):
                db.changes(sort_spill_bytes=wrong)  # type: ignore[arg-type]


async def test_a_step_that_is_cancelled_loses_nothing_of_what_is_on_disk() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), clock=clock) as db:
        for number in range(300):
            clock.wall_ms += 1
            await db.put(b"%d" % (number * 37 % 300), b"value", await_durable=False)
        await db.compact(full=True)
        found: list[int] = []
        async with db.changes(follow=False, sort_memory_bytes=20 * ROW_BYTES) as feed:
            batches = feed.batches()
            turns = random.Random(4)
            while len(found) < 300:
                step = asyncio.ensure_future(anext(batches))
                for _ in range(turns.randrange(12)):
                    await asyncio.sleep(0)
                step.cancel()
                await asyncio.wait([step])
                if not step.cancelled():
                    found += step.result().column("seq").to_pylist()
        assert found == list(range(1, 301))
