"""Orders, costs and refusals of the two kinds of metastore over objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from metastores import names
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.protocol import Committed, Conflict, ListedObject, MetaStore, StoredObject, Unknown, VersionRef
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.register_store import HISTORY
from metastores.runtime import MetaRuntime
from metastores.testing import LostError, MemoryObjects
from metastores.testing.metastore_suite import commit, ref


class Recording(MemoryObjects):
    """Writes down what is asked, and may fail or wait at one kind of request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.lose: str | None = None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.lose is not None and what.startswith(self.lose):
            raise LostError(what)

    async def get(self, key: str) -> StoredObject | None:
        self._ask(f"get {key}")
        return await super().get(key)

    async def put(self, key: str, data: bytes) -> str:
        self._ask(f"put {key}")
        return await super().put(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        self._ask(f"create {key}")
        return await super().create(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        self._ask(f"replace {key}")
        return await super().replace(key, data, etag)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        self._ask(f"list {prefix}")
        async for listed in super().list(prefix, start_after):
            yield listed

    async def delete(self, keys: Sequence[str]) -> None:
        self._ask(f"delete {len(keys)}")
        await super().delete(keys)

    def taken(self) -> list[str]:
        asked, self.asked = [each.split()[0] for each in self.asked], []
        return asked


async def no_sleep(seconds: float) -> None:
    return None


def by_versions(objects: MemoryObjects) -> PutIfAbsentMetaStore:
    return PutIfAbsentMetaStore(objects, MetaRuntime(sleep=no_sleep))


def by_pointer(objects: MemoryObjects) -> MetaStore:
    return IfMatchFactory(MetaRuntime(sleep=no_sleep)).manifest(objects, "memory://x")


async def test_put_if_absent_costs() -> None:
    objects = Recording()
    writer, reader = by_versions(objects), by_versions(objects)
    assert await writer.latest() is None
    await commit(writer, 1, b"x")
    objects.taken()
    await commit(writer, 2, b"y")
    assert objects.taken() == ["create", "list"]
    await reader.latest()
    assert objects.taken() == ["list", "get"]
    await reader.latest()
    await writer.latest()
    assert objects.taken() == ["list", "list"]


async def test_register_store_costs() -> None:
    objects = Recording()
    writer, reader = by_pointer(objects), by_pointer(objects)
    await commit(writer, 1, b"x")
    objects.taken()
    await commit(writer, 2, b"y")
    assert objects.taken() == ["put", "replace"]
    await reader.latest()
    await reader.latest()
    assert objects.taken() == ["get", "get", "get"]


async def test_the_boundary_is_durable_before_anything_is_deleted() -> None:
    objects = Recording()
    store = by_versions(objects)
    refs = [await commit(store, version, b"x") for version in range(1, 6)]
    objects.lose = "create manifest/boundary"
    with pytest.raises(MetaStoreUnavailableError, match="nothing was deleted"):
        await store.delete(refs[:2])
    objects.lose = None
    assert await store.versions() == refs
    objects.asked.clear()
    await store.delete(refs[:2])
    asked = [each for each in objects.asked if each.startswith(("create", "delete"))]
    assert asked == [f"create {names.MANIFEST.boundary_key(3)}", "delete 2"]


async def test_few_boundary_markers_remain() -> None:
    objects = MemoryObjects()
    store = by_versions(objects)
    for version in range(1, 30):
        await commit(store, version, b"x")
        await store.collect([])
    markers = [key for key in objects.objects if key.startswith(names.MANIFEST.boundary_folder)]
    assert markers == [names.MANIFEST.boundary_key(28), names.MANIFEST.boundary_key(29)]
    assert [key for key in objects.objects if key.endswith(".manifest")] == [names.MANIFEST.version_key(29)]


async def test_unreadable_boundary_after_the_put_is_unknown() -> None:
    objects = Recording()
    store = by_versions(objects)
    await commit(store, 1, b"x")
    objects.lose = "list"
    outcome = await store.commit(ref(2), b"y")
    assert isinstance(outcome, Unknown)
    objects.lose = None
    head = await store.latest()
    assert head is not None
    assert head.payload == b"y"


async def test_a_sleeper_at_a_deleted_version_learns_unknown_and_leaves_the_head_alone() -> None:
    objects = MemoryObjects()
    sleeper, other = by_versions(objects), by_versions(objects)
    await commit(other, 1, b"x")
    await sleeper.latest()
    refs = [await commit(other, version, b"x") for version in (2, 3, 4)]
    await other.delete(refs[:2])
    assert isinstance(await sleeper.commit(ref(2), b"zombie"), Unknown)
    assert names.MANIFEST.version_key(2) in objects.objects
    head = await sleeper.latest()
    assert head is not None
    assert head.ref == refs[-1]
    assert await other.collect([]) == 2
    assert names.MANIFEST.version_key(2) not in objects.objects


async def test_a_lost_answer_is_read_back() -> None:
    objects = Recording()
    store = by_versions(objects)
    await commit(store, 1, b"x")
    wanted = ref(2)

    class AnswerLost(Recording):
        async def create(self, key: str, data: bytes) -> str | None:
            self.create_now(key, data)
            raise LostError

    losing = AnswerLost()
    losing.objects = objects.objects
    assert await by_versions(losing).commit(wanted, b"y") == Committed(wanted)
    assert isinstance(await store.commit(ref(2), b"z"), Conflict)


@pytest.mark.parametrize("make", [by_versions, by_pointer])
async def test_a_damaged_or_swapped_version_is_corruption(make: object) -> None:
    assert callable(make)
    objects = MemoryObjects()
    store = make(objects)
    await commit(store, 1, b"first")
    await commit(store, 2, b"second")
    bodies = sorted(key for key in objects.objects if key.startswith("manifest/0"))
    whole = dict(objects.objects)
    data = whole[bodies[1]]
    for wrong in (whole[bodies[0]], b"", data[:-1], data[:60] + bytes([data[60] ^ 4]) + data[61:]):
        objects.objects = {**whole, bodies[1]: wrong}
        with pytest.raises(MetaStoreCorruptionError, match=bodies[1]):
            await make(objects).latest()


async def test_a_head_that_was_lost_is_given_up_soon() -> None:
    """Well before the deadline of any caller: nothing that goes on in the store shows the same listing so often."""
    waits = list[float]()

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    objects = Recording()
    store = PutIfAbsentMetaStore(objects, MetaRuntime(sleep=wait))
    for version in (1, 2):
        await commit(store, version, b"x")
    del objects.objects[names.MANIFEST.version_key(2)]
    objects.taken()
    with pytest.raises(MetaStoreCorruptionError, match=r"version 2 was committed.*7 attempts"):
        await store.latest()
    assert objects.taken().count("list") == 7
    assert sum(waits) < 1


async def test_a_missing_head_is_corruption_not_an_older_head() -> None:
    objects = MemoryObjects()
    store = by_versions(objects)
    for version in (1, 2, 3):
        await commit(store, version, b"x")
    await store.collect([])
    del objects.objects[names.MANIFEST.version_key(3)]
    for handle in (store, by_versions(objects)):
        with pytest.raises(MetaStoreCorruptionError):
            await handle.latest()
    pointed = MemoryObjects()
    wanted = await commit(by_pointer(pointed), 1, b"x")
    del pointed.objects[names.MANIFEST.body_key(wanted)]
    with pytest.raises(MetaStoreCorruptionError, match="is missing"):
        await by_pointer(pointed).latest()


async def test_the_other_kinds_manifest_is_not_taken_for_nothing() -> None:
    objects = MemoryObjects()
    await commit(by_versions(objects), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match="another metastore"):
        await by_pointer(objects).latest()
    objects = MemoryObjects()
    await commit(by_pointer(objects), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match="another metastore"):
        await by_versions(objects).latest()


async def test_a_failed_body_is_an_error_and_the_head_stays() -> None:
    objects = Recording()
    store = by_pointer(objects)
    first = await commit(store, 1, b"x")
    objects.lose = "put"
    with pytest.raises(MetaStoreUnavailableError):
        await store.commit(ref(2), b"y")
    objects.lose = None
    assert await store.versions() == [first]


async def test_losers_bodies_are_neither_listed_nor_kept_and_pending_ones_stay() -> None:
    objects = MemoryObjects()
    store = by_pointer(objects)
    refs = [await commit(store, version, b"x") for version in range(1, 5)]
    loser, pending = ref(3), ref(5)
    objects.objects[names.MANIFEST.body_key(loser)] = b"?"
    objects.objects[names.MANIFEST.body_key(pending)] = b"?"
    assert await store.versions() == refs
    assert await store.collect(refs) == 1
    assert names.MANIFEST.body_key(loser) not in objects.objects
    assert names.MANIFEST.body_key(pending) in objects.objects


async def test_versions_reach_back_through_bodies() -> None:
    store = by_pointer(MemoryObjects())
    refs = [await commit(store, version, b"x") for version in range(1, 4 * HISTORY)]
    assert await store.versions() == refs
    await store.delete(refs[5 : 5 + HISTORY // 2])
    assert await store.versions() == refs[:5] + refs[5 + HISTORY // 2 :]


@pytest.mark.parametrize("factory", [PutIfAbsentFactory, IfMatchFactory])
async def test_unreachable_reads_are_translated(factory: type[PutIfAbsentFactory | IfMatchFactory]) -> None:
    objects = Recording()
    objects.lose = ""
    store = factory(MetaRuntime(sleep=no_sleep)).manifest(objects, "memory://x")
    for work in (store.latest(), store.versions(), store.read(VersionRef(1, "0" * 32)), store.collect([])):
        with pytest.raises(MetaStoreUnavailableError) as caught:
            await work
        assert isinstance(caught.value.__cause__, LostError)
