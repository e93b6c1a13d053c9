"""Collection rounds step by step: what goes, when, in which order, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from metastores.names import MANIFEST
from slate_async.engine.gc.report import GcProgress
from slate_async.engine.gc.sweeper import PROBED_MS, Limits, Sweeper
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints
from slate_async.storage.manifest.edits.compactions import ClaimCompactor, DropCompaction, RegisterCompaction
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.state import Compaction, ManifestState
from slate_async.storage.sst.names import parse_sst_key, sst_key
from tests.engine import CONTIGUOUS, START_MS, ManualClock, memory_store, open_db, runtime, until
from tests.property.gc.oracle import driver_of

MIN_AGE = 10_000
SKEW = 500
STALLED = 3_600_000
ONE = UUID(int=1)


class Stopping:
    """A store that calls ``before_delete`` with the keys of each deletion."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.before_delete: Callable[[Sequence[str]], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def delete(self, keys: Sequence[str]) -> None:
        if self.before_delete is not None:
            await self.before_delete(keys)
        await self.inner.delete(keys)


class Place:
    """One database in memory, its clock, and collectors of it."""

    def __init__(self) -> None:
        self.store = memory_store()
        self.clock = ManualClock()

    def driver(self) -> ManifestDriver:
        return driver_of(self.store, runtime(self.clock))

    async def head(self) -> ManifestState:
        head = await self.driver().load()
        assert head is not None
        return head

    async def commit(self, edit: Edit) -> ManifestState:
        driver = self.driver()
        await driver.load()
        return await driver.commit(edit)

    def collector(self, store: Any = None, *, min_age: int = MIN_AGE, most: int = 100) -> Sweeper:
        found = self.store if store is None else store
        driver = driver_of(found, runtime(self.clock))
        return Sweeper(found, driver, None, runtime(self.clock), Limits(min_age, SKEW, most, STALLED))

    async def orphan(self, base: int) -> str:
        """What a producer leaves that read version ``base`` and died."""
        key = sst_key(base, runtime().ids.ulid(START_MS))
        await self.store.put(key, b"an SST")
        return key

    async def keys(self, prefix: str) -> list[str]:
        return [info.key async for info in self.store.list(prefix)]

    async def put(self, *keys: bytes) -> None:
        """Rows, an L0 SST for each."""
        async with open_db(self.store, CONTIGUOUS, clock=self.clock, auto_compaction=False) as db:
            for key in keys:
                await db.put(key, b"value of " + key)
                await db.flush(l0=True)

    async def read(self, *keys: bytes) -> list[bytes | None]:
        async with open_db(self.store, CONTIGUOUS, clock=self.clock, auto_compaction=False) as db:
            return [await db.get(key) for key in keys]


@pytest.fixture
async def place() -> Place:
    made = Place()
    await made.put(b"a", b"b", b"c")
    return made


async def test_an_orphan_goes_once_work_of_its_age_may_be_refused(place: Place) -> None:
    orphan = await place.orphan(2)
    collector = place.collector()
    for waited in (0, MIN_AGE - 1):
        place.clock.wall_ms = START_MS + waited
        report = await collector.sweep()
        assert (report.waiting, [garbage.key for garbage in report.objects if garbage.key == orphan]) == (1, [])
    assert len(await place.keys("gc/heads/")) > 0
    place.clock.wall_ms = START_MS + MIN_AGE
    assert [garbage.key for garbage in (await place.collector().sweep()).objects] == [orphan]  # another process
    assert await place.keys("gc/") == []
    assert await place.read(b"a", b"b", b"c") == [b"value of a", b"value of b", b"value of c"]


async def test_nothing_to_do_commits_nothing(place: Place) -> None:
    await place.collector(min_age=0).sweep()
    before, puts = await place.head(), place.store._data.writes
    report = await place.collector(min_age=0).sweep()
    assert (report.objects, report.manifest_versions, report.waiting) == ((), 0, 0)
    assert await place.head() == before
    assert place.store._data.writes == puts


async def test_an_orphan_of_the_very_head_goes_in_the_end(place: Place) -> None:
    orphan = await place.orphan((await place.head()).version)
    collector = place.collector()
    for _ in range(3):
        assert orphan in await place.keys("sst/")
        await collector.sweep()
        place.clock.wall_ms += MIN_AGE
    await collector.sweep()
    assert orphan not in await place.keys("sst/")
    settled = (await place.head()).version
    place.clock.wall_ms += 10 * MIN_AGE
    await collector.sweep()
    assert (await place.head()).version == settled


async def test_a_dry_run_changes_nothing_and_tells_what_the_next_round_does(place: Place) -> None:
    await place.orphan(1)
    before = dict(place.store._data.objects)
    dry = await place.collector(min_age=0).sweep(dry_run=True)
    assert place.store._data.objects == before
    real = await place.collector(min_age=0).sweep()
    assert dry.dry_run
    assert dry.objects == real.objects != ()
    assert 0 < dry.manifest_versions <= real.manifest_versions  # the round's own commit outdates what it found
    assert all(garbage.why and garbage.size for garbage in dry.objects)


async def test_what_a_checkpoint_holds_goes_when_every_clock_says_that_it_expired(place: Place) -> None:
    held = await place.commit(CreateCheckpoint(ONE, "user", START_MS, START_MS + 1_000, log_end=0))
    await place.put(b"d")
    log, pinned = await place.keys("log/"), MANIFEST.version_key(held.version)
    place.clock.wall_ms += 1_000 + SKEW - 1
    report = await place.collector().sweep()
    assert report.expired_checkpoints == ()
    assert pinned in await place.keys("manifest/")
    place.clock.wall_ms += 1
    report = await place.collector().sweep()
    assert report.expired_checkpoints == (ONE,)
    assert pinned not in await place.keys("manifest/")
    assert (await place.head()).checkpoint(ONE) is None
    assert len(await place.keys("log/")) <= len(log)


async def test_a_round_deletes_so_much_and_says_that_there_is_more(place: Place) -> None:
    for base in range(1, 6):
        await place.orphan(base)
    await place.collector(min_age=0).sweep(dry_run=True)
    seen: list[GcProgress] = []
    rounds = 0
    while (report := await place.collector(min_age=0, most=3).sweep(on_progress=seen.append)).truncated:
        assert len(report.objects) == 3
        rounds += 1
    assert rounds > 1
    assert len(await place.keys("sst/")) == 3
    assert {progress.stage for progress in seen} == {"log", "ssts"}
    assert all(progress.deleted_bytes > 0 for progress in seen)


async def test_a_slow_flush_is_refused_and_done_again_under_another_name(place: Place) -> None:
    orphan = await place.orphan(1)
    async with open_db(place.store, CONTIGUOUS, clock=place.clock, auto_compaction=False) as db:
        put, gate, slow = place.store.put, asyncio.Event(), list[str]()

        async def held(key: str, *given: Any, **more: Any) -> str:
            if key.startswith("sst/") and not slow:
                slow.append(key)
                await gate.wait()
            return await put(key, *given, **more)

        place.store.put = held  # type: ignore[method-assign]
        await db.put(b"slow", b"1")
        flushing = asyncio.ensure_future(db.flush(l0=True))
        await until(lambda: bool(slow), "the upload")
        for number in range(2):  # somebody else moves the head, and the floor with it
            await place.commit(CreateCheckpoint(UUID(int=number), "user", 0, None, log_end=0))
        await place.collector(min_age=0).sweep()
        named = parse_sst_key(slow[0])
        assert named is not None
        assert named.base_version < (await place.head()).sst_floor
        gate.set()
        await flushing
        assert await db.get(b"slow") == b"1"
        await place.commit(DeleteCheckpoints(frozenset({UUID(int=0), UUID(int=1)})))
        assert slow[0] in await place.keys("sst/")
        report = await place.collector(min_age=0).sweep()
        assert slow[0] in [garbage.key for garbage in report.objects]
        assert orphan not in await place.keys("sst/")
        assert await db.get(b"slow") == b"1"
    assert await place.read(b"slow", b"a") == [b"1", b"value of a"]


async def test_a_registered_compaction_holds_the_floor_however_slow(place: Place) -> None:
    claimed = await place.commit(ClaimCompactor("t"))
    l0 = tuple(sst.object_id for sst in claimed.l0)
    running = Compaction(ONE, 1, claimed.version, 0, 0, True, l0, (), claimed.last_run_id + 1, 0)
    await place.commit(RegisterCompaction(running))
    output = await place.orphan(claimed.version)
    for _ in range(5):
        place.clock.wall_ms += 10 * MIN_AGE
        await place.collector().sweep()
    assert output in await place.keys("sst/")
    await place.commit(DropCompaction(1, ONE))
    for _ in range(3):
        await place.collector().sweep()
        place.clock.wall_ms += MIN_AGE
    assert output not in await place.keys("sst/")


async def test_two_sleeping_rounds_delete_nothing_that_came_to_life(place: Place) -> None:
    """Each is stopped at its first deletion, in turn, while the database goes on."""
    sleepers = []
    for number in range(2):
        await place.orphan(1 + number)
        gate, store, asleep = asyncio.Event(), Stopping(place.store), asyncio.Event()

        async def sleep(keys: Sequence[str], gate: asyncio.Event = gate, asleep: asyncio.Event = asleep) -> None:
            asleep.set()
            await gate.wait()

        store.before_delete = sleep
        sleepers.append((asyncio.ensure_future(place.collector(store, min_age=0).sweep()), gate))
        await asleep.wait()
        await place.put(b"d%d" % number)
        await place.commit(CreateCheckpoint(UUID(int=number), "user", START_MS, None, log_end=0))
    await place.collector(min_age=0).sweep()
    await place.put(b"e")
    for round_, gate in sleepers:
        gate.set()
        await round_
    assert await place.read(b"a", b"d0", b"d1", b"e") == [b"value of " + key for key in (b"a", b"d0", b"d1", b"e")]
    head, driver = await place.head(), place.driver()
    for checkpoint in head.checkpoints:
        kept = await driver.read(checkpoint.ref)
        assert kept is not None
        assert {sst.location for sst in kept.ssts()} <= {*await place.keys("sst/")}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_commit_is_found_out(place: Place, when: str) -> None:
    orphan = await place.orphan(1)
    put, lost = place.store.put, list[str]()

    async def losing(key: str, *given: Any, **more: Any) -> str:
        if key.startswith("manifest/0") and not lost:
            lost.append(key)
            if when == "after":
                await put(key, *given, **more)
            raise UnavailableError("lost", outcome="unknown")
        return await put(key, *given, **more)

    place.store.put = losing  # type: ignore[method-assign]
    await place.collector(min_age=0).sweep()
    assert lost
    assert orphan not in await place.keys("sst/")
    assert await place.read(b"a") == [b"value of a"]


async def test_a_lost_version_stops_everything(place: Place) -> None:
    """What it kept is not known, so nothing may go."""
    ids = [UUID(int=number) for number in range(3)]
    held = [
        await place.commit(CreateCheckpoint(checkpoint_id, "user", START_MS, None, log_end=0)) for checkpoint_id in ids
    ]
    stored = [await place.driver().read_stored(state.ref) for state in held]
    changes = [manifest.state.ref for manifest in stored if manifest is not None and manifest.base is not None]
    await place.put(b"d")
    await place.orphan(1)
    await place.store.delete([MANIFEST.version_key(changes[0].version)])
    before = await place.keys("")
    with pytest.raises(CorruptionError, match="nothing was deleted"):
        await place.collector(min_age=0).sweep()
    assert await place.keys("") == before


async def test_a_round_overtaken_by_another_begins_anew(place: Place) -> None:
    """The checkpoint it saw was deleted, and its version collected, before it could read it."""
    held = await place.commit(CreateCheckpoint(ONE, "user", START_MS, None, log_end=0))
    await place.put(b"d")
    get, other = place.store.get, place.collector(min_age=0)
    overtaken: list[str] = []

    async def late(key: str, *given: Any, **more: Any) -> Any:
        if key == MANIFEST.version_key(held.version) and not overtaken:
            overtaken.append(key)
            place.store.get = get  # type: ignore[method-assign]
            await place.commit(DeleteCheckpoints(frozenset({ONE})))
            await other.sweep()
        return await get(key, *given, **more)

    collector = place.collector(min_age=0)
    place.store.get = late  # type: ignore[method-assign]
    report = await collector.sweep()
    assert overtaken
    assert report.manifest_version == (await place.head()).version


async def test_leftovers_of_a_creation_go_when_they_are_old(place: Place) -> None:
    await place.store.put("gc/probe/0123", b"x")
    place.clock.wall_ms += PROBED_MS + SKEW
    for impatient in (0, MIN_AGE):
        await place.collector(min_age=impatient).sweep()
        assert "gc/probe/0123" in await place.keys("gc/"), "a probe would find it missing"
    place.clock.wall_ms += 1
    await place.collector().sweep()
    assert await place.keys("gc/") == []


async def test_there_must_be_a_database() -> None:
    with pytest.raises(InvalidError, match="no database"):
        await Place().collector().sweep()


async def test_an_unfinished_clone_is_left_alone() -> None:
    place = Place()
    unfinished = ManifestState(ONE, "contiguous", True, created_ms=0, initialized=False)
    await place.driver().create(unfinished)
    await place.orphan(0)
    with pytest.raises(InvalidError, match="not finished"):
        await place.collector(min_age=0).sweep()
    assert len(await place.keys("sst/")) == 1
