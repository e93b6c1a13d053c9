"""The local store: its bytes on disk, its order, what crashes leave, and compare-and-set between processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slate_async.errors import ClosedError, ConfigError, CorruptionError
from slate_async.objectstore.local import LocalStore, claims
from slate_async.objectstore.local import file as object_file
from slate_async.objectstore.local.claims import Claims, Verdict
from slate_async.objectstore.local.file import WrittenFile, with_trailer
from slate_async.objectstore.local.layout import path_of, walk
from slate_async.objectstore.protocol import CREATE, Match, ObjectChangedError, ObjectNotFoundError, Span
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import system_runtime
from tests.engine import until

ROOT = Path(__file__).resolve().parents[4]

INCREMENTER = """
import asyncio, sys
from slate_async.objectstore.local import LocalStore, store as local_store
from slate_async.objectstore.protocol import Match, ObjectChangedError
from slate_async.runtime.system import system_runtime

local_store.CLAIM_PATIENCE_SECONDS = float(sys.argv[3])

async def main(folder, times):
    store = LocalStore(folder, system_runtime(1))
    done = 0
    print("ready", flush=True)
    while done != times:
        seen = await store.get("counter")
        try:
            await store.put("counter", b"%d" % (int(seen.data) + 1), mode=Match(seen.info.etag))
        except ObjectChangedError:
            continue
        done += 1
        print(done, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def runtime() -> Runtime:
    return system_runtime()


@pytest.fixture
async def store(tmp_path: Path, runtime: Runtime) -> AsyncIterator[LocalStore]:
    opened = LocalStore(tmp_path, runtime)
    yield opened
    await opened.close()


def _incrementer(folder: Path, times: int, patience: float = 0.5) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", INCREMENTER, str(folder), str(times), str(patience)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    )


async def test_data_is_plain_at_the_start_of_its_file(store: LocalStore, tmp_path: Path) -> None:
    etag = await store.put("log/1.sst", b"the data", metadata={"epoch": "7"})
    assert (tmp_path / "log" / "1.sst.obj").read_bytes() == (
        b'the data{"epoch":"7"}' + bytes.fromhex(etag) + (8).to_bytes(8, "little") + (13).to_bytes(4, "little")
    ) + (tmp_path / "log" / "1.sst.obj").read_bytes()[-12:-8] + b"SLATEOB1"


async def test_equal_bytes_get_another_etag(store: LocalStore) -> None:
    first = await store.put("key", b"same")
    assert await store.put("key", b"same", mode=Match(first)) != first
    with pytest.raises(ObjectChangedError):
        await store.put("key", b"same", mode=Match(first))


async def test_every_flip_in_the_trailer_is_noticed(store: LocalStore, tmp_path: Path) -> None:
    await store.put("key", b"data", metadata={"a": "b"})
    path = tmp_path / "key.obj"
    whole = path.read_bytes()
    for position in range(4, len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptionError, match="key"):
            await store.get("key")
        with pytest.raises(CorruptionError):
            await store.head("key")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptionError):
            await store.get("key")
    path.write_bytes(whole)
    assert (await store.get("key")).data == b"data"
    path.write_bytes(whole[:-5])
    await store.delete(["key"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("key")


async def test_a_range_does_not_read_the_file(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("large", bytes(1_000_000))
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(object_file.os, "pread", counted)
    await store.get("large", Span(500_000, 1000))
    assert sum(read) < 10_000


async def test_nothing_but_objects_is_left(store: LocalStore, tmp_path: Path) -> None:
    etag = await store.put("a", b"1", mode=CREATE)
    etag = await store.put("a", b"2", mode=Match(etag))
    await store.put("a", b"3")
    with pytest.raises(ObjectChangedError):
        await store.put("a", b"4", mode=Match(etag))
    await store.put("b", b"5")
    await store.delete(["b"])
    await store.close()
    assert _files(tmp_path) == ["a.obj"]


async def test_reading_changes_nothing(tmp_path: Path, runtime: Runtime) -> None:
    reader = LocalStore(tmp_path / "absent", runtime)
    assert [info async for info in reader.list()] == []
    with pytest.raises(ObjectNotFoundError):
        await reader.get("key")
    await reader.close()
    assert not (tmp_path / "absent").exists()
    with pytest.raises(ClosedError):
        await reader.get("key")


async def test_names_are_given_only_to_synced_files_and_synced_before_the_answer(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("warm", b"")
    events: list[str] = []
    fsync, link, rename = os.fsync, os.link, Path.rename

    def shown(path: Path) -> str:
        return "temporary" if path.parent.name == "%tmp" else path.relative_to(tmp_path).as_posix()

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        events.append(f"sync {shown(Path(os.readlink(f'/proc/self/fd/{descriptor}')))}")

    def linked(source: Path, target: Path) -> None:
        link(source, target)
        events.append(f"link {shown(target)}")

    def renamed(self: Path, target: Path) -> Path:
        events.append(f"rename {shown(target)}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Path, "rename", renamed)
    etag = await store.put("a/b/c", b"", mode=CREATE)
    assert events == ["sync temporary", "sync .", "sync a", "link a/b/c.obj", "sync a/b"]
    events.clear()
    await store.put("a/b/c", b"", mode=Match(etag))
    assert events == ["sync temporary", "rename a/b/c.obj", "sync a/b"]
    events.clear()
    await store.delete(["a/b/c"])
    assert events == ["rename temporary", "sync a/b"]


async def test_foreign_files_are_left_alone(store: LocalStore, tmp_path: Path) -> None:
    """Those with the suffix of objects are listed by their names: a damaged object must not be missing in a listing."""
    await store.put("a/b", b"1")
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "notes.txt").write_text("mine")
        (folder / "folder" / "deep.obj").mkdir(parents=True)
        (folder / "no-file.obj").mkdir()
        os.mkfifo(folder / "pipe.obj")
        (folder / "stray.obj").write_bytes(b"mine")
    listed = {info.key: (info.size, bool(info.etag)) async for info in store.list()}
    assert listed == {"a/b": (1, True), "a/stray": (4, False), "stray": (4, False)}
    with pytest.raises(CorruptionError, match="a/stray"):
        await store.get("a/stray")
    await store.delete(["stray"])
    assert (tmp_path / "notes.txt").read_text() == "mine"


async def test_links_to_folders_are_refused(store: LocalStore, tmp_path: Path) -> None:
    """What lies in them would be found by its key, and be missing in listings."""
    await store.put("a/b", b"1")
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    assert (await store.get("a/b")).data == b"1"
    with pytest.raises(ConfigError, match="a is a link to a folder, which would not be listed"):
        [info async for info in store.list()]


def test_the_walk_is_in_byte_order(tmp_path: Path) -> None:
    draw = random.Random(5)
    alphabet = "ab!-./0%~"
    keys: dict[str, None] = {}
    while len(keys) < 300:
        key = "".join(draw.choice(alphabet) for _ in range(draw.randint(1, 8)))
        if all(segment not in ("", ".", "..") for segment in key.split("/")):
            keys[key] = None
    for key in keys:
        path = path_of(tmp_path, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    ordered = sorted(keys)
    assert [key for key, _ in walk(tmp_path, "", "")] == ordered
    for _ in range(200):
        prefix, start = draw.choice(ordered)[: draw.randint(0, 4)], draw.choice(["", *ordered])[: draw.randint(0, 9)]
        expected = [key for key in ordered if key.startswith(prefix) and key > start]
        assert [key for key, _ in walk(tmp_path, prefix, start)] == expected


async def test_temporary_files_of_dead_owners_go_and_those_of_the_living_stay(tmp_path: Path, runtime: Runtime) -> None:
    living = LocalStore(tmp_path, runtime)
    await living.put("a", b"1")
    (living_lock,) = [name for name in _files(tmp_path) if name.endswith(".lock")]
    its_file = tmp_path / living_lock.replace(".lock", ".77")
    its_file.touch()
    dead = tmp_path / "%tmp" / "dead"
    for suffix in (".lock", ".1", ".2"):
        dead.with_suffix(suffix).touch()
    newcomer = LocalStore(tmp_path, runtime)
    await newcomer.put("b", b"2")
    names = _files(tmp_path)
    assert not [name for name in names if "dead" in name]
    assert its_file.exists()
    assert [info.key async for info in newcomer.list()] == ["a", "b"]
    await living.close()
    await newcomer.close()
    assert _files(tmp_path) == ["a.obj", "b.obj"]


@pytest.mark.parametrize("patience", [0.5, -1.0])
async def test_counting_in_processes_loses_nothing(store: LocalStore, patience: float) -> None:
    """With patience below 0 every process breaks every claim it meets: slower, but as exact."""
    await store.put("counter", b"0")
    workers = [_incrementer(store._root, 40, patience) for _ in range(3)]
    for worker in workers:
        assert worker.stdout is not None
        printed = await asyncio.to_thread(worker.stdout.read)
        assert worker.wait() == 0
        assert printed.split()[-1] == "40"
        worker.stdout.close()
    assert (await store.get("counter")).data == b"120"


async def test_killed_writers_neither_block_nor_tear(store: LocalStore, tmp_path: Path) -> None:
    """Killed at random moments, many of them between claim and rename, while another process counts on."""
    await store.put("counter", b"0")
    acknowledged = 0
    draw = random.Random(11)
    for _ in range(6):
        worker = _incrementer(tmp_path, -1)
        assert worker.stdout is not None
        await asyncio.to_thread(worker.stdout.readline)
        await asyncio.sleep(draw.uniform(0.01, 0.08))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        acknowledged += len(worker.stdout.read().split())
        worker.stdout.close()
        seen = await store.get("counter")
        assert acknowledged <= int(seen.data) <= acknowledged + 6
        await store.put("counter", b"%d" % (int(seen.data)), mode=Match(seen.info.etag))
    newcomer = LocalStore(tmp_path, system_runtime())
    await newcomer.put("other", b"")
    await newcomer.close()
    await store.close()
    assert _files(tmp_path) == ["counter.obj", "other.obj"]


async def test_a_stopped_writer_neither_blocks_nor_overwrites(store: LocalStore, tmp_path: Path) -> None:
    await store.put("counter", b"0")
    worker = _incrementer(tmp_path, -1)
    assert worker.stdout is not None
    try:
        await asyncio.to_thread(worker.stdout.readline)
        for pause in (0.01, 0.02, 0.03, 0.05):
            await asyncio.sleep(pause)
            worker.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(os.waitid, os.P_PID, worker.pid, os.WSTOPPED)
            seen = await store.get("counter")
            etag = await store.put("counter", seen.data, mode=Match(seen.info.etag))
            for _ in range(5):
                etag = await store.put("counter", seen.data, mode=Match(etag))
            worker.send_signal(signal.SIGCONT)
    finally:
        worker.kill()
        worker.wait()
    acknowledged = len(worker.stdout.read().split())
    worker.stdout.close()
    assert acknowledged <= int((await store.get("counter")).data) <= acknowledged + 1


def _write(path: Path, data: bytes, token: int) -> str:
    """A whole object file; its etag."""
    written = WrittenFile(path)
    written.append(with_trailer([data], {}, f"{token:032x}"))
    written.sync()
    return f"{token:032x}"


def _prepared(root: Path, name: str, token: int) -> Path:
    path = root / "%tmp" / name
    path.parent.mkdir(exist_ok=True)
    _write(path, name.encode(), token)
    return path


class _Stop(Exception):
    """Ends a step of the protocol where a process is imagined to sleep."""


def _claim_and_sleep(root: Path, path: Path, etag: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim, compare, and stop short of the rename."""

    def stop(*_: object) -> None:
        raise _Stop

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        with contextlib.suppress(_Stop):
            Claims(root).replace_file(path, etag, temporary, break_others=False)


def test_a_claim_is_waited_for_then_broken_and_its_owner_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.obj"
    start = _write(path, b"start", 1)
    sleeper, second = _prepared(tmp_path, "sleeper.1", 2), _prepared(tmp_path, "second.1", 3)
    _claim_and_sleep(tmp_path, path, start, sleeper, monkeypatch)
    protocol = Claims(tmp_path)
    assert protocol.replace_file(path, start, second, break_others=False) is Verdict.BUSY
    assert protocol.replace_file(path, start, second, break_others=True) is Verdict.DONE
    with pytest.raises(FileNotFoundError):
        sleeper.rename(path)  # what the sleeper does when it wakes
    assert claims.current_etag(path) == f"{3:032x}"
    assert list((tmp_path / "%cas").iterdir()) == []
    late = _prepared(tmp_path, "late.1", 4)
    assert protocol.replace_file(path, start, late, break_others=True) is Verdict.CHANGED


def test_removal_breaks_claims_that_had_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.obj"
    start = _write(path, b"start", 1)
    sleeper = _prepared(tmp_path, "sleeper.1", 2)
    _claim_and_sleep(tmp_path, path, start, sleeper, monkeypatch)
    assert Claims(tmp_path).remove_file(path, lambda: tmp_path / "%tmp" / "scratch.1")
    assert not sleeper.exists()
    assert not path.exists()


def test_a_rename_between_removal_and_its_second_look_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.obj"
    start = _write(path, b"start", 1)
    sleeper = _prepared(tmp_path, "sleeper.1", 2)
    _claim_and_sleep(tmp_path, path, start, sleeper, monkeypatch)
    rename = Path.rename
    woken: list[Path] = []

    def wake_sleeper_after(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        if self == path and not woken:
            woken.append(rename(sleeper, path))
        return moved

    monkeypatch.setattr(Path, "rename", wake_sleeper_after)
    numbers = iter(range(1, 100))
    assert Claims(tmp_path).remove_file(path, lambda: tmp_path / "%tmp" / f"scratch.{next(numbers)}")
    assert woken
    assert not path.exists()


async def test_a_create_after_a_remover_that_died_is_safe_from_older_claims(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.obj"
    start = await store.put("key", b"start")
    sleeper = _prepared(tmp_path, "sleeper.1", 2)
    _claim_and_sleep(tmp_path, path, start, sleeper, monkeypatch)
    path.rename(tmp_path / "%tmp" / "dead.1")  # all that a remover did before it was killed
    await store.put("key", b"created", mode=CREATE)
    with pytest.raises(FileNotFoundError):
        sleeper.rename(path)  # what the sleeper does when it wakes
    assert (await store.get("key")).data == b"created"
    assert list((tmp_path / "%cas").iterdir()) == []


def test_settled_claims_of_crashed_writers_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.obj"
    start = _write(path, b"start", 1)
    sleeper = _prepared(tmp_path, "sleeper.1", 2)
    _claim_and_sleep(tmp_path, path, start, sleeper, monkeypatch)
    protocol = Claims(tmp_path)
    protocol.remove_settled()
    assert len(list((tmp_path / "%cas").iterdir())) == 1
    sleeper.rename(path)
    protocol.remove_settled()
    assert list((tmp_path / "%cas").iterdir()) == []


async def test_a_cancelled_put_leaves_no_temporary_file_behind_for_long(store: LocalStore, tmp_path: Path) -> None:
    await store.put("a", b"")
    for number in range(20):
        task = asyncio.ensure_future(store.put(f"c/{number}", bytes(100_000)))
        await asyncio.sleep(number * 0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.put("b", b"")
    await store.close()
    assert [name for name in _files(tmp_path) if name.startswith("%tmp")] == []


async def test_a_beginning_that_was_cancelled_is_begun_again(tmp_path: Path, runtime: Runtime) -> None:
    """All puts of a store share it, so its end must not be theirs."""
    store = LocalStore(tmp_path / "db", runtime)
    putting = asyncio.ensure_future(store.put("a", b"1"))
    await until(lambda: store._opening is not None, "the beginning")
    assert store._opening is not None
    store._opening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await putting
    await store.put("b", b"2")
    assert (await store.get("b")).data == b"2"
    await store.close()
