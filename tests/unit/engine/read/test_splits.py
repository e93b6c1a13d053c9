"""Splits cover a key range once, in order, and are about as large as asked for."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.read import KeyRange, ReadView, Table
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.row_statistics import row_statistics
from slate_async.engine.read.splits import split_view
from slate_async.engine.read.sst_tables import StoredRun
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.balance import SAMPLES_PER_RANGE, STEP
from slate_async.types import MAX_SEQ
from tests.engine import KINDS, Kind, memory_store
from tests.read_model import FakeTable, Version, exhausted_budget

ROWS = 4_000


async def filled(db: slate.Db, rng: random.Random) -> None:
    for _ in range(2):
        for start in range(0, ROWS, 500):
            batch = slate.WriteBatch()
            for number in range(start, start + 500):
                batch.put(b"%05d" % number, rng.randbytes(40))
            await db.write(batch)
        await db.flush(l0=True)


def check_cover(splits: list[slate.Split], start: bytes | None, end: bytes | None) -> None:
    assert (splits[0].start, splits[-1].end) == (start, end)
    assert all(one.end == other.start for one, other in pairwise(splits))
    bounds = [split.start for split in splits[1:]]
    assert bounds == sorted(set(bounds))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_splits_cover_everything_in_even_parts(kind: Kind) -> None:
    async with slate.open(memory_store(), settings=kind.settings(sst_bytes=64_000)) as db:
        await filled(db, random.Random(1))
        whole = (await db.splits())[0]
        assert whole[:2] == (None, None)
        splits = await db.splits(target_bytes=whole.nbytes // 8)
        check_cover(splits, None, None)
        assert 7 <= len(splits) <= 9
        counts = [len([1 async for _ in db.scan(split.start, split.end)]) for split in splits]
        assert sum(counts) == ROWS
        assert max(counts) < 2 * ROWS / len(splits)


async def test_splits_of_a_part_stay_inside_it() -> None:
    async with slate.open(memory_store(), settings=KINDS[0].settings(sst_bytes=64_000)) as db:
        await filled(db, random.Random(2))
        check_cover(await db.splits(b"01000", b"02000", target_bytes=20_000), b"01000", b"02000")
        inside = await db.splits(prefix=b"01", target_bytes=1)
        check_cover(inside, b"01", b"02")
        assert len(inside) > 1
        assert await db.splits(b"2", b"1") == []
        assert await db.splits(b"x", b"y", target_bytes=1) == [(b"x", b"y", 0)]


async def test_splits_of_nothing_and_of_rows_in_memory() -> None:
    async with slate.open(memory_store(), settings=KINDS[0].settings()) as db:
        assert await db.splits() == [(None, None, 0)]
        await db.put(b"k", b"v")
        assert await db.splits(target_bytes=1) == [(None, None, 0)]
        with pytest.raises(slate.InvalidError, match="positive number of bytes"):
            await db.splits(target_bytes=0)


async def test_a_view_is_pinned_while_its_indexes_or_rows_are_read() -> None:
    pinned: list[bool] = []

    class Watched(FakeTable):
        size = 1000

        async def load(self) -> None:
            pinned.append(view.pinned)
            raise OSError("lost")

    source: Any = Watched([Version(b"a", b"", 1)])
    view = ReadView([], [Table(b"a", b"z", source)], [], yield_budget=exhausted_budget())
    everything = KeyRange(None, None)
    with pytest.raises(OSError, match="lost"):
        await split_view(view, everything, 10, exhausted_budget())
    with pytest.raises(OSError, match="lost"):
        await row_statistics(ReadPoint(view, MAX_SEQ, 0), everything, exhausted_budget())
    assert pinned == [True, True]


def unread_view(count: int) -> ReadView:
    """A run of so many SSTs of 1,000 bytes, none of which may be opened."""
    ssts = [SstRef(f"sst/{i}", b"%d" % i, 1000, 1, 0, b"%05d" % i, b"%05d" % i, 1, 1, 1) for i in range(count)]
    return ReadView(
        [], [], [StoredRun(ssts, {}, lambda sst: pytest.fail("a table was made"))], yield_budget=exhausted_budget()
    )


async def test_ssts_whose_index_is_not_read_are_not_opened() -> None:
    splits = await split_view(unread_view(SAMPLES_PER_RANGE * 4), KeyRange(None, None), 8000, exhausted_budget())
    assert [split.start for split in splits] == [None, b"00008", b"00016", b"00024"]


async def test_many_ssts_do_not_hold_the_loop() -> None:
    """Others get a turn for every few hundred SSTs: while they are listed, and while they are cut."""
    steps = 20
    splitting = asyncio.ensure_future(
        split_view(unread_view(STEP * steps), KeyRange(None, None), 1 << 20, exhausted_budget())
    )
    others = 0
    while not splitting.done():
        others += 1
        await asyncio.sleep(0)
    assert len(splitting.result()) == STEP * steps * 1000 // (1 << 20) + 1
    assert others >= 2 * steps
