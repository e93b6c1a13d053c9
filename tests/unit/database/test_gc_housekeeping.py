"""What a garbage collector does for clones and destroyed databases: it ends what nobody holds any more."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import OVERWRITE
from slate_async.objectstore.url import open_store
from tests.engine import KINDS, Kind, ManualClock, runtime
from tests.live_set import live_set

DAY_MS = 86_400_000
SKEW_MS = 1_000


class Town:
    """Databases in one memory, each of kind ``kind``, on one clock."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.clock = ManualClock()
        self.environment = slate.Environment(runtime=runtime(self.clock))
        self.parent, self.clone = (f"memory://{uuid.uuid4().hex}/{name}" for name in ("parent", "clone"))

    @property
    def settings(self) -> slate.Settings:
        return self.kind.settings(
            gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=SKEW_MS, gc_destroy_grace_ms=DAY_MS
        )

    async def fill(self, path: str, value: bytes) -> None:
        async with self.environment.open(path, settings=self.settings.replace(auto_compaction=False)) as db:
            for number in range(3):
                await db.put(b"key", value)
                await db.put(b"key %d" % number, value)
                await db.flush(l0=True)

    async def collect(self, path: str, **how: bool) -> slate.GcReport:
        async with self.environment.open_gc(path, settings=self.settings, periodic=False) as collector:
            return await collector.collect(**how)

    def admin(self, path: str) -> slate.environment.Opening[slate.Admin]:
        return self.environment.open_admin(path, settings=self.settings)

    async def left(self, path: str) -> list[str]:
        """Keys of the database."""
        store, prefix = open_store(path, self.environment.runtime)
        return [info.key async for info in PrefixedStore(store, prefix).list()]

    async def check_exact(self, path: str) -> None:
        for _ in range(4):
            await self.collect(path)
        store, prefix = open_store(path, self.environment.runtime)
        found = await live_set(PrefixedStore(store, prefix), PutIfAbsentFactory(), path, runtime())
        assert (found.missing, found.left) == ([], [])


@pytest.fixture(params=KINDS, ids=str)
async def town(request: pytest.FixtureRequest) -> AsyncIterator[Town]:
    found = Town(request.param)
    async with found.environment:
        yield found


async def test_a_softly_destroyed_database_goes_after_its_grace(town: Town) -> None:
    await town.fill(town.parent, b"v")
    async with town.admin(town.parent) as admin:
        await admin.destroy(soft=True)
    town.clock.wall_ms += DAY_MS + SKEW_MS - 1
    assert not (await town.collect(town.parent)).removed
    assert [key for key in await town.left(town.parent) if key.startswith("sst/")] or not town.kind.wal_enabled
    town.clock.wall_ms += 1
    assert (await town.collect(town.parent, dry_run=True)).removed
    assert (await town.collect(town.parent)).removed
    assert not (await town.collect(town.parent)).removed
    assert not [key for key in await town.left(town.parent) if key.startswith(("sst/", "gc/"))]
    await town.check_exact(town.parent)
    await town.fill(town.parent, b"again")
    async with town.environment.open_reader(town.parent, settings=town.settings) as reader:
        assert await reader.get(b"key") == b"again"


async def test_a_checkpoint_puts_the_end_off_until_it_has_expired(town: Town) -> None:
    await town.fill(town.parent, b"v")
    async with town.admin(town.parent) as admin:
        checkpoint = await admin.checkpoints.create(lifetime=2 * DAY_MS / 1_000)
        await admin.destroy(soft=True)
    town.clock.wall_ms += DAY_MS + SKEW_MS
    for _ in range(2):
        assert not (await town.collect(town.parent)).removed
    async with town.environment.open_reader(town.parent, checkpoint=checkpoint.id, settings=town.settings) as reader:
        assert await reader.get(b"key") == b"v"
    town.clock.wall_ms += DAY_MS
    assert (await town.collect(town.parent)).removed
    await town.check_exact(town.parent)


async def test_a_clone_that_was_compacted_lets_its_parent_go(town: Town) -> None:
    await town.fill(town.parent, b"v")
    async with town.environment.open(town.parent, settings=town.settings) as db:
        await db.compact(full=True)  # without a WAL, what is still in the log would be copied
    async with town.admin(town.parent) as admin:
        await admin.clone(town.clone)
        await admin.destroy(soft=True)
    town.clock.wall_ms += DAY_MS + SKEW_MS
    assert not (await town.collect(town.parent)).removed
    assert not (await town.collect(town.clone)).detached
    await town.check_exact(town.clone)
    async with town.environment.open(town.clone, settings=town.settings) as db:
        await db.compact(full=True)
        assert await db.get(b"key") == b"v"
    town.clock.wall_ms += DAY_MS  # the writer's checkpoint on what it compacted, if it left one
    async with town.environment.open(town.clone, settings=town.settings) as db:
        assert await db.get(b"key 1") == b"v"
    assert (await town.collect(town.clone)).detached
    assert (await town.collect(town.parent)).removed
    await town.check_exact(town.parent)
    await town.check_exact(town.clone)
    async with town.environment.open(town.clone, settings=town.settings) as db:
        assert [await db.get(b"key %d" % number) for number in range(3)] == [b"v"] * 3


async def test_a_damaged_parent_does_not_end_the_gc_of_its_clone(town: Town) -> None:
    await town.fill(town.parent, b"v")
    async with town.environment.open(town.parent, settings=town.settings) as db:
        await db.compact(full=True)
    async with town.admin(town.parent) as admin:
        await admin.clone(town.clone)
    async with town.environment.open(town.clone, settings=town.settings) as db:
        await db.compact(full=True)
    town.clock.wall_ms += DAY_MS
    async with town.environment.open(town.clone, settings=town.settings):
        pass  # it lets go of what the writer before it kept
    store, prefix = open_store(town.parent, town.environment.runtime)
    there = PrefixedStore(store, prefix)
    sound = {info.key: (await there.get(info.key)).data async for info in there.list("manifest/")}
    for key in sound:
        await there.put(key, b"damaged", mode=OVERWRITE)
    async with town.environment.open_gc(town.clone, settings=town.settings, periodic=False) as collector:
        for _ in range(2):
            assert not (await collector.collect()).detached
        for key, data in sound.items():
            await there.put(key, data, mode=OVERWRITE)
        assert (await collector.collect()).detached
    await town.check_exact(town.clone)


# ---- clones that were never finished


async def begin_clone(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a clone; its maker dies once it is pinned."""

    async def dies(*_: object) -> None:
        raise slate.UnavailableError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("slate_async.engine.clone.make.copy_log", dies)
        async with town.admin(town.parent) as admin:
            with pytest.raises(slate.UnavailableError, match="killed"):
                await admin.clone(town.clone)


async def held_for_clones(town: Town) -> int:
    async with town.admin(town.parent) as admin:
        return sum(checkpoint.owner == "clone" for checkpoint in await admin.checkpoints.list())


async def test_a_clone_that_was_never_finished_goes_with_what_it_held(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.fill(town.parent, b"v")
    await begin_clone(town, monkeypatch)
    town.clock.wall_ms += DAY_MS + SKEW_MS - 1
    assert (await town.collect(town.parent)).abandoned == ()
    assert await held_for_clones(town) == 1
    town.clock.wall_ms += 1
    assert (await town.collect(town.parent, dry_run=True)).abandoned == (town.clone,)
    assert await held_for_clones(town) == 1
    assert (await town.collect(town.parent)).abandoned == (town.clone,)
    assert await held_for_clones(town) == 0
    assert not [key for key in await town.left(town.clone) if key.startswith("sst/")]
    assert (await town.collect(town.parent)).abandoned == ()
    await town.check_exact(town.parent)
    await town.check_exact(town.clone)
    async with town.admin(town.parent) as admin:
        with pytest.raises(slate.InvalidError, match="destroyed"):
            await admin.clone(town.clone)
    assert await held_for_clones(town) == 0


async def test_its_own_gc_removes_it_too(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.fill(town.parent, b"v")
    await begin_clone(town, monkeypatch)
    with pytest.raises(slate.InvalidError, match="not finished"):
        await town.collect(town.clone)
    town.clock.wall_ms += DAY_MS + SKEW_MS
    assert (await town.collect(town.clone)).abandoned == (town.clone,)
    assert await held_for_clones(town) == 0
    await town.check_exact(town.clone)


async def test_its_removal_goes_on_where_it_stopped(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.fill(town.parent, b"v")
    await begin_clone(town, monkeypatch)
    town.clock.wall_ms += DAY_MS + SKEW_MS

    async def dies(*_: object) -> None:
        raise slate.UnavailableError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("slate_async.engine.clone.destroy.release_parents", dies)
        assert (await town.collect(town.parent)).abandoned == ()
    assert await held_for_clones(town) == 1
    assert (await town.collect(town.parent)).abandoned == (town.clone,)
    assert await held_for_clones(town) == 0


async def test_a_clone_that_went_on_stays_however_old(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.fill(town.parent, b"v")
    await begin_clone(town, monkeypatch)
    async with town.admin(town.parent) as admin:
        await admin.clone(town.clone)
    town.clock.wall_ms += 10 * DAY_MS
    for path in (town.parent, town.clone):
        assert (await town.collect(path)).abandoned == ()
    async with town.environment.open_reader(town.clone, settings=town.settings) as reader:
        assert await reader.get(b"key") == b"v"


async def test_what_says_nothing_of_a_clone_is_not_taken_for_its_end(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a clone may be another place from where the collector runs: empty, or somebody else's."""
    await town.fill(town.parent, b"v")
    await begin_clone(town, monkeypatch)
    town.clock.wall_ms += DAY_MS + SKEW_MS
    store, prefix = open_store(town.clone, town.environment.runtime)
    elsewhere = PrefixedStore(store, prefix)
    await elsewhere.delete([info.key async for info in elsewhere.list()])
    for _ in range(2):
        assert (await town.collect(town.parent)).abandoned == ()
        assert await held_for_clones(town) == 1
        await town.fill(town.clone, b"somebody else's")


async def test_a_clone_that_is_out_of_reach_is_logged_once(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_way(*_: object) -> bool:
        raise slate.UnavailableError("closed to collectors")

    await town.fill(town.parent, b"v")
    async with town.admin(town.parent) as admin:
        await admin.clone(town.clone)
    town.clock.wall_ms += DAY_MS + SKEW_MS
    monkeypatch.setattr("slate_async.engine.clone.abandoned.ClonesOfOne._is_abandoned", no_way)
    opening = town.environment.open_gc(town.parent, settings=town.settings, periodic=False)
    async with opening as collector:
        for _ in range(3):
            assert (await collector.collect()).abandoned == ()
    assert [record.levelname for record in caplog.records if "closed to collectors" in record.message] == ["WARNING"]
    assert await held_for_clones(town) == 1
