"""Whatever a database, its checkpoints, a feed, a clone and a mirror need: lost, cut short, altered or put into another
one's place, verification names it. And it is clean as long as all of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from metastores.memory import MemoryFactory
from metastores.names import MANIFEST
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.gc.reachable import Reach, fed_ssts, finished_ssts, own_keys, pending_ssts, reachable_ssts
from slate_async.errors import CorruptionError
from slate_async.storage.log.object_status import log_name
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, Kind, on, runtime
from tests.live_set import live_set
from tests.slices import sample
from tests.support.settled_town import admin, alter, bytes_of, compact, remove, settled
from tests.support.towns import CLONE, PARENT, Town, numbered
from tests.unit.maintenance.verify.whole import MIRROR, collect, finish_part, ingest, whole_town

SLICE = 15
"""Damages of each database, of each of the four kinds, tried with every commit."""
PLACES = (PARENT, CLONE, MIRROR)


class Damage(NamedTuple):
    """What is done to the object at ``key`` of the database ``name``. ``other``: what it is swapped with."""

    name: str
    key: str
    how: str
    other: str = ""


@pytest.fixture
async def whole(kind: Kind) -> Town:
    """See `whole_town`."""
    return await whole_town(kind)


async def report_of(town: Town, name: str) -> slate.VerifyReport:
    async with admin(town, name) as opened:
        return await opened.verify()


async def test_all_of_it_together_is_sound(whole: Town) -> None:
    for name in PLACES:
        report = await report_of(whole, name)
        assert report.findings == (), name
        assert [note for note in report.notes if note.object_name.startswith("sst/")] == [], name


async def test_verification_and_gc_keep_the_same(whole: Town) -> None:
    """The state of this database has something of every kind, so none of them can be forgotten by one of the two."""
    async with whole.process() as open_at, open_at(PARENT) as database:
        head = await database.head()
        versions = [head]
        for checkpoint in head.checkpoints:
            version = await database.driver.read(checkpoint.ref)
            assert version is not None
            versions.append(version)
        kept = await Reach(database.driver, database.runtime).of(head)
        assert kept.keys == own_keys(reachable_ssts(head, versions))
    read_from = own_keys(sst for version in versions for sst in version.ssts())
    for waiting in (finished_ssts, pending_ssts, fed_ssts):
        assert own_keys(waiting(head)) - read_from, waiting.__name__


async def test_collected_nothing_of_it_is_missed(whole: Town) -> None:
    for name in PLACES:
        await collect(whole, name)
        assert (await report_of(whole, name)).findings == (), name


async def needed(town: Town, name: str) -> list[str]:
    """What lies there and lives, by an oracle of its own, but for what nothing in the store tells of:

    - markers of a boundary below the highest one, which are leftovers
    - fences of a contiguous log where its rows went: nobody knows any more which positions they were at
    - objects of a contiguous log behind the last position that the manifest knows of
    - the newest version of the manifest where the one before it is still there: the database is as it was then."""
    state = await town.state(name)
    found = await live_set(town.store(name), PutIfAbsentFactory(), name, runtime(town.clock))
    assert found.missing == []
    boundary = max((one for key in town.keys(name) if (one := MANIFEST.boundary_of(key)) is not None), default=None)
    return [
        key
        for key in town.keys(name)
        if key not in found.left
        and MANIFEST.boundary_of(key) in (None, boundary)
        and not is_silent_fence(state, key, len(bytes_of(town, key, name)))
    ]


def is_silent_fence(state: ManifestState, key: str, size: int) -> bool:
    place = log_name(state.log_protocol, key)
    if place is None or size != HEADER_BYTES:
        return False
    spans = [(checkpoint.log_start, checkpoint.log_end) for checkpoint in state.checkpoints]
    spans.append((state.log_start, None))
    return not any(first <= place.position and (last is None or place.position <= last) for first, last in spans)


def may_go_unseen(state: ManifestState, key: str, keys: list[str]) -> bool:
    """Whether nothing tells that ``key`` was there: see `needed`."""
    place = log_name(state.log_protocol, key)
    if place is not None and state.log_protocol == "contiguous":
        return place.position > state.log_last_seen
    return MANIFEST.version_of(key) == state.version and MANIFEST.version_key(state.version - 1) in keys


def damages(town: Town, state: ManifestState, name: str, keys: list[str]) -> Iterator[Damage]:
    for key in keys:
        if not may_go_unseen(state, key, town.keys(name)):
            yield Damage(name, key, "delete")
        if MANIFEST.boundary_of(key) is not None:
            continue  # its name is all there is to it
        for how in ("empty", "to its header", "by a byte", "first byte", "middle", "last byte"):
            yield Damage(name, key, how)
        folder, size = key.split("/")[0], len(bytes_of(town, key, name))
        others = [
            other
            for other in keys
            if other != key and other.split("/")[0] == folder and MANIFEST.boundary_of(other) is None
        ]
        for other in sorted(others, key=lambda one: abs(len(bytes_of(town, one, name)) - size))[:2]:
            if bytes_of(town, other, name) != bytes_of(town, key, name):
                yield Damage(name, key, "swap", other)


def inflict(town: Town, damage: Damage) -> None:
    name, key, how, other = damage
    sound = bytes_of(town, key, name)
    if how == "delete":
        remove(town, key, name)
    elif how == "swap":
        theirs = bytes_of(town, other, name)
        alter(town, key, theirs, name)
        alter(town, other, sound, name)
    elif how in ("first byte", "middle", "last byte"):
        at = {"first byte": 0, "middle": len(sound) // 2, "last byte": len(sound) - 1}[how]
        alter(town, key, sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :], name)
    else:
        size = {"empty": 0, "to its header": min(HEADER_BYTES, len(sound) - 1), "by a byte": len(sound) - 1}[how]
        alter(town, key, sound[:size], name)


async def test_whatever_is_damaged_is_named(whole: Town, full: bool) -> None:
    for name in PLACES:
        tried = list(damages(whole, await whole.state(name), name, await needed(whole, name)))
        for damage in tried if full else sample(tried, SLICE, f"{whole.kind} {name}"):
            hurt = whole.copy()
            inflict(hurt, damage)
            assert await names_it(hurt, damage), damage


async def names_it(town: Town, damage: Damage) -> bool:
    """Whether the report, or the error that no report can be made, names one of the objects that are wrong."""
    try:
        named = [finding.object_name for finding in (await report_of(town, damage.name)).findings]
    except (CorruptionError, slate.InvalidError) as error:
        named = [str(error)]
    wanted = [key for key in (damage.key, damage.other) if key]
    if any(key.startswith("writer/") for key in wanted):
        wanted.append("writer register")
    if any(MANIFEST.boundary_of(key) is not None for key in wanted):
        wanted.append("manifest/boundary/")
    for key in list(wanted):
        if (version := MANIFEST.version_of(key)) is not None:
            wanted.append(f"manifest version {version}")
    return any(want in said for want in wanted for said in named)


async def test_a_clones_hold_that_is_missing_is_reported() -> None:
    town = await whole_town(CONTIGUOUS)
    state = await town.state(CLONE)
    [parent] = state.parents
    async with admin(town) as opened:
        await opened.checkpoints.delete(parent.checkpoint_id, force=True)
    assert (await report_of(town, PARENT)).findings == ()
    [finding] = (await report_of(town, CLONE)).findings
    assert (str(parent.checkpoint_id) in finding.object_name, "it does not exist" in finding.what) == (True, True)
    town.objects[PARENT] = type(town.objects[PARENT])()
    whats = [finding.what for finding in (await report_of(town, CLONE)).findings]
    assert any("no database" in what for what in whats)


async def test_a_parents_own_lost_hold_is_reported_for_its_clones_clone() -> None:
    town, third = await whole_town(CONTIGUOUS), "memory://third"
    town.store(third)
    async with admin(town, CLONE) as opened:
        await opened.clone(third)
    assert (await report_of(town, third)).findings == ()
    [parent] = (await town.state(CLONE)).parents
    async with admin(town) as opened:
        await opened.checkpoints.delete(parent.checkpoint_id, force=True)
    [finding] = (await report_of(town, third)).findings
    assert str(parent.checkpoint_id) in finding.object_name


@pytest.mark.parametrize("left", ["an ingest", "a finished part"])
async def test_what_a_checkpoints_version_named_as_work_on_its_way_may_be_deleted(kind: Kind, left: str) -> None:
    """A nightly checkpoint beside an ingest, or a compaction: both ended since, and what they left was collected."""
    town = await settled(Town(kind))
    if left == "an ingest":
        await ingest(town, "pending then", {"0062": "pending then"})
        waiting = [sst.location for job in (await town.state(PARENT)).ingests for sst in job.ssts]
    else:
        await finish_part(town)
        [job] = (await town.state(PARENT)).compactions
        waiting = [sst.location for part in job.finished for sst in part.ssts]
    async with admin(town) as opened:
        await opened.checkpoints.create(name="nightly")
    await town.write(PARENT, numbered(0, 3, b"later"), l0=True)
    await compact(town, PARENT)
    await town.write(PARENT, numbered(0, 3, b"last"), l0=True)
    await compact(town, PARENT)
    await collect(town, PARENT)
    assert not set(waiting) & set(town.keys(PARENT))
    assert (await report_of(town, PARENT)).findings == ()


@pytest.mark.parametrize("how", ["delete", "empty", "by a byte", "first byte", "middle", "last byte", "swap"])
async def test_a_marker_that_is_damaged_is_named(kind: Kind, how: str) -> None:
    """Of a database whose metadata is elsewhere: without it nothing says that this is its place."""
    town, factory, other = Town(kind), MemoryFactory(), MemoryFactory()
    for name, metastore in ((PARENT, factory), (CLONE, other)):
        store, settings = town.store(name), kind.settings()
        async with on(runtime()).open(store, name=name, metastore=metastore, settings=settings) as db:
            await db.put(b"k", b"v")

    async def verified() -> slate.VerifyReport:
        opening = on(runtime()).open_admin(town.store(PARENT), name=PARENT, metastore=factory)
        async with opening as opened:
            return await opened.verify()

    assert (await verified()).findings == ()
    if how == "swap":
        alter(town, MARKER, bytes_of(town, MARKER, CLONE))
    else:
        inflict(town, Damage(PARENT, MARKER, how))
    try:
        named = [finding.object_name for finding in (await verified()).findings]
    except slate.ConfigError as error:
        named = [MARKER] if "marker" in str(error) else []
    assert named == [MARKER]
