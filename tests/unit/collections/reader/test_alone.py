"""`slate_async.collections.reader.alone`: a snapshot of one merged batch in which every data comes once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pytest

from slate_async.collections.codec import merged as codec
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.reader import snapshot
from slate_async.collections.reader.alone import rows_alone
from slate_async.collections.reader.sources import EVERYTHING, Selection
from slate_async.collections.store.merged import MergedSource, MergedWriter
from slate_async.errors import CorruptionError
from tests.engine import InlineOffload, settle
from tests.support.collection_bytes import BYTES
from tests.support.merged_areas import FILE, of_file
from tests.unit.collections.reader.conftest import Keeper, ReadLake, at, read

T = TypeVar("T")
ROWS = [(b"%03d" % number, number * 7 % 20, -1 if number % 5 == 0 else 1) for number in range(60)]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "GROUP_ROWS", 7)


class Held:
    """Worker threads of which nothing comes back before it is let go."""

    def __init__(self) -> None:
        self.running = self.ended = 0
        self.free = asyncio.Event()

    async def run(self, function: Callable[[], T]) -> T:
        self.running += 1
        try:
            await self.free.wait()
            return function()
        finally:
            self.running -= 1
            self.ended += 1


async def test_rows_are_given_as_they_are_read(lake: ReadLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several row groups, at any time, filtered and in splits: no merge, and the same contents."""
    await lake.put(ROWS, 0, 20)
    area = await (await Keeper.claim(lake)).round()
    assert [(batch.rows, batch.keys, batch.times) for batch in area.batches] == [(60, 60, 20)]
    reader = await lake.reader()
    with monkeypatch.context() as patched:
        patched.delattr(snapshot, "BoundedMerge")
        for as_of in range(20):
            assert await read(reader, as_of) == at(ROWS, as_of)
        shown = await (await reader.snapshot(12)).to_arrow()
        assert shown.schema == BYTES.arrow
        assert set(shown.column("_time").to_pylist()) == {12}
        filtered = await (await reader.snapshot(19, where=[("data", ">=", b"031")])).to_arrow()
        assert filtered.column("data").to_pylist() == [data for data, _, _ in ROWS[31:]]
        parts = [await part.to_arrow() for part in await (await reader.snapshot(19)).splits(4)]
        assert len(parts) == 4
        assert pa.concat_tables(parts).column("data").to_pylist() == [data for data, _, _ in ROWS]


async def test_data_that_come_twice_are_summed(lake: ReadLake) -> None:
    rows = [*ROWS, (b"007", 15, 4), (b"040", 19, -1)]
    await lake.put(rows, 0, 20)
    area = await (await Keeper.claim(lake)).round()
    assert area.batches[0].keys < area.batches[0].rows
    reader = await lake.reader()
    for as_of in range(20):
        assert await read(reader, as_of) == at(rows, as_of)


async def test_what_is_pending_is_added(lake: ReadLake) -> None:
    await lake.put(ROWS, 0, 20)
    await (await Keeper.claim(lake)).round()
    more = [(b"007", 21, 4), (b"zzz", 21, 1)]
    await lake.put(more, 20, 22)
    assert await read(await lake.reader(), 21) == at([*ROWS, *more], 21)


async def stored(lake: ReadLake, rows: list[tuple[bytes, int, int]], **options: int) -> MergedBatch:
    """``rows`` as they come, of which the version says that each has other data."""
    writer = MergedWriter(lake.store, BYTES, FILE, InlineOffload(), **options)
    await writer.add(BYTES.batch(rows))
    return replace(of_file(await writer.finish()), keys=len(rows))


async def alone(lake: ReadLake, batch: MergedBatch) -> list[bytes]:
    source = await MergedSource.open(lake.store, BYTES, batch, InlineOffload())
    chosen, found = Selection(BYTES, (30,), (), EVERYTHING), list[bytes]()
    async with aclosing(rows_alone(lake.reading(), source, chosen, "m")) as batches:
        async for rows in batches:
            found += rows.column("data").to_pylist()
    return found


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
async def test_a_batch_that_is_not_what_the_version_says_is_damaged(lake: ReadLake, part_bytes: int) -> None:
    """In a row group, and from one to the next."""
    rows = [(b"%03d" % number, 3, 1) for number in range(30)]
    assert await alone(lake, await stored(lake, rows, part_bytes=part_bytes)) == [data for data, _, _ in rows]
    for place in (3, 6, 7, 13, 29):
        for wrong in (rows[place - 1][0], b"000"):
            changed = [*rows[:place], (wrong, 3, 1), *rows[place + 1 :]]
            with pytest.raises(CorruptionError, match="not in the order of data, each data once"):
                await alone(lake, await stored(lake, changed, part_bytes=part_bytes))


async def test_two_row_groups_are_decoded_at_once_and_left_when_nobody_wants_them(lake: ReadLake) -> None:
    """Three are in memory at most: the two, and one that waits."""
    batch = await stored(lake, [(b"%03d" % number, 3, 1) for number in range(60)])
    held = Held()
    source = await MergedSource.open(lake.store, BYTES, batch, InlineOffload())
    source._offload = held
    found = rows_alone(lake.reading(), source, Selection(BYTES, (30,), (), EVERYTHING), "m")
    first = asyncio.ensure_future(anext(found))
    await settle(100)
    assert held.running == 2
    held.free.set()
    assert (await first).num_rows == 7
    await settle(100)
    assert held.ended == 3
    held.free.clear()
    await found.aclose()
    assert held.running == 0
