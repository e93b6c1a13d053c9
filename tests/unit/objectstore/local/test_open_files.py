"""Reads of a local store from the operating system's memory: without a thread, and always of what stands there now."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.codec.header import HEADER_BYTES
from slate_async.objectstore.local import LocalStore, open_files
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectNotFoundError, Span
from slate_async.objectstore.retry import RetryingStore
from slate_async.objectstore.sync_read import SYNC_READ_BYTES, read_sync_of
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import end_threads, system_runtime

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux reads without waiting")
BODY = bytes(range(256)) * 1024


@pytest.fixture
def runtime() -> Runtime:
    return system_runtime()


@pytest.fixture
async def store(tmp_path: Path, runtime: Runtime) -> AsyncIterator[LocalStore]:
    opened = LocalStore(tmp_path, runtime)
    await opened.put("a/b", BODY)
    yield opened
    await opened.close()
    end_threads(runtime)


def open_objects(folder: Path) -> list[str]:
    """Names of the object files in ``folder`` that this process has open; removed ones end in ``(deleted)``."""
    gc.collect()
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if name.startswith(f"{folder}/") and ".obj" in name:
            found.append(name.removeprefix(f"{folder}/"))
    return sorted(found)


async def cached(store: LocalStore) -> bool:
    """Read a span of the object, and say whether the file system can read without waiting."""
    await store.get("a/b", Span(0, 10))
    return store.read_sync("a/b", 0, 10, len(BODY)) is not None


async def test_what_was_read_is_read_again_without_waiting(store: LocalStore) -> None:
    assert store.read_sync("a/b", 0, 10, len(BODY)) is None
    if not await cached(store):
        pytest.skip("this file system cannot read without waiting")
    assert store.read_sync("a/b", 300, 1000, len(BODY)) == BODY[300:1300]
    assert store.read_sync("a/b", 0, SYNC_READ_BYTES, len(BODY)) == BODY[:SYNC_READ_BYTES]


async def test_what_is_not_as_asked_for_takes_waiting(store: LocalStore) -> None:
    await cached(store)
    assert store.read_sync("a/b", 0, SYNC_READ_BYTES + 1, len(BODY)) is None
    assert store.read_sync("a", 0, 10, len(BODY)) is None
    assert store.read_sync("a/b", len(BODY) - 1, 10_000, len(BODY)) is None
    assert store.read_sync("a/b", 0, 10, len(BODY) - 1) is None


async def test_it_is_read_without_waiting_through_the_layers_above(store: LocalStore, runtime: Runtime) -> None:
    if not await cached(store):
        pytest.skip("this file system cannot read without waiting")
    retrying = RetryingStore(store, runtime.clock, runtime.rng)
    read_sync = read_sync_of(PrefixedStore(retrying, "a"))
    assert read_sync("b", 5, 10, len(BODY)) == BODY[5:15]
    assert read_sync("c", 5, 10, len(BODY)) is None
    assert (retrying.stats.requests, retrying.stats.bytes_in) == ({"get": 1}, 10)
    assert read_sync_of(PrefixedStore(MemoryStore(runtime.clock), "a"))("b", 5, 10, len(BODY)) is None


async def test_an_object_that_was_replaced_is_read_anew(store: LocalStore, tmp_path: Path, runtime: Runtime) -> None:
    await cached(store)
    other = LocalStore(tmp_path, runtime)
    await other.put("a/b", BODY[::-1])
    assert store.read_sync("a/b", 0, 10, len(BODY)) in (BODY[:10], None), "as it was read, as objects are written once"
    assert (await store.get("a/b", Span(0, 10))).data == BODY[::-1][:10]
    assert store.read_sync("a/b", 0, 10, len(BODY)) in (BODY[::-1][:10], None)
    await other.close()


async def test_an_object_that_was_removed_is_not_there(store: LocalStore, tmp_path: Path, runtime: Runtime) -> None:
    await cached(store)
    other = LocalStore(tmp_path, runtime)
    await other.delete(["a/b"])
    await other.close()
    with pytest.raises(ObjectNotFoundError):
        await store.get("a/b", Span(0, 10))


async def test_removed_objects_do_not_stay_open(store: LocalStore, tmp_path: Path, runtime: Runtime) -> None:
    """Neither those this store removes, nor, after a few of its operations, those that others remove."""
    keys = [f"c/{number}" for number in range(10)]
    for key in keys:
        await store.put(key, BODY)
        await store.get(key, Span(0, 10))
    if not open_objects(tmp_path):
        pytest.skip("this file system cannot read without waiting")
    await store.delete(keys[:5])
    assert open_objects(tmp_path) == [f"{key}.obj" for key in keys[5:]]
    other = LocalStore(tmp_path, runtime)
    await other.delete(keys[5:])
    await other.close()
    for _ in range(5):
        await store.head("a/b")
    assert open_objects(tmp_path) == []


async def test_a_removed_object_is_closed_by_a_thread(
    store: LocalStore, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk gets its blocks back then, for which the event loop must not wait."""
    if not await cached(store):
        pytest.skip("this file system cannot read without waiting")
    await store.put("c", BODY)
    other = LocalStore(tmp_path, runtime)
    await other.delete(["a/b"])
    await other.close()
    threads: list[int] = []
    close = open_files.OpenFile.__del__

    def noted(file: open_files.OpenFile) -> None:
        threads.append(threading.get_ident())
        close(file)

    monkeypatch.setattr(open_files.OpenFile, "__del__", noted)
    await store.head("c")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_few_files_stay_open_and_none_of_a_closed_store(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._open_files, "most", 3)
    for number in range(5):
        await store.put(f"c/{number}", BODY)
        await store.get(f"c/{number}", Span(0, 10))
    assert open_objects(tmp_path) == ["c/2.obj", "c/3.obj", "c/4.obj"]
    store.read_sync("c/2", 0, 10, len(BODY))
    await store.get("a/b", Span(0, 10))
    assert open_objects(tmp_path) == ["a/b.obj", "c/2.obj", "c/4.obj"]
    await store.close()
    assert open_objects(tmp_path) == []


async def test_they_are_closed_when_the_process_runs_out_of_files(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cached(store)

    def no_more(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_more)
        with pytest.raises(slate.UnavailableError, match="Too many open files"):
            await store.get("a/b", Span(0, 10))
    assert open_objects(tmp_path) == []
    assert (await store.get("a/b", Span(0, 10))).data == BODY[:10]


async def test_what_is_not_in_memory_is_read_by_a_thread(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await cached(store)
    answers: list[int | OSError] = [BlockingIOError(errno.EAGAIN, "would wait"), 3]

    def preadv(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        answer = answers.pop()
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "preadv", preadv)
    assert store.read_sync("a/b", 0, 10, len(BODY)) is None
    assert store.read_sync("a/b", 0, 10, len(BODY)) is None
    assert not answers
    assert (await store.get("a/b", Span(0, 10))).data == BODY[:10]


@pytest.mark.parametrize("code", open_files._CANNOT)
async def test_a_file_system_that_cannot_is_asked_once(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = 0

    def preadv(*arguments: object) -> int:
        nonlocal asked
        asked += 1
        raise OSError(code, "cannot")

    monkeypatch.setattr(os, "preadv", preadv)
    for _ in range(3):
        assert not await cached(store)
    assert asked == 1
    assert open_objects(tmp_path) == []


async def test_a_get_beyond_the_block_cache_takes_no_thread(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not await cached(store):
        pytest.skip("this file system cannot read without waiting")
    rng = random.Random(1)
    rows = {b"%05d" % number: rng.randbytes(100) for number in range(5000)}
    small_cache = slate.Settings(block_cache_bytes=40_000, auto_compaction=False, manifest_poll_interval_ms=10)
    async with slate.open(tmp_path / "db", settings=small_cache) as db:
        batch = slate.WriteBatch()
        for key, value in rows.items():
            batch.put(key, value)
        await db.write(batch)
        await db.flush(l0=True)
        assert await db.get(b"00000") == rows[b"00000"]

        get, preadv = LocalStore.get, os.preadv
        polled = asyncio.Event()

        async def no_sst(store: LocalStore, key: str, byte_range: ByteRange | None = None) -> GetResult:
            assert not key.startswith("sst/"), "a thread reads"
            polled.set()
            return await get(store, key, byte_range)

        def always_cached(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
            return preadv(descriptor, buffers, offset)  # whatever the operating system keeps in memory just now

        monkeypatch.setattr(LocalStore, "get", no_sst)
        monkeypatch.setattr(os, "preadv", always_cached)
        await polled.wait()  # polls of the manifest are reads by a thread, at any time
        keys = rng.sample(sorted(rows), 100)
        assert [await db.get(key) for key in keys] == [rows[key] for key in keys]
        assert await db.get_many([*keys, b"none"]) == [*(rows[key] for key in keys), None]
        for key in keys:
            assert [pair async for pair in db.scan(key, limit=1)] == [(key, rows[key])]
        monkeypatch.undo()


async def test_a_scan_that_meets_a_damaged_block_without_waiting_has_failed(tmp_path: Path) -> None:
    async with slate.open(tmp_path, settings=slate.Settings(block_cache_bytes=40_000, auto_compaction=False)) as db:
        for number in range(2000):
            await db.put(b"%05d" % number, b"%0100d" % number, await_durable=False)
        await db.flush(l0=True)
        assert await db.get(b"01999") is not None
        [path] = (tmp_path / "sst").iterdir()
        with path.open("r+b") as file:
            file.seek(HEADER_BYTES + 100)
            file.write(b"damage")
        scan = db.scan(limit=5)
        steps = aiter(scan)
        with pytest.raises(slate.CorruptionError, match="checksum"):
            await anext(steps)
        with pytest.raises(slate.InvalidError, match="interrupted"):
            await anext(steps)
        assert not db._writer.state.view.pinned


def test_stores_of_a_process_share_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has one limit of open files, and may have a thousand databases."""
    monkeypatch.setattr(open_files, "_limit", lambda share: 4 if share == open_files.SHARE_OF_ALL else 3)
    room = open_files.Room()
    one, two, three = (open_files.OpenFiles(room) for _ in range(3))

    def keep(store: open_files.OpenFiles, name: str) -> None:
        path = tmp_path / f"{name}.obj"
        path.write_bytes(b"x")
        store.keep(name, open_files.OpenFile(os.open(path, os.O_RDONLY), path))

    for number in range(5):
        keep(one, f"a{number}")
        keep(two, f"b{number}")
        keep(three, f"c{number}")
    assert [len(one), len(two), len(three)] == [2, 1, 1]
    assert open_objects(tmp_path) == ["a3.obj", "a4.obj", "b4.obj", "c4.obj"]
    one.forget(["a4"])
    keep(three, "c5")
    assert len(three) == 2
    del one, two
    gc.collect()
    for number in range(5):
        keep(three, f"d{number}")
    assert len(three) == 3
