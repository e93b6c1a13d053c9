"""Time travel: exact above the history floor, refused below it and for the future."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, KINDS, START_MS, Kind, ManualClock, contents, memory_store, open_db, open_reader
from tests.support.manifests import commit


async def history(db: slate.Db, clock: ManualClock) -> list[tuple[int, int, dict[bytes, bytes]]]:
    """Some writes, a second apart, parts of them in L0: after each its sequence number, its time and the contents."""
    steps: list[tuple[int, int, dict[bytes, bytes]]] = []
    rows: dict[bytes, bytes] = {}
    for number in range(12):
        clock.wall_ms += 1000
        key = b"%d" % (number % 4)
        if number % 5 == 4:
            handle = await db.delete(key)
            rows.pop(key, None)
        else:
            handle = await db.put(key, b"%d" % number)
            rows[key] = b"%d" % number
        steps.append((handle.seq, clock.wall_ms, dict(rows)))
        if number in (3, 7):
            await db.flush(l0=True)
    clock.wall_ms += 1000
    return steps


async def test_every_past_state_by_its_number(db: slate.Db, store: ObjectStore, clock: ManualClock) -> None:
    steps = await history(db, clock)
    async with open_reader(store, clock=clock) as reader:
        for seq, _, rows in steps:
            async with reader.as_of(seq=seq) as then:
                assert (then.seq, await contents(then)) == (seq, rows)
                assert await then.get_many([b"0", b"1"]) == [rows.get(b"0"), rows.get(b"1")]
        async with reader.as_of(seq=0) as then:
            assert await contents(then) == {}


async def test_a_past_state_by_its_time(db: slate.Db, store: ObjectStore, clock: ManualClock) -> None:
    """Exact while the rows are in the log; once they are not, the newest that is known to be no later."""
    steps = await history(db, clock)
    recent = steps if not db.status().wal_enabled else [steps[3], *steps[7:]]
    async with open_reader(store, clock=clock) as reader:
        for seq, time_ms, rows in recent:
            for time in (time_ms / 1000, datetime.fromtimestamp((time_ms + 999) / 1000, UTC)):
                async with reader.as_of(time=time) as then:
                    assert (then.seq, await contents(then)) == (seq, rows)
        async with reader.as_of(time=steps[5][1] / 1000) as then:
            assert then.seq == (steps[5] if not db.status().wal_enabled else steps[3])[0]
        async with reader.as_of(time=START_MS / 1000) as then:
            assert await contents(then) == {}


async def test_a_writer_looks_back_as_its_readers_do(db: slate.Db, store: ObjectStore, clock: ManualClock) -> None:
    steps = await history(db, clock)
    recent = steps if not db.status().wal_enabled else [steps[3], *steps[7:]]
    for seq, time_ms, rows in recent:
        for moment in ({"seq": seq}, {"time": time_ms / 1000}, {"time": (time_ms + 999) / 1000}):
            async with db.as_of(**moment) as then:
                assert (then.seq, await contents(then)) == (seq, rows)
    await db.put(b"short", b"", ttl=1)
    last = await db.put(b"long", b"")
    clock.wall_ms += 60_000
    async with db.as_of(seq=last.seq) as then:
        assert await then.get(b"short") == b""


@pytest.fixture
async def small(memory: MemoryStore, clock: ManualClock):  # type: ignore[no-untyped-def]
    """A database in memory with three rows, written a second apart, and a reader of it."""
    async with open_db(memory, clock=clock) as db:
        for number in range(3):
            clock.wall_ms += 1000
            await db.put(b"k", b"%d" % number, ttl=1.5)
        async with open_reader(memory, clock=clock) as reader:
            yield reader


async def test_expiry_is_judged_at_that_time(small: slate.DbReader, clock: ManualClock) -> None:
    clock.wall_ms += 60_000
    assert await small.get(b"k") is None
    for number in range(3):
        async with small.as_of(seq=number + 1) as then:
            assert await then.get(b"k") == b"%d" % number
    async with small.as_of(time=START_MS / 1000 + 4.4) as then:
        assert await then.get(b"k") == b"2"
    async with small.as_of(time=START_MS / 1000 + 4.5) as then:
        assert await then.get(b"k") is None


@dataclass(frozen=True)
class RaiseFloor:
    """What a compaction that keeps no history says it has dropped."""

    floor: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        return None if state.history_floor >= self.floor else replace(state, history_floor=self.floor)


async def test_below_the_floor_and_in_the_future_it_is_refused(
    small: slate.DbReader, memory: MemoryStore, clock: ManualClock
) -> None:
    await commit(memory, RaiseFloor(2))
    await small.refresh()
    async with small.as_of(seq=2) as then:
        assert await then.get(b"k") == b"1"
    with pytest.raises(slate.InvalidError, match="kept from sequence number 2"):
        small.as_of(seq=1)
    with pytest.raises(slate.InvalidError, match="kept from sequence number 2"):
        small.as_of(time=START_MS / 1000 + 1.5)
    with pytest.raises(slate.InvalidError, match="not here yet"):
        small.as_of(seq=4)
    with pytest.raises(slate.InvalidError, match="is in the future"):
        small.as_of(time=datetime.fromtimestamp(clock.wall_ms / 1000, UTC) + timedelta(seconds=1))
    with pytest.raises(slate.InvalidError, match="before the database was created"):
        small.as_of(time=1.0)


async def test_what_is_no_time_is_refused(small: slate.DbReader) -> None:
    for wrong in ({}, {"seq": 1, "time": 1.0}, {"seq": -1}, {"seq": True}, {"seq": "1"}, {"time": "now"}):
        with pytest.raises(slate.InvalidError):
            small.as_of(**wrong)
    with pytest.raises(slate.InvalidError, match="time zone"):
        small.as_of(time=datetime(2025, 6, 16))  # noqa: DTZ001 - that is the mistake


async def test_a_database_open_for_writing_looks_back_too(memory: MemoryStore, clock: ManualClock) -> None:
    async with open_db(memory, clock=clock) as db:
        await db.put(b"k", b"1")
        await db.put(b"k", b"2")
        async with db.as_of(seq=1) as then:
            assert await then.get(b"k") == b"1"


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_no_past_state_is_shown_without_the_rows_that_expired_since(kind: Kind) -> None:
    clock = ManualClock()
    async with open_db(memory_store(), kind, clock=clock) as db:
        await db.put(b"a", b"short", ttl=10)
        first = await db.put(b"b", b"1")
        clock.wall_ms += 5_000
        await db.flush(l0=True)
        second = await db.put(b"b", b"2")
        await db.flush(l0=True)
        clock.wall_ms += 15_000
        assert await db.as_of(seq=second.seq).get(b"a") == b"short"
        await db.compact(full=True)
        last = await db.put(b"c", b"")
        for moment in ({"seq": first.seq}, {"seq": second.seq}, {"time": second.create_time + 1}):
            with pytest.raises(slate.InvalidError):
                db.as_of(**moment)
        for now in ({"seq": last.seq}, {"time": clock.wall_ms / 1000}):
            assert await contents(db.as_of(**now)) == {b"b": b"2", b"c": b""}


async def test_the_newest_number_is_looked_at_however_long_ago_it_was_given() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), CONTIGUOUS, clock=clock) as db:
        await db.put(b"a", b"short", ttl=10)
        last = await db.put(b"b", b"")
        clock.wall_ms += 20_000
        await db.compact(full=True)
        assert await contents(db.as_of(seq=last.seq)) == {b"b": b""}


async def test_after_a_clock_ran_ahead_what_lives_is_seen_by_its_number() -> None:
    """Write times lie ahead from then on; no earlier time does."""
    store, clock = memory_store(), ManualClock()
    async with open_db(store, clock=clock) as db:
        clock.wall_ms += 86_400_000
        await db.put(b"a", b"1")
    clock.wall_ms -= 86_400_000
    async with open_db(store, clock=clock) as db:
        seq = (await db.put(b"b", b"2", ttl=3600)).seq
        for _ in range(2):
            assert await db.as_of(seq=seq).get(b"b") == b"2"
            await db.flush(l0=True)
        clock.wall_ms += 3_700_000
        assert await db.as_of(seq=seq).get(b"b") is None
