"""`slate_async.collections.store.versions`, over put-if-absent and the pointer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest import mock

import pytest

from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.names import MERGED_AREAS
from metastores.protocol import Record, VersionRef
from metastores.runtime import MetaRuntime
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.edits import Absorb, Claim
from slate_async.collections.store.versions import READS_AT_ONCE, AreaVersions
from slate_async.errors import ConflictError, CorruptionError, FencedError, InternalError, UnavailableError
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.supervisor import Supervisor
from tests.engine import StoreInHand, runtime
from tests.support.collection_bytes import U64, frontier
from tests.unit.collections.faults import FAULTS, next_put
from tests.unit.collections.lake import FastClock

T = TypeVar("T")


async def at_once(seconds: float) -> None:
    """Metastores wait for nothing."""


@dataclass
class Place:
    """A collection's metadata, as each process opens it."""

    store: StoreInHand
    factory: Any
    supervisor: Supervisor

    def open(self, clock: FastClock | None = None) -> AreaVersions:
        metastore = self.factory(MetaRuntime(sleep=at_once)).manifest(
            MetaObjects(self.store), "memory://orders/1", MERGED_AREAS
        )
        return AreaVersions(metastore, U64, runtime(clock), self.supervisor, name="orders", deadline_ms=5000)


@pytest.fixture(params=[PutIfAbsentFactory, IfMatchFactory])
def place(request: pytest.FixtureRequest, store: StoreInHand, supervisor: Supervisor) -> Place:
    return Place(store, request.param, supervisor)


def absorb(lower: int, upper: int, epoch: int = 1) -> Absorb:
    bounds = Bounds(frontier(lower), frontier(upper), frontier(0))
    return Absorb(epoch, MergedBatch(f"batch-{lower}-{upper}", bounds, 10, 5, 1, 0, 100, 7), "t" * 32)


async def test_a_life_begins_at_version_0(place: Place) -> None:
    versions = place.open()
    assert versions.head is None
    assert await versions.load() == Area.first(frontier(0)) == versions.head
    assert await versions.poll() == versions.head
    assert [info.key async for info in place.store.list()] == []
    with pytest.raises(InternalError, match="not stored"):
        await versions.write(None, Area.first(frontier(0)))


@pytest.mark.parametrize("fault", [None, *FAULTS])
async def test_edits_follow_each_other_whatever_is_lost(place: Place, fault: str | None) -> None:
    versions, reader = place.open(), place.open()
    next_put(place.store, fault)
    assert (await versions.commits.commit(Claim("c" * 32))).epoch == 1
    for upper in (10, 20, 30):
        next_put(place.store, fault)
        area = await versions.commits.commit(absorb(upper - 10, upper))
        assert area == await reader.load()
        assert area.upper == frontier(upper)
    assert area.version == 4
    assert [batch.name for batch in area.batches] == ["batch-0-10", "batch-10-20", "batch-20-30"]


async def test_a_rival_makes_an_edit_be_judged_anew(place: Place) -> None:
    """C20, C21: what was decided on an old head does not go in on a new one."""
    first, second = place.open(), place.open()
    await first.commits.commit(Claim("1" * 32))
    await second.load()
    await first.commits.commit(absorb(0, 10))
    with pytest.raises(ConflictError):
        await second.commits.commit(absorb(0, 15))
    await second.commits.commit(Claim("2" * 32))
    with pytest.raises(FencedError):
        await first.commits.commit(absorb(10, 20))


async def test_a_commit_on_an_old_head_conflicts(place: Place) -> None:
    first, second = place.open(), place.open()
    old = await first.load()
    await second.commits.commit(Claim("2" * 32))
    outcome = await first.write(old, old.following(epoch=1, token="1" * 32))
    assert type(outcome).__name__ == "Conflict"
    assert (await first.load()).token == "2" * 32


async def test_a_version_that_must_not_follow_is_not_written(place: Place) -> None:
    versions = place.open()
    head = await versions.commits.commit(Claim("c" * 32))
    with pytest.raises(InternalError, match="took epoch back"):
        await versions.write(head, head.following(epoch=0))


async def test_a_poll_costs_one_request_while_nothing_is_new(place: Place) -> None:
    writer, reader = place.open(), place.open()
    await writer.commits.commit(Claim("c" * 32))
    assert await reader.load() == await reader.load()
    place.store.gets.clear()
    assert await reader.poll() == writer.head
    assert len(place.store.gets) <= 1
    await writer.commits.commit(absorb(0, 10))
    assert await reader.poll() == writer.head


async def test_a_poll_may_leave_the_look_to_the_one_before_it(place: Place) -> None:
    clock = FastClock()
    writer, reader = place.open(), place.open(clock)
    await writer.commits.commit(Claim("c" * 32))
    assert await reader.poll(max_age_ms=250) == writer.head, "nothing is known before the first one"
    before = await writer.commits.commit(absorb(0, 10))
    clock.now += 0.2
    assert await reader.poll(max_age_ms=250) != before
    clock.now += 0.1
    assert await reader.poll(max_age_ms=250) == before
    assert await reader.poll() == before


async def test_a_poll_that_failed_leaves_nothing_to_the_next_one(place: Place) -> None:
    writer, reader = place.open(), place.open()
    await writer.commits.commit(Claim("c" * 32))
    await reader.load()
    with mock.patch.object(reader, "load", side_effect=UnavailableError("no answer")), pytest.raises(UnavailableError):
        await reader.poll(max_age_ms=250)
    head = await writer.commits.commit(absorb(0, 10))
    assert await reader.poll(max_age_ms=250) == head


async def filled(place: Place, count: int) -> tuple[AreaVersions, list[Area]]:
    """Versions 1 to ``count``."""
    versions = place.open()
    areas = [await versions.commits.commit(Claim("c" * 32))]
    for upper in range(1, count):
        areas.append(await versions.commits.commit(absorb(upper - 1, upper)))
    return versions, areas


async def once(what: str, call: Callable[[], Awaitable[T]]) -> T:
    """Nothing is repeated."""
    return await call()


async def test_many_versions_are_read_side_by_side(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each until it is answered: for one that is slow none of the others is read again."""
    await filled(place, 40)
    reader = place.open()
    head, read = await reader.load(), reader.read
    reading, most, reads = set[int](), list[int](), Counter[int]()

    async def slowly(ref: VersionRef) -> Area | None:
        reads[ref.version] += 1
        reading.add(ref.version)
        most.append(len(reading))
        await asyncio.sleep(0)
        reading.remove(ref.version)
        if ref.version == 7 and reads[7] == 1:
            raise UnavailableError("no answer")
        return await read(ref)

    async def answered(what: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except UnavailableError:
            return await call()

    monkeypatch.setattr(reader, "read", slowly)
    assert len(await reader.read_range(1, head, answered)) == 39
    assert max(most) == READS_AT_ONCE
    assert [version for version, times in reads.items() if times > 1] == [7]


async def test_every_version_from_the_lowest_is_read(place: Place) -> None:
    _, areas = await filled(place, 6)
    reader = place.open()
    head = await reader.load()
    assert await reader.read_range(3, head, once) == {area.version: area for area in areas[2:5]}
    assert await reader.read_range(0, head, once) == {area.version: area for area in areas[:5]}
    assert await reader.read_range(6, head, once) == {}


async def test_versions_below_the_lowest_are_collected_and_missed(place: Place) -> None:
    _, areas = await filled(place, 6)
    other = place.open()
    head = await other.load()
    assert await other.collect(4, head, dry_run=True) == 3
    assert await other.collect(4, head, limit=1) == 1
    assert await other.collect(4, head) == 2
    assert await other.collect(4, head) == 0
    found = await other.read_range(1, head, once)
    assert [version for version, area in found.items() if area is None] == [1, 2, 3]
    assert found[4] == areas[3]
    assert await place.open().load() == head


async def test_an_old_head_collects_nothing_that_a_newer_one_needs(place: Place) -> None:
    versions, areas = await filled(place, 3)
    sleeper = place.open()
    for upper in (3, 4):
        areas.append(await versions.commits.commit(absorb(upper - 1, upper)))
    await sleeper.collect(3, areas[2])
    assert await sleeper.read_range(3, await sleeper.load(), once) == {3: areas[2], 4: areas[3]}


async def test_versions_that_are_all_missing_are_corruption(place: Place) -> None:
    versions, _ = await filled(place, 2)
    await place.store.delete([info.key async for info in place.store.list()])
    with pytest.raises(CorruptionError):
        await versions.load()


async def test_unknown_fields_survive_an_edit(place: Place) -> None:
    versions = place.open()
    head = await versions.commits.commit(Claim("c" * 32))
    newer = replace(head.following(), unknown={"wings": 2})
    with pytest.raises(InternalError, match="unknown fields"):
        await versions.write(head, newer)


async def test_a_look_that_was_overtaken_misses_nothing(place: Place) -> None:
    """Two tasks of a process look while the first version lands; the answer of the one that saw nothing comes last."""
    versions = place.open()
    metastore = versions._metastore
    latest, looking, answered = metastore.latest, asyncio.Event(), asyncio.Event()

    async def slow() -> Record | None:
        found = await latest()
        looking.set()
        await answered.wait()
        return found

    metastore.latest = slow  # type: ignore[method-assign]
    overtaken = asyncio.create_task(versions.load())
    await looking.wait()
    metastore.latest = latest  # type: ignore[method-assign]
    head = await place.open().commits.commit(Claim("c" * 32))
    assert await versions.load() == head
    answered.set()
    assert await overtaken == head


async def test_merged_files_without_versions_are_looked_for_once(place: Place) -> None:
    """One is put by a controller, so after version 1: that was lost. A claim between the two looks is none."""
    looks: list[str] = []
    found: list[str | None] = [None, "merged_batches/batch_0_1"]

    async def merged_file() -> str | None:
        looks.append("look")
        return found[len(looks) - 1]

    def opened() -> AreaVersions:
        versions = place.open()
        versions._merged_file = merged_file
        return versions

    versions = opened()
    for _ in range(3):
        assert (await versions.load()).version == 0
    assert looks == ["look"]
    with pytest.raises(
        CorruptionError, match=r"orders.*all versions are missing, and there is merged_batches/batch_0_1"
    ):
        await opened().load()
    looks.pop()

    async def claimed_meanwhile() -> str | None:
        await place.open().commits.commit(Claim("c" * 32))
        return await merged_file()

    late = place.open()
    late._merged_file = claimed_meanwhile
    assert (await late.load()).version == 1


async def test_a_commit_gives_its_own_version_whatever_was_seen_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C20: a claim that was answered late took the epoch of the next controller for its own, which another task of the
    process had seen by then. Two controllers worked in one epoch."""
    one, other = place.open(), place.open()
    commit = one._metastore.commit

    async def answered_late(ref: Any, payload: bytes) -> Any:
        outcome = await commit(ref, payload)
        monkeypatch.undo()
        await other.commits.commit(Claim("b" * 32))
        assert (await one.load()).version == 2
        return outcome

    monkeypatch.setattr(one._metastore, "commit", answered_late)
    claimed = await one.commits.commit(Claim("a" * 32))
    assert (claimed.version, claimed.epoch, claimed.token) == (1, 1, "a" * 32)
    assert one.head is not None
    assert one.head.version == 2
    with pytest.raises(FencedError):
        await one.commits.commit(absorb(0, 5, claimed.epoch))
