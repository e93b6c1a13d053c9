"""A follower's checkpoints: made when the set of SSTs changes, kept while they are read from, refreshed, missed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.state import Checkpoint
from tests.engine import ManualClock, StoreInHand, contents, open_db, open_reader
from tests.support.manifests import collect, commit, compact, head
from tests.support.readers import poll

LIFETIME_MS = 600_000
HALF = LIFETIME_MS // 2


@pytest.fixture
async def db(memory: MemoryStore, clock: ManualClock) -> AsyncIterator[slate.Db]:
    async with open_db(memory, clock=clock, l0_sst_bytes=4096, block_bytes=256) as opened:
        yield opened


async def held(store: MemoryStore) -> list[Checkpoint]:
    """The readers' checkpoints in the manifest, oldest first."""
    return [checkpoint for checkpoint in (await head(store)).checkpoints if checkpoint.owner == "reader"]


async def ids(store: MemoryStore) -> list[UUID]:
    return [pin.id for pin in await held(store)]


async def new_l0(db: slate.Db, value: bytes) -> None:
    for key in (b"a", b"b", b"c"):
        await db.put(key, value * 300)
    await db.flush(l0=True)


async def overtake(db: slate.Db, store: MemoryStore, clock: ManualClock) -> None:
    """Compact everything, let the writer go over to that, and collect what nobody holds."""
    await compact(store)
    for _ in range(2):  # a pin of the writer goes at the look after the one that made the next
        await db.confirm()
    await collect(store, clock.now_ms())


async def test_a_checkpoint_from_the_opening_to_the_close(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    async with open_reader(memory, clock=clock) as reader:
        (first,) = await held(memory)
        assert (first.log_end, first.expire_ms) == (None, clock.wall_ms + LIFETIME_MS)
        await db.put(b"k", b"v")
        await reader.refresh()
        assert await ids(memory) == [first.id], "the SSTs are the same"
        await new_l0(db, b"1")
        await reader.refresh()
        (one, second) = await held(memory)
        assert (one.id, reader.status().checkpoint) == (first.id, str(second.id))
        await new_l0(db, b"2")
        await reader.refresh()
        assert (await ids(memory))[0] == second.id, "what was replaced goes with the next"
    assert await held(memory) == []


async def test_polls_go_over_to_new_ssts_now_and_then_or_when_memory_is_crowded(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    async with open_reader(memory, clock=clock, reader_memtable_bytes=10_000) as reader:
        (first,) = await ids(memory)
        await db.put(b"a", b"1" * 900)
        await poll(reader)
        await db.flush(l0=True)
        await poll(reader)
        assert await ids(memory) == [first]
        clock.wall_ms += LIFETIME_MS // 8
        await poll(reader)
        assert (len(await ids(memory)), reader.status().memtables) == (2, 0)
        for _ in range(12):
            await db.put(b"a", b"2" * 900)
        await poll(reader)
        await db.flush(l0=True)
        await poll(reader)
        assert first not in await ids(memory), "another one took its place"
        assert reader.status().memtables == 0
        assert await contents(reader) == {b"a": b"2" * 900}


async def test_a_round_that_adopts_a_head_twice_makes_one_checkpoint(memory: MemoryStore, clock: ManualClock) -> None:
    """Once before the replay, because memory is half full, and once after it."""
    async with (
        open_db(memory, clock=clock) as db,
        open_reader(memory, clock=clock, replay_memory_bytes=10_000) as reader,
    ):
        for value in (b"1", b"2", b"3"):
            for key in (b"a", b"b", b"c"):
                await db.put(key, value * 2_000)
            await reader.refresh()
            await db.flush(l0=True)
            before = reader.metrics()
            scan = reader.scan()
            await reader.refresh()
            after = reader.metrics()
            assert after["reader.checkpoints_lost"] == 0
            assert after["manifest.commits"] == before["manifest.commits"] + 1
            assert {found async for _, found in scan} == {value * 2_000}


async def test_refreshed_at_half_life_and_removed_if_not_in_use(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    async with open_reader(memory, clock=clock) as reader:
        await new_l0(db, b"1")
        await reader.refresh()
        old, current = await held(memory)
        clock.wall_ms += HALF
        await reader.refresh()
        assert await held(memory) == [old, current]
        clock.wall_ms += 1
        await reader.refresh()
        (refreshed,) = await held(memory)
        assert (refreshed.id, refreshed.expire_ms) == (current.id, clock.wall_ms + LIFETIME_MS)


async def test_a_scan_longer_than_any_lifetime(db: slate.Db, memory: MemoryStore, clock: ManualClock) -> None:
    await new_l0(db, b"1")
    async with open_reader(memory, clock=clock) as reader:
        scan, snapshot = reader.scan(), reader.snapshot()
        first = await ids(memory)
        for value in (b"2", b"3"):
            await new_l0(db, value)
            await overtake(db, memory, clock)
            await reader.refresh()
        for _ in range(6):
            clock.wall_ms += HALF + 1
            await reader.refresh()
        assert await ids(memory) == [*first, UUID(reader.status().checkpoint)]
        await collect(memory, clock.now_ms())
        assert {value async for _, value in scan} == {b"1" * 300}
        assert await snapshot.get(b"b") == b"1" * 300
        assert await reader.get(b"b") == b"3" * 300
        snapshot.close()
        clock.wall_ms += HALF + 1
        await reader.refresh()
        assert await ids(memory) == [UUID(reader.status().checkpoint)]


async def test_a_lost_checkpoint_is_logged_and_replaced(
    db: slate.Db, memory: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await new_l0(db, b"1")
    async with open_reader(memory, clock=clock, block_cache_bytes=0) as reader:
        scan = reader.scan()
        lost = await ids(memory)
        await commit(memory, DeleteCheckpoints(frozenset(lost)))
        await new_l0(db, b"2")
        await overtake(db, memory, clock)
        with caplog.at_level(logging.WARNING), pytest.raises(slate.ConflictError, match="scan again"):
            await anext(aiter(scan))
        assert f"checkpoint {lost[0]} was lost" in caplog.text
        assert await contents(reader) == dict.fromkeys((b"a", b"b", b"c"), b"2" * 300)
        assert (reader.metrics()["reader.checkpoints_lost"], len(await held(memory))) == (1, 1)


async def test_a_reader_that_slept_past_its_checkpoints_life(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    async with open_reader(memory, clock=clock) as reader:
        before = await ids(memory)
        clock.wall_ms += LIFETIME_MS
        await reader.refresh()
        await reader.refresh()
        after = await ids(memory)
        assert len(after) == 1
        assert after != before
        assert reader.status().state == "open"


async def test_without_checkpoints_nothing_is_written_and_gets_are_repeated(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    await new_l0(db, b"1")
    async with open_reader(memory, clock=clock, pin=False) as reader:
        scan = reader.scan()
        await new_l0(db, b"2")
        await overtake(db, memory, clock)
        assert await reader.get(b"a") == b"2" * 300
        with pytest.raises(slate.ConflictError, match="scan again"):
            await anext(aiter(scan))
        assert len(await contents(reader)) == 3
        assert reader.metrics()["manifest.commits"] == 0
        assert (await held(memory), reader.status().checkpoint) == ([], None)


async def test_a_fresh_scan_without_checkpoints_goes_on_in_the_newer_state(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    await new_l0(db, b"1")
    async with open_reader(memory, clock=clock, pin=False, block_cache_bytes=0) as reader:
        await overtake(db, memory, clock)
        assert await contents(reader) == dict.fromkeys((b"a", b"b", b"c"), b"1" * 300)


async def test_a_lost_sst_is_corruption(db: slate.Db, memory: MemoryStore, clock: ManualClock) -> None:
    await new_l0(db, b"1")
    async with open_reader(memory, clock=clock) as reader:
        sst = (await head(memory)).l0[0].location
        await memory.delete([sst])
        with pytest.raises(slate.CorruptionError, match=r"sst/.*missing"):
            await reader.get(b"a")


async def test_many_readers_hold_and_release_each_their_own(
    db: slate.Db, memory: MemoryStore, clock: ManualClock
) -> None:
    readers = [await open_reader(memory, clock=clock) for _ in range(6)]
    await new_l0(db, b"1")
    for reader in readers:
        await reader.refresh()
    assert len(set(await ids(memory))) == 12
    for reader in readers:
        await reader.close()
    assert await held(memory) == []


async def test_where_nothing_may_be_written_the_error_says_how_to_read(db: slate.Db, memory: MemoryStore) -> None:
    await db.put(b"k", b"v")
    refusal = slate.InvalidError("Permission denied: /data/db; check its permissions", outcome="not_applied")
    store = StoreInHand(memory, watch="", fail_before=lambda key: refusal)
    with pytest.raises(slate.InvalidError, match=r"pin=False: .*Permission denied"):
        await open_reader(store)
    async with open_reader(store, pin=False) as reader:
        assert await reader.get(b"k") == b"v"
