"""`slate_async.sync`: the engine without ``await``, from any thread."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.runtime.loop_thread import LoopThread

ROWS = {b"k%05d" % number: b"v%d" % number for number in range(5000)}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[slate.sync.Db]:
    """An empty database."""
    with slate.sync.open(tmp_path / "db") as opened:
        yield opened


def filled(db: slate.sync.Db) -> slate.sync.Db:
    """With `ROWS`."""
    batch = slate.sync.WriteBatch()
    for key, value in ROWS.items():
        batch.put(key, value)
    db.write(batch)
    return db


def run(code: str, *arguments: object, status: int = 0) -> str:
    """Standard output of a process that runs ``code``; it must say nothing else."""
    command = [sys.executable, "-W", "error", "-c", "import slate_async as slate, sys, os, threading\n" + code]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout


def test_reads_and_writes(db: slate.sync.Db) -> None:
    assert db.put(b"a", b"1").is_durable
    handle = db.put(b"b", b"2", await_durable=False)
    handle.durable()
    assert handle.is_durable
    db.delete(b"a")
    assert (db.get(b"a"), db.get(b"b"), db.get_many([b"b", b"c"])) == (None, b"2", [b"2", None])
    row = db.get_row(b"b")
    assert row is not None
    assert (row.seq, row.create_time) == (handle.seq, handle.create_time)
    with db.snapshot() as snapshot:
        db.put(b"b", b"3")
        assert (snapshot.get(b"b"), db.get(b"b"), snapshot.seq) == (b"2", b"3", handle.seq + 1)
    with pytest.raises(slate.ClosedError):
        snapshot.get(b"b")
    assert db.as_of(seq=1).get(b"a") == b"1"
    db.flush(l0=True)
    db.compact(full=True)
    db.confirm()
    assert db.status().sorted_runs == 1
    assert db.metrics()["db.writes"] == 4
    assert db.row_statistics().live == 1
    assert len(db.splits()) == 1
    assert "sync Db" in repr(db)


def test_errors_are_those_of_the_engine(db: slate.sync.Db, tmp_path: Path) -> None:
    with pytest.raises(slate.InvalidError):
        db.put(b"", b"")
    with pytest.raises(slate.NotFoundError):
        slate.sync.open(tmp_path / "nothing", create=False)
    db.close()
    db.close()
    with pytest.raises(slate.ClosedError):
        db.get(b"a")
    assert db.status().state == "closed"


def test_a_scan_asks_the_loop_once_a_block(db: slate.sync.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(db)
    asked = list[object]()
    original = LoopThread._wait

    def counted(self: LoopThread, call: Any) -> Any:
        asked.append(call)
        return original(self, call)

    monkeypatch.setattr(LoopThread, "_wait", counted)
    assert dict(db.scan()) == ROWS
    assert len(asked) < 20
    asked.clear()
    assert sum(batch.num_rows for batch in db.scan().batches()) == len(ROWS)
    assert len(asked) < 10
    rows = [row.key for row in db.scan(b"k00010", reverse=True, limit=3).rows()]
    assert rows == [b"k04999", b"k04998", b"k04997"]


def test_a_scan_is_left_closed_and_iterated_once(db: slate.sync.Db) -> None:
    filled(db)
    with db.scan() as scan:
        rows = iter(scan)
        assert next(rows) == (b"k00000", b"v0")
        with pytest.raises(slate.InvalidError, match="iterated once"):
            next(iter(scan))
    with pytest.raises(slate.InvalidError, match="the scan is closed"):
        next(rows)


def test_many_threads_share_a_database(db: slate.sync.Db) -> None:
    def work(worker: int) -> int:
        for number in range(40):
            key = b"%03d/%03d" % (worker, number)
            db.put(key, b"x" * number, await_durable=number % 4 == 0)
            assert db.get(key) == b"x" * number
            if number % 10 == 0:
                assert [found for found, _ in db.scan(prefix=b"%03d/" % worker)][-1] == key
        return len(dict(db.scan(prefix=b"%03d/" % worker)))

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(work, range(24))) == [40] * 24
    db.flush()
    assert sum(1 for _ in db.scan()) == 24 * 40


def test_many_threads_open_and_close(tmp_path: Path) -> None:
    with slate.sync.Environment(threads=1) as env:

        def work(worker: int) -> bytes | None:
            with env.open(tmp_path / str(worker)) as own:
                own.put(b"k", b"%d" % worker)
            with env.open_reader(tmp_path / str(worker)) as reader:
                return reader.get(b"k")

        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(work, range(12))) == [b"%d" % worker for worker in range(12)]
    assert len([thread for thread in threading.enumerate() if thread.name == "slate-sync"]) == 1


def test_a_reader_follows(db: slate.sync.Db, tmp_path: Path) -> None:
    with slate.sync.open_reader(tmp_path / "db") as reader:
        handle = db.put(b"a", b"1")
        reader.wait_for(handle.seq)
        assert (reader.get(b"a"), reader.snapshot().get(b"a")) == (b"1", b"1")
        assert reader.time_to_seq(reader.seq_to_time(1)) == 1
        reader.refresh()
        assert reader.status().following


def test_a_feed_counts_what_was_handed_out(db: slate.sync.Db) -> None:
    filled(db)
    with db.changes(from_seq=0, subscription="index") as feed:
        for change in feed:
            if change.seq == 7:
                break
        assert feed.seq == 7
        feed.acknowledge(7, now=True)
        assert feed.acknowledged == 7
    with db.changes(follow=False, subscription="index") as feed:
        assert [change.seq for change in feed] == list(range(8, len(ROWS) + 1))
    with db.changes(from_seq=0, follow=False) as feed:
        assert sum(batch.num_rows for batch in feed.batches()) == len(ROWS)


def test_a_feed_that_waits_is_closed_by_another_thread(db: slate.sync.Db) -> None:
    db.put(b"a", b"1")
    feed = db.changes(from_seq=0)
    changes = iter(feed)
    assert next(changes).key == b"a"
    closer = threading.Thread(target=feed.close)
    closer.start()
    with pytest.raises(slate.ClosedError):
        next(changes)
    closer.join()


def test_a_watch_gives_what_is_written(db: slate.sync.Db) -> None:
    with db.watch(prefix=b"a") as watch:
        db.put(b"a1", b"1")
        db.put(b"b1", b"2")
        db.delete(b"a1")
        assert [(change.op, change.seq) for change in (next(watch), next(watch))] == [("put", 1), ("delete", 3)]
        assert watch.last_seq == 3
        db.put(b"a2", b"3")
        assert [change.key for change in watch.next_changes()] == [b"a2"]


def test_a_watch_that_waits_is_closed_by_another_thread(db: slate.sync.Db) -> None:
    watch = db.watch()
    closer = threading.Thread(target=watch.close)
    closer.start()
    with pytest.raises(slate.ClosedError):
        next(watch)
    closer.join()


def test_administration(db: slate.sync.Db, tmp_path: Path) -> None:
    filled(db)
    with slate.sync.open_admin(tmp_path / "db") as admin:
        made = admin.checkpoints.create(name="nightly")
        assert [checkpoint.id for checkpoint in admin.checkpoints.list() if checkpoint.name == "nightly"] == [made.id]
        seen = list[object]()
        assert not admin.verify(on_progress=seen.append).findings
        assert seen
        admin.clone(tmp_path / "clone")
        with slate.sync.open_reader(tmp_path / "clone") as reader:
            assert dict(reader.scan()) == ROWS
    with slate.sync.open_gc(tmp_path / "db", periodic=False) as collector:
        assert collector.collect(dry_run=True) is not None
    with slate.sync.open_compactor(tmp_path / "db", auto_compaction=False) as compactor:
        compactor.compact()
        assert compactor.status().state == "open"


def arrow(*names: str) -> pa.Table:
    """Rows for an ingest."""
    return pa.table({"key": [name.encode() for name in names], "value": [b"v"] * len(names)})


def test_an_ingest_takes_tables_and_what_a_generator_reads_here(db: slate.sync.Db, tmp_path: Path) -> None:
    filled(db)
    with slate.sync.open_ingest(tmp_path / "other", create=True) as job:
        job.write(batch.select(["key", "value"]) for batch in db.scan().batches(1000))
        job.write(arrow("z1", "z2"))
        with slate.sync.open_ingest_task(tmp_path / "other", job.spec) as task:
            elsewhere = task.write(arrow("z3").to_batches()[0])
        assert job.commit(elsewhere).done
    with slate.sync.open_reader(tmp_path / "other") as reader:
        assert dict(reader.scan()) == {**ROWS, b"z1": b"v", b"z2": b"v", b"z3": b"v"}


def test_an_ingest_that_fails_tells_and_takes_no_more(tmp_path: Path) -> None:
    taken = list[int]()

    def unsorted() -> Iterator[pa.Table]:
        for number in range(100):
            taken.append(number)
            yield arrow(f"{100 - number:03}")

    def broken() -> Iterator[pa.Table]:
        yield arrow("a")
        raise KeyError("mine")

    with slate.sync.open_ingest(tmp_path / "db", create=True) as job:
        with pytest.raises(slate.InvalidError, match="sort rows by key"):
            job.write(unsorted())
        assert len(taken) < 10
        with pytest.raises(KeyError, match="mine"):
            job.write(broken())


def test_a_dropped_handle_is_closed(tmp_path: Path) -> None:
    opened = slate.sync.open(tmp_path / "db")
    handle, loop = opened._handle, opened._loop
    opened.put(b"a", b"1", await_durable=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del opened
        gc.collect()
    assert [
        "was never closed" in str(warning.message) for warning in caught if warning.category is ResourceWarning
    ] == [True]
    loop.run(handle.wait_closed)
    with slate.sync.open_reader(tmp_path / "db") as reader:
        assert reader.get(b"a") == b"1"


LEFT_OPEN = """
def use():
    global db, scan, feed
    db = slate.sync.open(sys.argv[1])
    db.put(b"a", b"1", await_durable=False)
    scan = iter(db.scan())
    feed = iter(db.changes(from_seq=0))
    next(scan), next(feed)
"""


@pytest.mark.parametrize(
    "code",
    [
        LEFT_OPEN + "use()",
        LEFT_OPEN + "env = slate.sync.Environment(); other = env.open('memory://scratch')\n"
        "thread = threading.Thread(target=use); thread.start(); thread.join()",
    ],
    ids=["script", "thread and environment"],
)
def test_what_is_left_open_is_closed_at_the_end(code: str, tmp_path: Path) -> None:
    run(code, tmp_path / "db")
    with slate.sync.open_reader(tmp_path / "db") as reader:
        assert reader.get(b"a") == b"1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_opens_its_own(tmp_path: Path) -> None:
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
db = slate.sync.open(sys.argv[1])
db.put(b"a", b"1")
child = os.fork()
if not child:
    try:
        db.get(b"a")
    except slate.InvalidError as error:
        print(error, flush=True)
    with slate.sync.open_reader(sys.argv[1]) as reader:
        print(reader.get(b"a"), flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), db.get(b"a"))
"""
    said = run(code, tmp_path / "db").splitlines()
    assert said == ["this was opened in another process (fork); open it in this one", "b'1'", "7 b'1'"]


def test_a_call_is_refused_in_the_thread_of_the_loop(db: slate.sync.Db) -> None:
    refused = list[str]()

    def progress(event: object) -> None:
        for use in (lambda: db.get(b"a"), lambda: slate.sync.open("memory://scratch")):
            try:
                use()
            except slate.InvalidError as error:
                refused.append(str(error))

    filled(db)
    db.compact(full=True, progress=progress)
    assert refused
    assert all("a callback runs on the event loop's thread" in said for said in refused)


def test_it_works_where_a_loop_runs_already() -> None:
    """As in a notebook."""
    code = """
import asyncio
async def cell():
    with slate.sync.open("memory://scratch") as db:
        db.put(b"a", b"1")
        print(db.get(b"a"))
asyncio.run(cell())
"""
    assert run(code) == "b'1'\n"


def test_a_standby_takes_over_when_the_writer_closes(tmp_path: Path) -> None:
    settings = slate.Settings(manifest_poll_interval_ms=10)
    first = slate.sync.open(tmp_path / "db", settings=settings)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slate.sync.open, tmp_path / "db", settings=settings, standby=True)
        first.put(b"a", b"1")
        with slate.sync.open_reader(tmp_path / "db") as reader:
            assert reader.writer_life().epoch == 1
        first.close()
        with waiting.result() as second:
            assert (second.get(b"a"), second.status().epoch) == (b"1", 2)


def test_transactions(db: slate.sync.Db) -> None:
    filled(db)
    with db.transaction() as tx:
        assert tx.is_open
        assert tx.get(b"k00000") == b"v0"
        tx.put(b"a", b"1")
        tx.delete(b"k00001")
        assert tx.get_many([b"a", b"k00001"]) == [b"1", None]
        row = tx.get_row(b"k00002")
        assert row is not None
        assert row.seq == 3
        with tx.scan(limit=200) as scan:
            assert [key for key, _ in scan][:3] == [b"a", b"k00000", b"k00002"]
        assert len(list(tx.scan(prefix=b"k", reverse=True))) == len(ROWS) - 1
        assert repr(tx) == f"<sync Transaction seq={tx.seq}>"
    assert (db.get(b"a"), db.get(b"k00001")) == (b"1", None)

    def fails() -> None:
        with db.transaction() as tx:
            tx.put(b"a", b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    first, second = db.transaction(), db.transaction(isolation="snapshot", await_durable=False)
    for tx in (first, second):
        tx.get(b"a")
        tx.put(b"a", b"2")
    assert first.commit().is_durable
    with pytest.raises(slate.ConflictError) as caught:
        second.commit()
    assert (caught.value.key, caught.value.reason) == (b"a", "written")
    given_up = db.transaction()
    given_up.rollback()
    assert not given_up.is_open


def test_transact_runs_the_function_in_the_callers_thread_until_it_commits(db: slate.sync.Db) -> None:
    threads = set[int]()

    def increment(tx: slate.sync.Transaction) -> int:
        threads.add(threading.get_ident())
        value = int(tx.get(b"n") or b"0") + 1
        tx.put(b"n", b"%d" % value)
        db.update(b"other", lambda value: value or b"0", await_durable=False)  # other calls go on meanwhile
        return value

    with ThreadPoolExecutor(4) as pool:
        made = sorted(pool.map(lambda _: db.transact(increment), range(40)))
    assert made == list(range(1, 41))
    assert db.get(b"n") == b"40"
    assert threading.get_ident() not in threads
    db.transact(increment)
    assert threading.get_ident() in threads

    def fails(tx: slate.sync.Transaction) -> None:
        tx.put(b"n", b"never")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.transact(fails)

    def interrupted(tx: slate.sync.Transaction) -> None:
        tx.put(b"n", b"never")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.transact(interrupted)
    assert db.get(b"n") == b"41"
    assert db.metrics()["transactions.open"] == 0


def test_conditional_writes_and_updates(db: slate.sync.Db) -> None:
    handle = db.put(b"k", b"1", if_absent=True)
    with pytest.raises(slate.ConflictError) as caught:
        db.put(b"k", b"2", if_absent=True)
    assert caught.value.reason == "present"
    db.put(b"k", b"2", if_seq=handle.seq)
    made = db.update(b"k", lambda value: (value or b"") + b"3")
    assert (made.value, db.get(b"k"), made.is_durable) == (b"23", b"23", True)
    with pytest.raises(slate.ConflictError):
        db.delete(b"k", if_value=b"2")
    db.delete(b"k", if_value=b"23")
    assert db.get(b"k") is None
