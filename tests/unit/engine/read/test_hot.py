"""Hot ranges: what they answer, when they are made, and when they go."""

from __future__ import annotations

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import ReadView, Run, hot
from slate_async.engine.read.hot import MOST_ROWS, READS_PER_LOOK, WORTH_LOOKUPS, HotReads
from slate_async.storage.sst.reader import SstReader
from slate_async.types import MAX_SEQ, NEEDS_IO, PUT, RowHit
from tests.read_model import StoredTables, Version, ample_budget, tombstone
from tests.support.sst_readers import forget_blocks

OFTEN = READS_PER_LOOK * WORTH_LOOKUPS


def rows(level: int, count: int = 300) -> list[Version]:
    """Every ``level``-th key of ``count``."""
    return [Version(b"%04d" % i, b"level %d" % level, 1000 // level + i) for i in range(0, count, level)]


class Stored:
    """A view of stored tables, newest first, all of whose blocks are read."""

    def __init__(self, *levels: list[Version], cache_bytes: int = 1 << 20, sizes: tuple[int, ...] = (10,)) -> None:
        self.stored = StoredTables(cache_bytes)
        self.levels = [Run((self.stored.table(level, sizes),)) for level in levels]
        self.reads = HotReads(self.stored.cache)
        self.view = self.see()

    def see(self) -> ReadView:
        return ReadView([], [], self.levels, yield_budget=ample_budget(), hot=self.reads)

    async def load(self) -> None:
        await self.stored.upload()
        for level in self.levels:
            async for _ in level.tables[0].source.scan(None, None):
                pass

    def heat(self, key: bytes, max_seq: int = MAX_SEQ) -> bytes | RowHit | None:
        """Read ``key`` often; what the last read found."""
        for _ in range(OFTEN):
            found = self.view.look_up(key, max_seq)
            assert found is not NEEDS_IO
        return found


async def test_all_levels_are_answered_by_one_dictionary() -> None:
    brief, empty = Version(b"0014", b"brief", 5001, PUT, 99), Version(b"0015", b"", 5003)
    newest = [tombstone(b"0012", 5000), brief, empty, Version(b"0016", b"new", 5002)]
    stored = Stored(newest, rows(2), rows(1))
    await stored.load()
    assert stored.view.look_up(b"0013", MAX_SEQ) == RowHit(b"level 1", 1013, PUT, NO_EXPIRY, 0)
    assert stored.heat(b"0013") == b"level 1"
    hits = stored.stored.cache.stats().hits
    assert stored.view.look_up(b"0012", MAX_SEQ) is None
    assert stored.view.look_up(b"0014", MAX_SEQ) == RowHit(b"brief", 5001, PUT, 99, 0)
    assert stored.view.look_up(b"0016", MAX_SEQ) == b"new"
    assert stored.view.look_up(b"0013\0", MAX_SEQ) is None
    assert await stored.view.get_many([b"0013", b"0012", b"0014"], 98) == [b"level 1", None, b"brief"]
    assert await stored.view.get_many([b"0016", b"0014"], 99) == [b"new", None]
    assert await stored.view.get_many([b"0016", b"0015"], 99) == [b"new", b""]
    assert await stored.view.get_many([b"0015", b"0013\0", b"0016"], 99) == [b"", None, b"new"]
    assert stored.stored.cache.stats().hits == hits


async def test_a_read_that_may_not_see_all_of_a_range_does_without_it() -> None:
    stored = Stored([Version(b"0010", b"new", 5000)], rows(1))
    await stored.load()
    assert stored.heat(b"0010") == b"new"
    ranges = list(stored.view._hot.ranges)
    for _ in range(OFTEN):
        assert stored.view.look_up(b"0010", 4999) == RowHit(b"level 1", 1010, PUT, NO_EXPIRY, 0)
    assert stored.view._hot.ranges == ranges, "there is nothing better to make"
    assert await stored.view.get_many([b"0010", b"0011"], 0, 4999) == [b"level 1", b"level 1"]
    assert stored.view.look_up(b"0011", 1011) == RowHit(b"level 1", 1011, PUT, NO_EXPIRY, 0)


async def test_every_key_is_right_whatever_is_hot() -> None:
    stored = Stored(rows(7), rows(3), rows(2), rows(1), sizes=(3,))
    await stored.load()
    for _ in range(OFTEN):
        for i in range(300):
            found = stored.view.look_up(b"%04d" % i, MAX_SEQ)
            level = next(level for level in (7, 3, 2, 1) if i % level == 0)
            assert found == b"level %d" % level or (isinstance(found, RowHit) and found.value == b"level %d" % level)
    hits = stored.stored.cache.stats().hits
    assert [stored.view.look_up(b"%04d" % i, MAX_SEQ) for i in range(11, 13)] == [b"level 1", b"level 3"]
    assert stored.stored.cache.stats().hits == hits


async def test_a_level_whose_block_is_not_cached_is_asked_by_its_filter() -> None:
    few = [Version(b"0010", b"few", 5000), Version(b"0020", b"few", 5001), Version(b"9", b"x" * 70_000, 5002)]
    stored = Stored(few, rows(1))
    await stored.load()
    few_source = stored.levels[0].tables[0].source
    assert isinstance(few_source, SstReader)
    forget_blocks(few_source)
    keys = [b"%04d" % i for i in range(11, 20)]
    unknown = [key for key in keys if stored.view.look_up(key, MAX_SEQ) is NEEDS_IO]
    assert len(unknown) < 3, "the filter lets one in a hundred through"
    known = next(key for key in keys if key not in unknown)
    assert stored.heat(known) == b"level 1"
    hits = stored.stored.cache.stats().hits
    assert stored.view.look_up(known, MAX_SEQ) == b"level 1"
    assert stored.stored.cache.stats().hits == hits
    assert stored.view.look_up(b"0010", MAX_SEQ) is NEEDS_IO
    hit = await stored.view.get(b"0010", 0)
    assert hit is not None
    assert hit.value == b"few"
    assert stored.heat(b"0010") == b"few"
    assert stored.view.look_up(known, MAX_SEQ) == b"level 1"


async def test_versions_of_a_key_in_several_blocks_stay_out() -> None:
    versions = [Version(b"0100", b"%d" % seq, seq) for seq in range(2000, 2200)]
    stored = Stored([Version(b"0000", b"", 1), *versions, Version(b"0200", b"", 2)], sizes=(2,))
    await stored.load()
    for seq in (2199, 2100, 2001):
        for _ in range(OFTEN):
            assert stored.view.look_up(b"0100", seq) == RowHit(b"%d" % seq, seq, PUT, NO_EXPIRY, 0)
    assert stored.view.look_up(b"0100", 1999) is None


async def test_blocks_of_many_rows_are_cut() -> None:
    stored = Stored([Version(b"%05d" % i, b"%d" % i, i) for i in range(5000)], sizes=(10, 9_000), cache_bytes=8 << 20)
    await stored.load()
    for i in (0, 1500, 4999):
        assert stored.heat(b"%05d" % i) == b"%d" % i
    for i in range(0, 5000, 50):
        found = stored.view.look_up(b"%05d" % i, MAX_SEQ)
        assert found == b"%d" % i or (isinstance(found, RowHit) and found.value == b"%d" % i)


async def test_many_levels_with_the_same_keys_make_ranges_of_few_rows() -> None:
    levels = [[Version(b"%05d" % i, b"%d" % level, 9999 - level) for i in range(700)] for level in range(30)]
    stored = Stored(*levels, sizes=(10, 9_000), cache_bytes=64 << 20)
    await stored.load()
    assert stored.heat(b"00350") == b"0"
    assert stored.view.look_up(b"00351", MAX_SEQ) == b"0"
    assert sum(len(key_range.keys) for key_range in stored.view._hot.ranges) <= MOST_ROWS // len(levels)


async def test_a_key_behind_the_last_row_of_a_block_that_is_cut_becomes_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "MOST_ROWS", 20)  # ten of each level
    first_block = [Version(b"%04d" % i, b"old", i) for i in range(20)]
    old = [*first_block, Version(b"9", b"x" * 70_000, 98)]
    stored = Stored([Version(b"5", b"new", 99)], old, sizes=(10, 1000), cache_bytes=8 << 20)
    await stored.load()
    assert stored.heat(b"5") == b"new"
    assert dict(stored.view._hot.rows) == {b"5": b"new"}


async def test_ranges_last_as_long_as_the_levels() -> None:
    stored = Stored(rows(1))
    await stored.load()
    before = stored.stored.cache.stats().bytes
    assert stored.heat(b"0007") == b"level 1"
    assert stored.stored.cache.stats().bytes > before
    again = stored.see()
    assert again.look_up(b"0007", MAX_SEQ) == b"level 1"
    added = stored.stored.table([Version(b"0007", b"newer", 9000)])
    await stored.stored.upload()
    stored.levels.insert(0, Run((added,)))
    newer = stored.see()
    assert newer.look_up(b"0007", MAX_SEQ) is NEEDS_IO
    assert again.look_up(b"0007", MAX_SEQ) == b"level 1"


async def test_ranges_of_replaced_levels_make_room_for_others() -> None:
    stored = Stored(rows(1), cache_bytes=72_000)
    await stored.load()
    blocks = stored.stored.cache.stats()
    assert stored.heat(b"0007") == b"level 1"
    retired = stored.stored.cache.stats().bytes - blocks.bytes
    stored.levels.insert(0, Run((stored.stored.table([Version(b"5", b"", 9000)]),)))
    await stored.load()
    stored.view = stored.see()
    assert stored.heat(b"0200") == b"level 1"
    after = stored.stored.cache.stats()
    assert after.bytes - after.index_bytes < blocks.bytes - blocks.index_bytes + 2 * retired
    assert after.blocks == blocks.blocks + 1
    assert stored.view.look_up(b"0007", MAX_SEQ) == RowHit(b"level 1", 1007, PUT, NO_EXPIRY, 0)


async def test_what_nobody_reads_any_more_makes_room_for_others() -> None:
    stored = Stored(rows(1))
    await stored.load()
    stored.heat(b"0007")
    stored.heat(b"0290")
    held = [key_range for key_range in stored.view._hot.ranges if key_range.rows or key_range.keys]
    assert len(held) == 2
    stored.reads.end()
    other = HotReads(stored.stored.cache)
    stored.view = ReadView([], [], stored.levels, yield_budget=ample_budget(), hot=other)
    stored.heat(b"0100")
    assert [bool(key_range.keys) for key_range in held] == [False, True]


@pytest.mark.parametrize("cache_bytes", [0, 5_000])
async def test_a_cache_without_room_keeps_no_ranges(cache_bytes: int) -> None:
    stored = Stored(rows(1), rows(2), cache_bytes=cache_bytes)
    await stored.load()
    for _ in range(OFTEN):
        hit = await stored.view.get(b"0004", 0)
        assert hit is not None
        assert hit.value == b"level 1"
        stats = stored.stored.cache.stats()
        assert stats.bytes - stats.index_bytes <= cache_bytes
