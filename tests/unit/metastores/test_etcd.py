"""Metadata in an etcd: keys, notes, bodies beyond the limit, erasing."""

from __future__ import annotations

from typing import Any

import pytest

from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.etcd import PAGE, EtcdFactory
from metastores.etcd_client.protocol import CompactedError
from metastores.etcd_client.records import Put, RangeAnswer, TxnAnswer
from metastores.names import MANIFEST
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import Committed, Conflict, Unknown, VersionRef
from metastores.testing import MemoryObjects
from metastores.testing.memory_etcd import MemoryEtcd
from metastores.testing.metastore_suite import commit

NAME = "s3://bucket/db"
BELOW = b"slate/s3%3A%2F%2Fbucket%2Fdb/"


def ref(version: int) -> VersionRef:
    """A version of a token of its own."""
    return VersionRef(version, f"{version:032x}")


def over(etcd: Any, **arguments: Any) -> EtcdFactory:
    """A factory of a client of its own."""
    return EtcdFactory((), client=etcd, **arguments)


async def test_keys_lie_below_the_prefix_and_the_databases_name() -> None:
    etcd, objects = MemoryEtcd(), MemoryObjects()
    store, register = over(etcd).manifest(objects, NAME), over(etcd).register(objects, NAME)
    assert isinstance(await store.commit(ref(1), b"one"), Committed)
    assert isinstance(await register.compare_and_set(None, b"writer"), Committed)
    keys = [entry.key for entry in (await etcd.read(b"", b"\x00")).entries]
    assert keys == [b"slate/id", BELOW + b"body/%020d.%032x" % (1, 1), BELOW + b"head", BELOW + b"writer"]


async def test_large_bodies_are_objects_and_go_before_their_keys() -> None:
    etcd, objects = MemoryEtcd(), MemoryObjects()
    store = over(etcd, inline_limit_bytes=200).manifest(objects, NAME)
    for version in (1, 2, 3):
        await commit(store, version, bytes(1_000 * version))
    assert sorted(key for key in objects.objects if key != MANIFEST.elsewhere)[0].startswith("manifest/")
    assert len(objects.objects) == 4
    latest = await store.latest()
    assert latest is not None
    assert latest.payload == bytes(3_000)
    refs = await store.versions()
    await store.delete(refs[:2])
    assert len(objects.objects) == 2
    assert await store.versions() == refs[2:]


async def test_a_database_is_made_in_one_etcd_only() -> None:
    """The note in its folder says which, and another one refuses to be taken for it."""
    objects, first, second = MemoryObjects(), MemoryEtcd(), MemoryEtcd()
    await commit(over(first).manifest(objects, NAME), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match=r"says that it is in etcd://[0-9a-f]{32}/slate"):
        await over(second).manifest(objects, NAME).latest()
    with pytest.raises(MetaStoreInvalidError, match="says that it is in"):
        await over(second).manifest(objects, NAME).commit(ref(1), b"y")
    with pytest.raises(MetaStoreInvalidError, match="says that it is in"):
        await over(first, prefix="other").manifest(objects, NAME).latest()
    assert await over(first).manifest(objects, NAME).latest() is not None


async def test_erasing_ends_a_commit_that_is_on_its_way() -> None:
    etcd, objects = MemoryEtcd(), MemoryObjects()
    factory = over(etcd)
    store = factory.manifest(objects, NAME)
    await commit(store, 1, b"x")
    await commit(factory.manifest(MemoryObjects(), "s3://bucket/db2"), 1, b"other")
    await factory.erase(NAME)
    await factory.erase(NAME)
    assert isinstance(await store.commit(ref(2), b"y"), Conflict)
    left = {entry.key.rpartition(b"/")[0] for entry in (await etcd.read(b"", b"\x00")).entries}
    assert left == {BELOW + b"body", b"slate", b"slate/s3%3A%2F%2Fbucket%2Fdb2", b"slate/s3%3A%2F%2Fbucket%2Fdb2/body"}


async def test_an_answer_that_is_lost_is_found_out() -> None:
    class Deaf(MemoryEtcd):
        """Transactions run, and their answers are lost; ``dead``: nothing is read any more."""

        dead = False
        runs = True

        async def txn(self, conditions: Any, then: Any, otherwise: Any = ()) -> TxnAnswer:
            if self.runs:
                await super().txn(conditions, then, otherwise)
            raise OutcomeUnknownError("no answer")

        async def read(self, *arguments: Any, **options: Any) -> RangeAnswer:
            if self.dead:
                raise MetaStoreUnavailableError("gone")
            return await super().read(*arguments, **options)

    etcd = Deaf()
    register = over(etcd).register(MemoryObjects(), NAME)
    outcome = await register.compare_and_set(None, b"x")
    assert isinstance(outcome, Committed)
    etcd.runs = False
    assert isinstance(await register.compare_and_set(outcome.value, b"y"), Unknown)
    etcd.runs, etcd.dead = True, True
    assert isinstance(await register.compare_and_set(outcome.value, b"z"), Unknown)


async def test_bytes_that_are_not_ours_are_corrupt() -> None:
    etcd, objects = MemoryEtcd(), MemoryObjects()
    store = over(etcd).manifest(objects, NAME)
    await commit(store, 1, b"x")
    (body,) = (await etcd.read(BELOW + b"body/", BELOW + b"body0")).entries
    for value in (b"\x02" + body.value[1:], body.value[:-1], b"", b"\x01"):
        await etcd.write([Put(body.key, value)])
        with pytest.raises(MetaStoreCorruptionError):
            await over(etcd).manifest(objects, NAME).latest()
    await etcd.write([Put(b"slate/id", b"short")])
    with pytest.raises(MetaStoreCorruptionError, match="slate/id"):
        await over(etcd).manifest(MemoryObjects(), "s3://b/new").commit(ref(1), b"x")


async def test_listing_goes_on_over_pages_and_compactions() -> None:
    class Compacting(MemoryEtcd):
        """Compacts behind the first page, so many times."""

        times = 2
        pages = 0

        async def read(self, *arguments: Any, **options: Any) -> RangeAnswer:
            self.pages += options.get("limit", 0) == PAGE
            answer = await super().read(*arguments, **options)
            if answer.more and self.times:
                self.times -= 1
                await super().write([Put(b"other", b"")])
                await self.compact(self.revision)
            return answer

    etcd = Compacting()
    store = over(etcd).manifest(MemoryObjects(), NAME)
    for version in range(1, 6):
        await commit(store, version, b"x")
    for number in range(PAGE):
        await etcd.write([Put(BELOW + b"body/%020d.%032x" % (7, number), b"\x01")])
    assert await store.collect([], dry_run=True) == 4
    assert etcd.pages == 6
    etcd.times = 100
    with pytest.raises(MetaStoreUnavailableError, match="compacted during each"):
        await store.collect([], dry_run=True)


@pytest.mark.parametrize("prefix", ["", "a//b", "a b", "/a", "x" * 201, "a/"])
def test_prefixes_that_are_none(prefix: str) -> None:
    with pytest.raises(MetaStoreInvalidError, match="prefix"):
        EtcdFactory(["h"], prefix)


async def test_memory_reads_and_watches_as_of_older_revisions() -> None:
    etcd = MemoryEtcd()
    await etcd.write([Put(b"a", b"1"), Put(b"b", b"1")])
    middle = await etcd.write([Put(b"a", b"2")])
    lease = await etcd.grant(5)
    await etcd.write([Put(b"c", b"3", lease)])
    etcd.end_lease(lease)
    assert [entry.value for entry in (await etcd.read(b"", b"\x00", revision=middle)).entries] == [b"2", b"1"]
    assert [entry.value for entry in (await etcd.read(b"", b"\x00", revision=2)).entries] == [b"1", b"1"]
    async for answer in etcd.watch(b"", 3):
        assert [(event.key, event.entry is None) for event in answer.events] == [
            (b"a", False),
            (b"c", False),
            (b"c", True),
        ]
        break
    await etcd.compact(middle + 1)
    with pytest.raises(CompactedError):
        await etcd.read(b"a", revision=2)
    with pytest.raises(CompactedError):
        await anext(etcd.watch(b"", 2))
