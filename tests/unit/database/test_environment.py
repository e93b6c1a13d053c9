"""Several databases of one process: what they share, and that they do not meet."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import slate_async as slate
from metastores.memory import MemoryFactory
from slate_async.objectstore import clients
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from tests.engine import (
    ManualClock,
    StoreInHand,
    contents,
    memory_store,
    open_db,
    runtime,
    settle,
    until,
)

QUICK = slate.Settings(flush_interval_ms=5)


async def test_databases_share_clients_cache_and_polling(tmp_path: Path) -> None:
    async with slate.Environment(block_cache_bytes=1 << 20) as env:
        async with env.open(tmp_path / "one", settings=QUICK) as one, env.open(tmp_path / "two", settings=QUICK) as two:
            assert one._context.cache is two._context.cache
            assert one._context.runtime is two._context.runtime is env.runtime
            polling = [task for task in asyncio.all_tasks() if task.get_name() == "slate/poll scheduler"]
            assert len(polling) == 1
            assert repr(env) == "<Environment open, handles=2>"
            await one.put(b"k", b"one")
            await two.put(b"k", b"two")
            await one.flush(l0=True)
            await two.flush(l0=True)
            assert await one.get(b"k") == b"one"
            assert await two.get(b"k") == b"two"
            assert await contents(one) == {b"k": b"one"}
        async with env.open(tmp_path / "one", create=False) as again:
            assert await again.get(b"k") == b"one"


async def test_the_cache_is_bounded_over_all_of_them(tmp_path: Path) -> None:
    limit = 64 << 10
    async with slate.Environment(block_cache_bytes=limit, runtime=runtime()) as env:
        small = slate.Settings(block_bytes=1024, l0_sst_bytes=32 << 10, flush_interval_ms=5)
        databases = [await env.open(f"memory://{tmp_path.name}-{n}", settings=small) for n in range(3)]
        for db in databases:
            for number in range(300):
                await db.put(b"%04d" % number, bytes(500), await_durable=False)
            await db.flush(l0=True)
        for _ in range(2):
            for db in databases:
                for number in range(300):
                    assert await db.get(b"%04d" % number) == bytes(500)
                assert db._context.cache.stats().bytes <= limit
        assert databases[0].metrics()["cache.evictions"] > 0
        for db in databases:
            await db.close()


async def test_closing_it_closes_its_databases(tmp_path: Path) -> None:
    before = threading.enumerate()
    env = slate.Environment(threads=2)
    db = await env.open(tmp_path / "db")
    assert [thread for thread in threading.enumerate() if thread not in before]
    handle = await db.put(b"a", b"1", await_durable=False)
    await env.close()
    assert handle.is_durable
    assert db.status().state == "closed"
    await env.close()
    with pytest.raises(slate.InvalidError, match="closed"):
        await env.open(tmp_path / "db")
    await until(lambda: not [thread for thread in threading.enumerate() if thread not in before], "its threads to end")
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("slate")]


async def test_another_event_loop_is_refused_at_opening(tmp_path: Path) -> None:
    """Its databases would be polled by nobody, and show stale values for ever after a takeover."""
    async with slate.Environment() as env:
        async with env.open(tmp_path / "one"):

            async def elsewhere() -> None:
                with pytest.raises(slate.InvalidError, match="another event loop"):
                    await env.open(tmp_path / "two")
                with pytest.raises(slate.InvalidError, match="another event loop"):
                    await env.close()

            await asyncio.to_thread(asyncio.run, elsewhere())


def test_another_event_loop_is_refused_after_the_first_one_has_ended(tmp_path: Path) -> None:
    env = slate.Environment()

    async def use() -> None:
        async with env.open(tmp_path / "one"):
            pass

    asyncio.run(use())
    with pytest.raises(slate.InvalidError, match="another event loop"):
        asyncio.run(use())
    asyncio.run(env.close())


async def test_the_end_of_the_shared_timer_closes_the_databases_with_its_cause(tmp_path: Path) -> None:
    async with slate.Environment(runtime=runtime()) as env:
        db = await env.open(f"memory://{tmp_path.name}")
        reader = await env.open_reader(f"memory://{tmp_path.name}")
        [timer] = [task for task in asyncio.all_tasks() if task.get_name() == "slate/poll scheduler"]
        timer.cancel()
        for handle in (db, reader):
            with pytest.raises(
                slate.ClosedError, match=r"event loop ended, or all tasks of that were cancelled, .* close it before"
            ):
                await handle.wait_closed()


async def test_its_databases_are_closed_side_by_side(tmp_path: Path) -> None:
    """One whose store does not answer is given up at the deadline; the others have closed long before."""
    dead = StoreInHand(memory_store())
    env = slate.Environment(runtime=runtime(), close_deadline_ms=5_000)
    hanging = await env.open(dead, name="memory://dead", settings=QUICK)
    others = [await env.open(f"memory://{tmp_path.name}/{n}", settings=QUICK) for n in range(40)]
    dead.hold = True
    lost = await hanging.put(b"a", b"1", await_durable=False)
    kept = [await db.put(b"a", b"1", await_durable=False) for db in others]
    closing = asyncio.ensure_future(env.close())
    await until(lambda: all(db.status().state == "closed" for db in others), "the others to close")
    assert hanging.status().state == "closing"
    assert all(handle.is_durable for handle in kept)
    with pytest.raises(slate.ClosedError) as raised:
        await closing
    assert raised.value.outcome == "unknown"
    assert hanging.status().state == "closed"
    assert not lost.is_durable


async def test_no_client_is_made_for_what_has_closed(tmp_path: Path) -> None:
    env = slate.Environment(runtime=runtime())
    db = await env.open(f"memory://{tmp_path.name}/a")
    other = await env.open(f"memory://{tmp_path.name}/b")
    await db.close()
    with pytest.raises(slate.ClosedError):
        db._context.parents.folder("memory://elsewhere/of-a-closed-one")
    assert len(env._clients._stores._users) == 1
    other._context.parents.folder("memory://elsewhere/of-an-open-one")
    assert len(env._clients._stores._users) == 2
    await env.close()
    with pytest.raises(slate.ClosedError):
        env._clients._stores.take("late", memory_store)  # type: ignore[arg-type, return-value]
    assert env._clients._stores._users == {}


async def test_no_thread_is_started_after_closing(tmp_path: Path) -> None:
    env = slate.Environment(threads=1)
    async with env.open(tmp_path / "db"):
        pass
    await env.close()
    before = threading.active_count()
    for offload in (env.runtime.offload, env.runtime.blocking):
        with pytest.raises(slate.ClosedError):
            await offload.run(lambda: None)
    assert threading.active_count() <= before


LEFT_OPEN = """
import asyncio, atexit, sys, threading, time
import slate_async as slate

async def main(ready, ended):
    db = await slate.open(sys.argv[1], settings=slate.Settings(flush_interval_ms=5, manifest_poll_interval_ms=5))
    ready.set()
    rows = 0
    while not ended.is_set():
        await db.put(b"%d" % rows, b"v", await_durable=rows % 2 == 0)
        await asyncio.sleep(0.005)
        rows += 1

ready, ended, main_done = threading.Event(), threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: asyncio.run(main(ready, ended)), daemon=sys.argv[2] == "daemon")
thread.start()
ready.wait()
atexit.register(time.sleep, 0.3)
threading.Thread(target=lambda: (threading.main_thread().join(), time.sleep(0.3), ended.set())).start()
"""


@pytest.mark.parametrize("thread", ["daemon", "other"])
def test_a_database_left_open_in_a_threads_loop_ends_the_interpreter_quietly(tmp_path: Path, thread: str) -> None:
    """The interpreter's thread pools end before its threads do."""
    command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path / "db"), thread]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "cannot schedule new futures" not in done.stderr


async def test_whatever_closing_it_raises_does_not_replace_the_error_of_the_body(tmp_path: Path) -> None:
    async def broken() -> None:
        raise OSError("a client that cannot be closed")

    async def body(error: Exception | None) -> None:
        async with slate.Environment(runtime=runtime()) as env:
            (await env.open(tmp_path / "db"))._on_closed(broken)
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        await body(ZeroDivisionError())
    with pytest.raises(OSError, match="cannot be closed"):
        await body(None)


@pytest.mark.parametrize("own_threads", [False, True])
async def test_it_is_not_closed_under_an_opening(tmp_path: Path, own_threads: bool) -> None:
    env = slate.Environment(runtime=None if own_threads else runtime())
    opening = asyncio.ensure_future(_open(env, tmp_path / "db"))
    await asyncio.sleep(0)
    with pytest.raises(slate.InvalidError, match="being opened"):
        await env.close()
    await opening
    await env.close()


async def _open(env: slate.Environment, path: Path) -> slate.Db:
    return await env.open(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": 5},
        {"path": None},
        {"path": b"/tmp/x"},
        {"settings": {"flush_bytes": 1}},
        {"metastore": 5},
        {"properties": "x"},
        {"properties": {"a": 1}},
        {"create": "no"},
    ],
)
def test_arguments_of_the_wrong_kind_are_named(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"path": "memory://never", **wrong}
    with pytest.raises(slate.InvalidError, match=next(iter(wrong))):
        slate.open(arguments.pop("path"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"threads": "a"}, {"block_cache_bytes": -1}, {"close_deadline_ms": 0}]
)
def test_arguments_of_an_environment_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(slate.InvalidError, match=next(iter(wrong))):
        slate.Environment(**wrong)  # type: ignore[arg-type]


async def test_an_opening_is_used_once_and_says_what_it_is(tmp_path: Path) -> None:
    opening = slate.open(tmp_path / "db")
    with pytest.raises(AttributeError, match="not open yet"):
        opening.put  # type: ignore[attr-defined]  # noqa: B018
    async with opening as db:
        await db.put(b"a", b"1")
    with pytest.raises(slate.InvalidError, match="used already"):
        await opening
    with pytest.warns(RuntimeWarning, match="never opened"):
        slate.open(tmp_path / "db").__del__()


async def test_a_database_dropped_without_closing_warns(tmp_path: Path) -> None:
    db = await slate.open(tmp_path / "db")
    with pytest.warns(ResourceWarning, match="never closed"):
        db.__del__()
    await db.close()


async def test_a_store_object_needs_a_name_where_metadata_is_elsewhere() -> None:
    with pytest.raises(slate.InvalidError, match="name="):
        await slate.open(memory_store(), metastore=MemoryFactory())


async def test_a_missing_extra_is_reported_at_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.codec.compression._lz4", None)
    with pytest.raises(slate.InvalidError, match="lz4"):
        await slate.open("memory://no-lz4", settings=slate.Settings(compression="lz4"))


async def test_waiting_from_another_loop_is_refused(tmp_path: Path) -> None:
    async with slate.open(tmp_path / "db") as db:
        handle = await db.put(b"a", b"1", await_durable=False)

        async def wait() -> None:
            for waiting in (db.wait_closed(), db.close()):
                with pytest.raises(slate.InvalidError, match="event loop"):
                    await waiting
            with contextlib.suppress(slate.InvalidError):  # durable already: nothing to wait for
                await handle.durable()

        await asyncio.to_thread(asyncio.run, wait())


async def test_a_failed_opening_does_not_keep_it_open(tmp_path: Path) -> None:
    async with slate.Environment(runtime=runtime()) as env:
        for _ in range(3):
            with pytest.raises(slate.InvalidError):
                await env.open(tmp_path / "nothing", create=False)
        db = await env.open(f"memory://{tmp_path.name}")
        await db.close()


async def test_its_end_never_replaces_the_error_of_its_body(tmp_path: Path) -> None:
    db: slate.Db | None = None
    with pytest.raises(KeyError, match="mine"):  # noqa: PT012
        async with slate.Environment(runtime=runtime()) as env:
            db = await env.open(f"memory://{tmp_path.name}")
            raise KeyError("mine")
    assert db is not None
    await db.close()


async def test_closing_one_database_leaves_the_others(tmp_path: Path) -> None:
    async with slate.Environment(runtime=runtime()) as env:
        databases = [await env.open(f"memory://{tmp_path.name}/{n}", settings=QUICK) for n in range(4)]
        for number, db in enumerate(databases):
            await db.put(b"k", b"%d" % number)
        await databases[1].close()
        await databases[3].close()
        assert await databases[0].get(b"k") == b"0"
        await databases[2].put(b"more", b"2")
        await databases[0].close()
        await databases[2].close()
        async with env.open(f"memory://{tmp_path.name}/1") as again:
            assert await again.get(b"k") == b"1"


async def test_a_database_fenced_by_its_neighbour_in_one_environment(tmp_path: Path) -> None:
    async with slate.Environment(runtime=runtime()) as env:
        url = f"memory://{tmp_path.name}"
        older = await env.open(url, settings=slate.Settings(manifest_poll_interval_ms=10))
        async with env.open(url) as newer:
            with pytest.raises(slate.FencedError):
                await older.wait_closed()
            await newer.put(b"a", b"1")
        await older.close()


async def test_a_metastore_of_a_name_is_closed_after_its_last_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Closing(MemoryFactory):
        async def close(self) -> None:
            closed.append("closed")

    monkeypatch.setattr(clients, "parse_metastore", lambda spec, runtime: Closing())
    async with slate.Environment() as env:
        async with env.open(tmp_path / "one", metastore="any"):
            async with env.open(tmp_path / "two", metastore="any"):
                pass
            assert closed == []
        assert closed == ["closed"]


async def test_databases_nest(tmp_path: Path) -> None:
    async with slate.Environment(runtime=runtime()) as env:
        urls = [f"memory://{tmp_path.name}", f"memory://{tmp_path.name}/a", f"memory://{tmp_path.name}/a/b"]
        for order in (urls, list(reversed(urls))):
            for url in order:
                async with env.open(url, settings=QUICK) as db:
                    await db.put(url.encode(), b"mine")
        for url in urls:
            async with env.open(url, create=False) as db:
                assert await contents(db) == {url.encode(): b"mine"}


async def test_nesting_works_from_the_inside_out(tmp_path: Path) -> None:
    async with slate.open(tmp_path / "outer" / "inner") as inner:
        await inner.put(b"a", b"inner")
        async with slate.open(tmp_path / "outer") as outer:
            await outer.put(b"a", b"outer")
            assert await contents(inner) == {b"a": b"inner"}
            assert await contents(outer) == {b"a": b"outer"}


async def test_a_store_object_stays_its_owners() -> None:
    store = StoreInHand(memory_store())
    async with open_db(store) as db:
        await db.put(b"a", b"1")
    assert not store.closed
    await store.put("still", b"usable")


async def test_threads_are_a_positive_number() -> None:
    with pytest.raises(slate.InvalidError, match="threads"):
        slate.Environment(threads=0)


async def test_polls_of_closed_databases_stop(tmp_path: Path) -> None:
    store = StoreInHand(memory_store())
    async with slate.Environment(runtime=runtime(ManualClock())) as env:
        settings = slate.Settings(manifest_poll_interval_ms=2)
        async with env.open(store, name="memory://one", settings=settings) as db:
            before = _looks(db)
            await until(lambda: _looks(db) > before + 3, "some polls")
        looks = _looks(db)
        await asyncio.sleep(0.02)
        await settle()
        assert _looks(db) == looks


def _looks(db: slate.Db) -> float:
    """How often the manifest was looked at."""
    return db.metrics()["manifest.loads"] + db.metrics()["manifest.probes"]


@pytest.mark.parametrize("metastore", [None, "if-match"])
async def test_processes_seeded_alike_do_not_take_each_others_commits_for_theirs(metastore: str | None) -> None:
    """A runtime's randomness may be seeded; object names say which process won a conditional write."""
    for turns in range(12):
        objects = MemoryObjects()
        openings = [
            asyncio.ensure_future(_open_later(MemoryStore(ManualClock(), objects), metastore, after))
            for after in (0, turns)
        ]
        results = await asyncio.gather(*openings, return_exceptions=True)
        opened = [result for result in results if isinstance(result, slate.Db)]
        assert all(isinstance(result, slate.Db | slate.FencedError) for result in results), results
        assert len({db.status().database_id for db in opened}) == 1
        await asyncio.gather(*(db.close() for db in opened))


async def _open_later(store: MemoryStore, metastore: str | None, turns: int) -> slate.Db:
    await settle(turns)
    return await open_db(store, metastore=metastore)


def test_without_a_running_asyncio_loop_opening_is_refused() -> None:
    coroutine = slate.open("memory://no-loop").__await__()
    with pytest.raises(slate.InvalidError, match="trio is not supported"):
        coroutine.send(None)
