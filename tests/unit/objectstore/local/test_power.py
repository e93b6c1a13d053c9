"""The local store on a disk that forgets what was not synced: what was acknowledged stays there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import slate_async as slate
from metastores.chained_register import ChainedRegister
from metastores.if_match import ObjectRegister
from metastores.names import MANIFEST, WRITER
from metastores.protocol import Committed
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.testing.metastore_suite import ref
from slate_async.errors import UnavailableError
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import (
    CREATE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    Span,
)
from slate_async.runtime.system import system_runtime
from slate_async.settings import LogProtocol
from tests.unit.objectstore.local.power import ForgetfulDisk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    root, scratch = tmp_path / "disk", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    return ForgetfulDisk(root, scratch, monkeypatch)


def store_on(folder: Path) -> LocalStore:
    return LocalStore(folder, system_runtime(1))


async def left(disk: ForgetfulDisk, key: str) -> bytes | None:
    """The object's bytes after a power cut, ``None`` if it is lost."""
    store = store_on(disk.power_cut())
    try:
        return (await store.get(key)).data
    except ObjectNotFoundError:
        return None
    finally:
        await store.close()


async def test_the_disk_forgets_what_was_not_synced(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    disk.fail(disk.root / "log")
    with pytest.raises(UnavailableError) as raised:
        await store.put("log/2", b"two")
    assert raised.value.outcome == "unknown"
    assert await left(disk, "log/2") is None
    await store.close()


async def test_what_was_put_is_kept(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    assert await left(disk, "log/1") == b"one"
    await store.close()


async def test_a_put_that_meets_an_object_makes_sure_of_it(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    disk.fail(disk.root / "log")
    with pytest.raises(UnavailableError):
        await store.put("log/2", b"two", mode=CREATE)
    with pytest.raises(ObjectExistsError):
        await store.put("log/2", b"two", mode=CREATE)
    assert await left(disk, "log/2") == b"two"
    await store.close()


async def test_a_put_of_another_process_that_meets_an_object_does_so_too(disk: ForgetfulDisk) -> None:
    one, other = store_on(disk.root), store_on(disk.root)
    disk.fail(disk.root / "log")
    with pytest.raises(UnavailableError):
        await one.put("log/2", b"two", mode=CREATE)
    with pytest.raises(ObjectExistsError):
        await other.put("log/2", b"two", mode=CREATE)
    assert await left(disk, "log/2") == b"two"
    await asyncio.gather(one.close(), other.close())


async def test_a_put_that_meets_another_version_makes_sure_of_it(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    first = await store.put("writer/current", b"one")
    disk.fail(disk.root / "writer")
    with pytest.raises(UnavailableError):
        await store.put("writer/current", b"two", mode=Match(first))
    with pytest.raises(ObjectChangedError):
        await store.put("writer/current", b"two", mode=Match(first))
    assert await left(disk, "writer/current") == b"two"
    await store.close()


@pytest.mark.parametrize("read", ["get", "span", "head", "list"])
async def test_a_read_after_a_put_that_failed_makes_sure_of_what_it_found(disk: ForgetfulDisk, read: str) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    disk.fail(disk.root / "log")
    with pytest.raises(UnavailableError):
        await store.put("log/2", b"two", mode=CREATE)
    if read == "get":
        await store.get("log/2")
    elif read == "span":
        await store.get("log/2", Span(0, 2))
    elif read == "head":
        await store.head("log/2")
    else:
        assert [info.key async for info in store.list("log/")] == ["log/1", "log/2"]
    assert await left(disk, "log/2") == b"two"
    await store.close()


async def test_a_read_while_the_put_still_syncs_does_so_too(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    synced = disk.hold(disk.root / "log")
    putting = asyncio.ensure_future(store.put("log/2", b"two", mode=CREATE))
    await asyncio.to_thread(disk.waiting.wait, 60)
    putting.cancel()
    assert (await store.get("log/2")).data == b"two"
    assert await left(disk, "log/2") == b"two"
    synced.set()
    await store.close()


async def test_a_read_whose_sync_fails_says_so(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    disk.fail(disk.root / "log", times=2)
    with pytest.raises(UnavailableError):
        await store.put("log/2", b"two", mode=CREATE)
    with pytest.raises(UnavailableError):
        await store.get("log/2")
    assert (await store.get("log/2")).data == b"two"
    await store.close()


async def test_a_folder_that_another_process_made_is_synced_by_the_first_put_into_it(disk: ForgetfulDisk) -> None:
    folder = disk.root / "database"
    folder.mkdir()  # and its maker has yet to sync it
    store = store_on(folder)
    await store.put("log/1", b"one")
    assert await left(disk, "database/log/1") == b"one"
    await store.close()


async def test_a_deletion_that_is_repeated_is_synced(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    await store.put("log/1", b"one")
    disk.fail(disk.root / "log")
    with pytest.raises(UnavailableError):
        await store.delete(["log/1"])
    await store.delete(["log/1"])
    assert await left(disk, "log/1") is None
    await store.close()


async def test_a_commit_that_is_resolved_by_reading_is_durable(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    metastore = PutIfAbsentMetaStore(MetaObjects(store))
    assert isinstance(await metastore.commit(ref(1), b"one"), Committed)
    disk.fail(disk.root / "manifest")
    assert isinstance(await metastore.commit(ref(2), b"two"), Committed)
    assert await left(disk, MANIFEST.version_key(2)) is not None
    await store.close()


async def test_a_write_of_the_register_that_is_resolved_by_reading_is_durable(disk: ForgetfulDisk) -> None:
    store = store_on(disk.root)
    register: ChainedRegister = ObjectRegister(MetaObjects(store), WRITER)
    first = await register.compare_and_set(None, b"one")
    assert isinstance(first, Committed)
    disk.fail(disk.root / "writer")
    second = await register.compare_and_set(first.value, b"two")
    assert isinstance(second, Committed)
    kept = await left(disk, WRITER)
    assert kept is not None
    assert b"two" in kept
    await store.close()


@pytest.mark.parametrize("log_protocol", ["contiguous", "epoch_prefixed"])
async def test_an_acknowledged_write_outlives_the_power_cut(disk: ForgetfulDisk, log_protocol: LogProtocol) -> None:
    settings = slate.Settings(log_protocol=log_protocol, flush_interval_ms=1, auto_compaction=False)
    db = await slate.open(f"file://{disk.root}", settings=settings)
    await db.put(b"before", b"1")
    disk.fail(disk.root / "log")
    await db.put(b"row", b"2")
    async with slate.open_reader(f"file://{disk.power_cut()}") as reader:
        assert await reader.get(b"row") == b"2"
    await db.close()
