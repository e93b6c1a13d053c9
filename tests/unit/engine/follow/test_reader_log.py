"""Followers of a log that is compacted, collected, taken over, lost and out of reach under them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import slate_async as slate
from slate_async.codec.columns import NO_EXPIRY
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectStore
from slate_async.storage.format.log_segment import encode_segment
from slate_async.storage.log.names import contiguous_key
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.memtable import Memtable, convert
from slate_async.types import PUT
from tests.engine import CONTIGUOUS, KINDS, Kind, contents, memory_store, open_db, open_reader, until
from tests.support.manifests import collect, commit, compact, head

FAR = 2**60


class Tapped:
    """A store that calls ``before`` ahead of each get, with its key."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.before: Callable[[str], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        if self.before is not None:
            await self.before(key)
        return await self.inner.get(key, byte_range)


async def into_ssts(db: slate.Db, store: ObjectStore) -> None:
    """Everything written so far leaves the log, is compacted, and what it was in before is collected."""
    await db.flush(l0=True)
    await compact(store)
    await db.confirm()
    await collect(store, FAR)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_follower_behind_a_collected_log_goes_on_from_its_new_start(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db, open_reader(store, pin=False) as reader:
        expected = {}
        for turn in range(3):
            for number in range(5):
                await db.put(b"%d" % number, b"%d" % turn)
                expected[b"%d" % number] = b"%d" % turn
            await into_ssts(db, store)
            if turn == 0:
                await db.put(b"later", b"x")
                expected[b"later"] = b"x"
            await reader.refresh()
            assert await contents(reader) == expected
        assert reader.status().log_start == db.status().log_start > 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_tombstone_that_is_compacted_away_takes_the_rows_it_hid_along(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        await db.put(b"b", b"1")
        async with open_reader(store, pin=False) as reader:
            assert len(await contents(reader)) == 2
            await db.delete(b"a")
            await into_ssts(db, store)
            assert [run.ssts[0].tombstones for run in (await head(store)).runs] == [0]
            await reader.refresh()
            assert await contents(reader) == {b"b": b"1"}
            assert reader.status().memtables == 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_round_that_the_log_moved_under_is_dropped(kind: Kind) -> None:
    store = Tapped(memory_store())
    async with open_db(store.inner, kind) as db, open_reader(store, pin=False) as reader:
        await db.put(b"a", b"1")
        await db.delete(b"a")
        await db.put(b"b", b"1")
        moved = False

        async def compact_first(key: str) -> None:
            nonlocal moved
            if key.startswith("log/") and not moved:
                moved = True
                await into_ssts(db, store.inner)

        store.before = compact_first
        await reader.refresh()
        assert moved
        assert await contents(reader) == {b"b": b"1"}
        assert (reader.metrics()["reader.dropped_rounds"], reader.status().state) == (1, "open")


async def test_a_dead_writers_late_object_below_the_floor_is_ignored() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"zombie")
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"1")
        await into_ssts(db, store)
    state = await head(store)
    assert state.log_floor == 2
    late = await _segment_of_epoch(state, 1, state.log_start)
    await store.put(contiguous_key(state.log_start), late)
    async with open_reader(store, pin=False) as reader:
        assert await contents(reader) == {b"a": b"1"}
        assert reader.status().log_end == state.log_start


async def test_a_dead_writers_object_at_a_collected_position_is_dropped_with_its_round() -> None:
    """Rule 13: nothing in the log itself tells that it does not count; only the head that is read afterwards does."""
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"1")
        async with open_reader(store, pin=False) as reader:
            await db.put(b"a", b"2")
            collected = db.status().log_end
            assert reader.status().log_end == collected - 1
            async with open_db(store, CONTIGUOUS) as successor:
                await into_ssts(successor, store)
                await successor.put(b"b", b"1")
                late = await _segment_of_epoch(await head(store), 1, collected, seq=2)
                await store.put(contiguous_key(collected), late)
                await reader.refresh()
                assert await contents(reader) == {b"a": b"2", b"b": b"1"}
                assert reader.metrics()["reader.dropped_rounds"] == 1
            with pytest.raises(slate.FencedError):
                await db.confirm()


async def _segment_of_epoch(state: ManifestState, epoch: int, log_id: int, *, seq: int = 1) -> bytes:
    table = Memtable()
    table.append(b"a", b"zombie", PUT, seq, NO_EXPIRY, 1)
    columns = await convert(table, 0, 1)
    return b"".join(
        encode_segment(columns[0], database_id=state.database_id, log_id=log_id, epoch=epoch, manifest_version=1)
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_lost_log_object_ends_the_reader_with_its_name(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, flush_parallelism=1) as db, open_reader(store) as reader:
        for number in range(4):
            await db.put(b"%d" % number, b"x")
        lost = [info.key async for info in store.list("log/")][-3]
        await store.delete([lost])
        with pytest.raises(slate.CorruptionError, match=lost):
            await reader.refresh()
        assert reader.status().log_end < db.status().log_end
        assert reader._polling is not None
        reader._polling.poll_due()
        with pytest.raises(slate.ClosedError, match=lost):
            await reader.wait_closed()
        assert reader.status().state == "failed"


async def test_while_the_store_is_out_of_reach_reads_go_on_with_what_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Tapped(memory_store())
    async with open_db(store.inner) as db:
        await db.put(b"a", b"1")
        async with open_reader(store, retry_deadline_ms=50, manifest_poll_interval_ms=20) as reader:

            async def refuse(key: str) -> None:
                raise slate.UnavailableError("the store is away")

            store.before = refuse
            await db.put(b"b", b"2")
            with caplog.at_level(logging.WARNING):
                await until(lambda: reader.status().failed_polls > 1, "polls that fail")
            assert "a poll of this reader failed" in caplog.text
            assert await contents(reader) == {b"a": b"1"}
            with pytest.raises(slate.UnavailableError):
                await reader.refresh()
            store.before = None
            await until(lambda: reader.status().last_seq == 2, "the reader to catch up")
            await until(lambda: reader.status().failed_polls == 0, "a poll that succeeds")


@dataclass(frozen=True)
class Destroy:
    """Mark the database as destroyed."""

    def apply(self, state: ManifestState) -> ManifestState | None:
        return None if state.destroyed_at_ms else replace(state, destroyed_at_ms=1)


async def test_a_reader_of_a_database_that_is_destroyed_closes_and_says_so() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"a", b"1")
    reader = await open_reader(store)
    waiting = asyncio.ensure_future(reader.wait_for(5))
    await until(lambda: reader.metrics()["reader.rounds"] == 2, "the round of the waiting")
    await commit(store, Destroy())
    assert reader._polling is not None
    reader._polling.poll_due()
    with pytest.raises(slate.ClosedError, match="destroyed"):
        await waiting
    with pytest.raises(slate.ClosedError, match="destroyed"):
        await reader.get(b"a")
    await reader.close()
    assert (await head(store)).checkpoints == ()  # nobody need wait for it to expire before destroying the rest


async def test_a_round_may_be_cancelled_anywhere_and_the_next_goes_on() -> None:
    """Rows of an object that is half loaded are neither seen nor loaded twice."""
    store = memory_store()
    async with open_db(store, l0_sst_bytes=1 << 20, flush_bytes=1 << 20) as db:
        async with open_reader(store, pin=False, reader_memtable_bytes=1 << 21) as reader:
            batch = slate.WriteBatch()
            for number in range(20_000):
                batch.put(b"%05d" % number, b"x")
            await db.write(batch)
            await db.write(batch)
            follower = reader._follower
            assert follower is not None
            for turns in range(60):
                work = asyncio.ensure_future(follower.catch_up())
                for _ in range(turns):
                    await asyncio.sleep(0)
                work.cancel()
                await asyncio.wait([work])
                assert await reader.get_many([b"00000", b"19999"]) in ([None, None], [b"x", b"x"])
            await reader.refresh()
            assert len(await contents(reader)) == 20_000
            assert reader.status().last_seq == 40_000
