"""Polls by one read: when "the next version is not there" may be believed, and what collectors leave for that."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from metastores import names
from metastores.protocol import ListedObject, Probed, StoredObject
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.runtime import MetaRuntime
from metastores.testing import MemoryObjects
from metastores.testing.metastore_suite import commit

KEEP_MS = 400_000


class Clocks:
    """Both clocks, turned by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def runtime(self, keep_ms: int = KEEP_MS) -> MetaRuntime:
        return MetaRuntime(version_keep_ms=keep_ms, monotonic=self.monotonic, now_ms=self.now_ms)


class TimedObjects(MemoryObjects):
    """Says when objects were written, and counts requests. ``during_get`` happens before a get is answered."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self.written_ms: dict[str, int] = {}
        self.lists = self.gets = 0
        self.slow_s = 0.0

    async def create(self, key: str, data: bytes) -> str | None:
        etag = await super().create(key, data)
        if etag is not None:
            self.written_ms[key] = self.clocks.now_ms()
        return etag

    async def get(self, key: str) -> StoredObject | None:
        self.gets += 1
        self.clocks.seconds += self.slow_s
        return await super().get(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        self.lists += 1
        async for listed in super().list(prefix, start_after):
            yield ListedObject(listed.key, listed.etag, self.written_ms.get(listed.key))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def objects(clocks: Clocks) -> TimedObjects:
    return TimedObjects(clocks)


async def test_a_probe_is_one_read_and_no_listing(objects: TimedObjects, clocks: Clocks) -> None:
    store = PutIfAbsentMetaStore(objects, clocks.runtime())
    assert isinstance(store, Probed)
    first = await commit(store, 1, b"x")
    objects.lists = objects.gets = 0
    assert await store.unchanged(first)
    assert (objects.lists, objects.gets) == (0, 1)


async def test_a_probe_that_finds_something_leads_to_a_listing(objects: TimedObjects, clocks: Clocks) -> None:
    reader, writer = (PutIfAbsentMetaStore(objects, clocks.runtime()) for _ in range(2))
    first = await commit(writer, 1, b"x")
    assert await reader.latest() is not None
    second = await commit(writer, 2, b"y")
    assert not await reader.unchanged(first)
    head = await reader.latest()
    assert head is not None
    assert head.ref == second
    assert await reader.unchanged(second)


async def test_a_probe_is_believed_for_a_quarter_of_the_time_that_versions_are_kept(
    objects: TimedObjects, clocks: Clocks
) -> None:
    store = PutIfAbsentMetaStore(objects, clocks.runtime())
    first = await commit(store, 1, b"x")
    clocks.seconds += KEEP_MS / 4000 - 1
    assert await store.unchanged(first)
    clocks.seconds += 1
    objects.gets = 0
    assert not await store.unchanged(first)
    assert objects.gets == 0
    await store.latest()
    assert await store.unchanged(first)
    objects.slow_s = KEEP_MS / 4000
    assert not await store.unchanged(first), "its answer came too late"


async def test_only_the_head_last_read_can_be_probed_for(objects: TimedObjects, clocks: Clocks) -> None:
    store = PutIfAbsentMetaStore(objects, clocks.runtime())
    first = await commit(store, 1, b"x")
    await commit(store, 2, b"y")
    assert not await store.unchanged(first)
    assert not await PutIfAbsentMetaStore(objects, clocks.runtime()).unchanged(first)


async def test_without_the_keep_nothing_is_probed(objects: TimedObjects, clocks: Clocks) -> None:
    for runtime in (clocks.runtime(0), MetaRuntime()):
        store = PutIfAbsentMetaStore(objects, runtime)
        head = await store.latest() or await commit(store, 1, b"x")
        assert not await store.unchanged(getattr(head, "ref", head))


async def test_gc_leaves_young_versions(objects: TimedObjects, clocks: Clocks) -> None:
    store = PutIfAbsentMetaStore(objects, clocks.runtime())
    reader = PutIfAbsentMetaStore(objects, clocks.runtime())
    first = await commit(store, 1, b"x")
    await reader.latest()
    clocks.seconds += 50
    for version in (2, 3, 4):
        await commit(store, version, b"y")
    assert await store.collect([], dry_run=True) == await store.collect([]) == 0
    assert not await reader.unchanged(first), "the next version is still there to be met"
    clocks.seconds += KEEP_MS / 1000 + 1
    assert await store.collect([], dry_run=True) == await store.collect([]) == 3
    assert names.MANIFEST.version_key(4) in objects.objects


async def test_a_version_whose_age_is_not_known_is_collected(clocks: Clocks) -> None:
    store = PutIfAbsentMetaStore(MemoryObjects(), clocks.runtime())
    for version in (1, 2):
        await commit(store, version, b"y")
    assert await store.collect([]) == 1
