"""Checkpoints as users make them: by the writer, and on a path beside it; of every kind of database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.manifest.state import ManifestState
from tests.engine import EPOCHS, START_MS, Kind, ManualClock, StoreInHand, on, open_db, runtime, starts, until
from tests.support.checkpoints import found, manifest_of, rows_of

DAY = 86_400


def open_admin(store: ObjectStore, clock: ManualClock | None = None) -> slate.Opening[slate.Admin]:
    return on(runtime(clock)).open_admin(store, name="memory://test")


async def shown(store: MemoryStore, info: slate.CheckpointInfo) -> dict[bytes, bytes]:
    """What the checkpoint shows to its readers."""
    async with manifest_of(store) as driver:
        assert driver.head is not None
        checkpoint = found(driver.head, info.id)
    return await rows_of(store, checkpoint)


@dataclass(frozen=True)
class Change:
    """A change of the manifest by hand."""

    changes: tuple[tuple[str, Any], ...]

    def apply(self, state: ManifestState) -> ManifestState | None:
        changed = replace(state, **dict(self.changes))
        return None if changed == state else changed


async def change(store: MemoryStore, **changes: Any) -> None:
    async with manifest_of(store) as driver:
        await driver.commit(Change(tuple(changes.items())))


# ---- what they hold


async def test_it_holds_everything_written_by_the_call_and_nothing_later(kind: Kind, memory: MemoryStore) -> None:
    async with open_db(memory, kind) as db:
        await db.put(b"a", b"1")
        await db.flush(l0=True)
        for number in range(20):
            await db.put(b"b%d" % number, b"2", await_durable=False)
        info = await db.checkpoints.create(name="before", lifetime=DAY)
        await db.put(b"a", b"9")
        await db.delete(b"b7")
        await db.flush(l0=True)
        expected = {b"a": b"1", **{b"b%d" % number: b"2" for number in range(20)}}
        assert await shown(memory, info) == expected
    assert (info.name, info.owner, info.expire_time) == ("before", "user", START_MS / 1000 + DAY)
    assert await shown(memory, info) == expected


async def test_of_what_is_durable_it_waits_for_nothing(kind: Kind, memory: MemoryStore) -> None:
    store = StoreInHand(memory)
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        store.hold = True
        [late] = starts(db.put(b"b", b"2"))
        await until(lambda: bool(store.held), "the put")
        info = await db.checkpoints.create(scope="durable")
        assert not late.done()
        assert await shown(memory, info) == {b"a": b"1"}
        store.release()
        await late


async def test_without_a_forced_flush_it_waits_for_the_next_one(kind: Kind, memory: MemoryStore) -> None:
    store = StoreInHand(memory)
    async with open_db(store, kind, flush_interval_ms=50) as db:
        store.hold = True
        first = asyncio.ensure_future(db.put(b"a", b"1"))
        await until(lambda: bool(store.held), "the first flush")
        await db.put(b"b", b"2", await_durable=False)
        [making] = starts(db.checkpoints.create(force_flush=False))
        await until(lambda: len(store.held) == 2, "the second flush, when it is due")
        assert not making.done()
        store.release()
        assert await shown(memory, await making) == {b"a": b"1", b"b": b"2"}
        await first


async def test_what_was_only_flushed_is_committed_first(memory: MemoryStore) -> None:
    """With ack "flushed" an acknowledged object may not be in the register yet."""
    store = StoreInHand(memory, watch="writer/")
    async with open_db(store, EPOCHS, ack="flushed") as db:
        store.hold = True
        await db.put(b"a", b"1")
        [making] = starts(db.checkpoints.create())
        await until(lambda: bool(store.held), "the register")
        assert not making.done()
        store.release()
        assert await shown(memory, await making) == {b"a": b"1"}


async def test_on_a_path_it_holds_what_is_acknowledged_and_leaves_the_writer_alone(
    kind: Kind, memory: MemoryStore
) -> None:
    async with open_db(memory, kind) as db, open_admin(memory) as admin:
        await db.put(b"a", b"1")
        await db.flush(l0=True)
        await db.put(b"b", b"2")
        info = await admin.checkpoints.create(lifetime=timedelta(days=1))
        await db.put(b"c", b"3")
        await db.confirm()
        assert await shown(memory, info) == {b"a": b"1", b"b": b"2"}
        assert info.log_end == db.status().log_end - 1


async def test_beside_writes_compaction_and_gc_it_is_a_prefix_that_has_all_acknowledged(
    kind: Kind, memory: MemoryStore
) -> None:
    issued = acknowledged = 0
    collecting = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)

    async def write(db: slate.Db) -> None:
        nonlocal issued, acknowledged
        while True:
            number, issued = issued, issued + 1
            await db.put(b"%06d" % number, b"x" * 50)
            acknowledged = number + 1

    async def compact(db: slate.Db) -> None:
        while True:
            await db.compact(full=True)

    async def check(admin: slate.Admin) -> None:
        before = acknowledged
        info = await admin.checkpoints.create()
        after = issued
        await collector.collect()
        rows = [*await shown(memory, info)]
        assert rows == [b"%06d" % number for number in range(len(rows))]
        assert before <= len(rows) <= after

    async with open_db(memory, kind, l0_sst_bytes=1024, block_bytes=256, flush_interval_ms=0) as db:
        opening = on(runtime()).open_gc(memory, name="memory://test", periodic=False, settings=collecting)
        async with open_admin(memory) as admin, opening as collector:
            busy = starts(write(db), compact(db))
            for _ in range(5):
                await check(admin)
            for task in busy:
                task.cancel()
            await asyncio.wait(busy)
            assert [task.cancelled() for task in busy] == [True, True]


async def test_a_reader_opens_it_by_name(kind: Kind, memory: MemoryStore) -> None:
    async with open_db(memory, kind) as db:
        await db.put(b"a", b"1")
        await db.checkpoints.create(name="monday")
        await db.put(b"a", b"2")
        reading = on(runtime()).open_reader(memory, checkpoint="monday", name="memory://test")
        async with reading as reader:
            assert await reader.get(b"a") == b"1"


async def test_one_made_from_another_keeps_the_same_after_that_was_deleted(kind: Kind, memory: MemoryStore) -> None:
    async with open_db(memory, kind) as db, open_admin(memory) as admin:
        await db.put(b"a", b"1")
        first = await db.checkpoints.create(name="first")
        await db.put(b"a", b"2")
        by_id = await db.checkpoints.create(source=first.id, name="second", lifetime=DAY)
        by_name = await admin.checkpoints.create(source="second")
        await admin.checkpoints.delete(first.id)
        assert await shown(memory, by_id) == await shown(memory, by_name) == {b"a": b"1"}
        assert by_id.manifest_id == by_name.manifest_id == first.manifest_id


# ---- their life


async def test_they_are_listed_lengthened_and_deleted(memory: MemoryStore) -> None:
    clock = ManualClock()
    async with open_db(memory, EPOCHS, clock=clock) as db, open_admin(memory, clock) as admin:
        one = await db.checkpoints.create(name="one", lifetime=60)
        two = await admin.checkpoints.create(name="two")
        assert [info for info in await admin.checkpoints.list() if info.owner == "user"] == [one, two]
        clock.wall_ms += 50_000
        longer = await admin.checkpoints.refresh(str(one.id), 60)
        assert longer == replace(one, expire_time=START_MS / 1000 + 110)
        assert (await db.checkpoints.refresh(two.id, timedelta(minutes=1))).expire_time == longer.expire_time
        assert (await db.checkpoints.refresh(two.id)).expire_time is None
        await db.checkpoints.delete(one.id)
        assert [info.name for info in await db.checkpoints.list() if info.owner == "user"] == ["two"]


async def test_missing_and_expired_checkpoints_have_different_errors(memory: MemoryStore) -> None:
    clock = ManualClock()
    async with open_db(memory, EPOCHS, clock=clock) as db, open_admin(memory, clock) as admin:
        info = await db.checkpoints.create(name="short", lifetime=1)
        clock.wall_ms += 1_000
        for owner in (db, admin):
            with pytest.raises(slate.InvalidError, match="has expired"):
                await owner.checkpoints.create(source=info.id)
            with pytest.raises(slate.InvalidError, match="checkpoint 'short' has expired"):
                await owner.checkpoints.create(source="short")
            with pytest.raises(slate.InvalidError, match="has expired"):
                await owner.checkpoints.refresh(info.id, 5)
            with pytest.raises(slate.InvalidError, match="no checkpoint"):
                await owner.checkpoints.refresh(uuid4(), 5)
            with pytest.raises(slate.InvalidError, match="no checkpoint"):
                await owner.checkpoints.delete(uuid4())
        await admin.checkpoints.delete(info.id)
        with pytest.raises(slate.InvalidError, match="no checkpoint"):
            await admin.checkpoints.delete(info.id)


async def test_of_several_of_a_name_one_must_be_said_by_its_id(memory: MemoryStore) -> None:
    async with open_db(memory, EPOCHS) as db:
        ids = [(await db.checkpoints.create(name="same")).id for _ in range(2)]
        kept = db.checkpoints
        for call in (kept.create(source="same"), kept.refresh("same"), kept.delete("same")):
            with pytest.raises(slate.InvalidError, match=str(ids[0])):
                await call


async def test_a_name_says_which_one_an_expired_one_too_if_it_is_to_go(memory: MemoryStore) -> None:
    clock = ManualClock()
    async with open_db(memory, EPOCHS, clock=clock) as db, open_admin(memory, clock) as admin:
        await db.checkpoints.create(name="short", lifetime=1)
        assert (await admin.checkpoints.refresh("short", 2)).expire_time == clock.now_ms() / 1000 + 2
        clock.wall_ms += 2_000
        with pytest.raises(slate.InvalidError, match="checkpoint 'short' has expired"):
            await admin.checkpoints.refresh("short", 2)
        await db.checkpoints.delete("short")
        assert [checkpoint.owner for checkpoint in await admin.checkpoints.list()] == ["writer"]


async def test_a_subscription_with_a_name_is_lengthened_by_hand_and_its_feed_goes_on(memory: MemoryStore) -> None:
    clock = ManualClock()
    async with open_db(memory, EPOCHS, clock=clock) as db, open_admin(memory, clock) as admin:
        async with db.changes(subscription="copy", subscription_lifetime=10, from_seq=0) as feed:
            assert (await admin.checkpoints.refresh("copy", 99)).expire_time == clock.now_ms() / 1000 + 99
            await db.put(b"k", b"v")
            assert (await anext(aiter(feed))).seq == 1
            await feed.acknowledge(1, now=True)
        async with db.changes(from_seq="now"):
            [unnamed] = [
                checkpoint
                for checkpoint in await admin.checkpoints.list()
                if (checkpoint.owner, checkpoint.name) == ("feed", None)
            ]
            with pytest.raises(slate.InvalidError, match="not to be lengthened by hand: a feed made it"):
                await admin.checkpoints.refresh(unnamed.id, 99)


async def test_those_of_writers_are_theirs(memory: MemoryStore) -> None:
    async with open_db(memory, EPOCHS) as db, open_admin(memory) as admin:
        [own] = await admin.checkpoints.list()
        assert own.owner == "writer"
        with pytest.raises(slate.InvalidError, match="not to be deleted by hand"):
            await admin.checkpoints.delete(own.id)
        with pytest.raises(slate.InvalidError, match="not to be lengthened by hand"):
            await db.checkpoints.refresh(own.id)
        with pytest.raises(slate.InvalidError, match="writer's own"):
            await db.checkpoints.create(source=own.id)
        await admin.checkpoints.delete(own.id, force=True)
        assert await admin.checkpoints.list() == []


@pytest.mark.parametrize("lifetime", [0, -1, float("nan"), float("inf"), "7days", True, timedelta(0)])
async def test_a_lifetime_that_is_none_is_refused_before_anything_is_done(memory: MemoryStore, lifetime: Any) -> None:
    async with open_db(memory, EPOCHS) as db, open_admin(memory) as admin:
        info = await db.checkpoints.create()
        before = db.metrics()["manifest.commits"]
        for call in (db.checkpoints.create, admin.checkpoints.create):
            with pytest.raises(slate.InvalidError, match="lifetime"):
                await call(lifetime=lifetime)
        with pytest.raises(slate.InvalidError, match="lifetime"):
            await db.checkpoints.refresh(info.id, lifetime)
        assert db.metrics()["manifest.commits"] == before


@pytest.mark.parametrize(
    "arguments", [{"scope": "some"}, {"name": ""}, {"name": "x" * 2000}, {"name": 5}, {"source": 5}], ids=str
)
async def test_other_arguments_are_checked_too(memory: MemoryStore, arguments: dict[str, Any]) -> None:
    async with open_db(memory, EPOCHS) as db:
        with pytest.raises(slate.InvalidError):
            await db.checkpoints.create(**arguments)
        for wanted, said in (("no-name", "no checkpoint 'no-name'"), (5, "its id or its name, not by int")):
            with pytest.raises(slate.InvalidError, match=said):
                await db.checkpoints.delete(wanted)  # type: ignore[arg-type]
            with pytest.raises(slate.InvalidError, match=said):
                await db.checkpoints.refresh(wanted)  # type: ignore[arg-type]


# ---- where there is nothing to keep


async def test_without_a_database_there_is_none(memory: MemoryStore) -> None:
    async with open_admin(memory) as admin:
        calls = (admin.checkpoints.create(), admin.checkpoints.list(), admin.checkpoints.delete(uuid4()))
        for call in calls:
            with pytest.raises(slate.InvalidError, match="there is no database at memory://test; check the path"):
                await call
    assert [info.key async for info in memory.list("")] == []


@pytest.mark.parametrize("changes", [{"destroyed_at_ms": START_MS}, {"initialized": False}], ids=str)
async def test_what_cannot_be_opened_cannot_be_kept(memory: MemoryStore, changes: dict[str, Any]) -> None:
    async with open_db(memory, EPOCHS) as db:
        info = await db.checkpoints.create()
    await change(memory, **changes)
    async with open_admin(memory) as admin:
        for call in (admin.checkpoints.create(), admin.checkpoints.create(source=info.id)):
            with pytest.raises(slate.InvalidError, match=r"destroyed|clone"):
                await call
        with pytest.raises(slate.InvalidError, match=r"destroyed|clone"):
            await admin.checkpoints.refresh(info.id)
        assert [checkpoint.id for checkpoint in await admin.checkpoints.list()] == [info.id]
        await admin.checkpoints.delete(info.id)


# ---- cancelled, closed, fenced


async def test_a_cancelled_caller_abandons_the_wait(memory: MemoryStore) -> None:
    store = StoreInHand(memory, watch="manifest/")
    async with open_db(store, EPOCHS) as db:
        store.hold = True
        [making] = starts(db.checkpoints.create(name="left alone"))
        await until(lambda: bool(store.held), "the commit")
        making.cancel()
        await asyncio.wait([making])
        store.release()
        await db.checkpoints.create(name="the next")
        assert [info.name for info in await db.checkpoints.list()][-2:] == ["left alone", "the next"]


async def test_a_fenced_writer_says_so(memory: MemoryStore) -> None:
    store = StoreInHand(memory, watch="manifest/")
    db = await open_db(store, EPOCHS)
    store.hold = True
    [making] = starts(db.checkpoints.create())
    await until(lambda: bool(store.held), "the commit")
    db._fail(slate.FencedError("writer epoch 9 took over"))
    with pytest.raises(slate.FencedError, match="epoch 9"):
        await making
    await db.close()
    with pytest.raises(slate.FencedError):
        await db.checkpoints.list()


async def test_a_closed_administration_says_so(memory: MemoryStore) -> None:
    admin = await open_admin(memory)
    await admin.close()
    with pytest.raises(slate.ClosedError):
        await admin.checkpoints.create()


async def test_an_id_is_the_text_of_a_uuid_too(memory: MemoryStore) -> None:
    async with open_db(memory, EPOCHS) as db:
        info = await db.checkpoints.create()
        assert isinstance(info.id, UUID)
        assert (await db.checkpoints.create(source=str(info.id))).manifest_id == info.manifest_id
