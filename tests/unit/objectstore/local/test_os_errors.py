"""Errors of the file system: what waiting cannot mend is raised at once, and the message names the obstacle."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

import slate_async
from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.local import LocalStore, folder
from slate_async.objectstore.local.file import WrittenFile
from slate_async.objectstore.local.os_errors import translated
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.objectstore.url import open_store
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import system_runtime


@pytest.fixture
def runtime() -> Runtime:
    return system_runtime()


@pytest.mark.parametrize(
    ("make", "path", "says"),
    [
        ("file", "file", r"/file is a file, not a folder"),
        ("file", "file/deeper/db", r"/file is a file, not a folder"),
        ("link", "link/db", r"/link is a link that leads nowhere"),
        ("pipe", "pipe", r"/pipe is not a folder"),
        ("", "x" * 300, r"File name too long: .*; choose a shorter path"),
    ],
)
async def test_paths_that_can_be_no_folder(tmp_path: Path, runtime: Runtime, make: str, path: str, says: str) -> None:
    if make == "file":
        (tmp_path / "file").write_text("mine")
    elif make == "link":
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    elif make == "pipe":
        os.mkfifo(tmp_path / "pipe")
    store, _ = open_store(tmp_path / path, runtime)
    with pytest.raises(InvalidError, match=says) as failure:
        await store.put("key", b"")
    assert failure.value.outcome == "not_applied"
    assert store.stats.retries == 0
    await store.close()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/null/db", "/proc/foo/db"])
async def test_paths_of_the_system(runtime: Runtime, path: str) -> None:
    store, _ = open_store(path, runtime)
    with pytest.raises(InvalidError, match=r"/dev/null is not a folder|the folder /proc/foo/db cannot be made"):
        await store.put("key", b"")
    await store.close()


async def test_reading_where_a_file_is(tmp_path: Path, runtime: Runtime) -> None:
    """Also without making anything: no listing of nothing, no missing object."""
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "db"):
        store = LocalStore(path, runtime)
        with pytest.raises(InvalidError, match="file is a file, not a folder"):
            await store.get("manifest/1")
        with pytest.raises(InvalidError, match="file is a file, not a folder"):
            [info async for info in store.list()]
        await store.close()
    missing = LocalStore(tmp_path / "missing", runtime)
    assert [info async for info in missing.list()] == []
    with pytest.raises(ObjectNotFoundError):
        await missing.get("manifest/1")


@pytest.mark.parametrize("create", [True, False])
async def test_opening_a_file_says_so(tmp_path: Path, create: bool) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidError, match="file is a file, not a folder"):
        await slate_async.open(tmp_path / "file", create=create)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_no_path_at_all(runtime: Runtime, path: str) -> None:
    with pytest.raises(InvalidError, match="must not be empty, nor hold a NUL"):
        LocalStore(path, runtime)


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_what_waiting_may_mend_is_unavailable(tmp_path: Path, code: int) -> None:
    error = translated(OSError(code, os.strerror(code), "a file"), tmp_path, "unknown")
    temporary = code in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EBUSY, errno.ESTALE)
    permanent = code in (errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EINVAL, errno.ENODEV)
    assert isinstance(error, UnavailableError) or not temporary
    assert isinstance(error, InvalidError) or not permanent
    assert error.outcome == "unknown"


async def test_a_full_disk_is_waited_for(tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = LocalStore(tmp_path, runtime)
    monkeypatch.setattr(WrittenFile, "append", full)
    with pytest.raises(UnavailableError, match="No space left on device") as failure:
        await store.put("key", b"")
    assert failure.value.outcome == "not_applied"
    await store.close()


@pytest.mark.parametrize("empty", [False, True])
async def test_a_folder_moved_away_while_open_is_waited_for_and_not_recreated(
    tmp_path: Path, runtime: Runtime, empty: bool
) -> None:
    root, away = tmp_path / "db", tmp_path / "away"
    writer, reader = LocalStore(root, runtime), LocalStore(root, runtime)
    await writer.put("a/b", b"1")
    assert (await reader.get("a/b")).data == b"1"
    root.rename(away)
    if empty:
        root.mkdir()
    for _ in range(2):
        for store in (writer, reader):
            with pytest.raises(UnavailableError, match=f"{root} ") as failure:
                await store.put("a/b", b"2")
            assert failure.value.outcome == "not_applied"
            for key in ("a/b", "c"):
                with pytest.raises(UnavailableError, match=f"{root} "):
                    await store.get(key)
            with pytest.raises(UnavailableError, match=f"{root} "):
                [info async for info in store.list("a/")]
    assert not empty or not list(root.iterdir())
    assert root.exists() == empty
    if empty:
        root.rmdir()
    away.rename(root)
    for store in (writer, reader):
        assert (await store.get("a/b")).data == b"1"
        with pytest.raises(ObjectNotFoundError):
            await store.get("c")
        await store.put("a/b", b"1")
        await store.close()


async def test_a_folder_that_stays_away_does_not_keep_a_store_from_closing(tmp_path: Path, runtime: Runtime) -> None:
    store = LocalStore(tmp_path / "db", runtime)
    await store.put("a", b"1")
    shutil.rmtree(tmp_path / "db")
    await store.close()
    assert not (tmp_path / "db").exists()


async def test_a_place_for_temporary_files_is_taken_again_once_objects_are_found(
    tmp_path: Path, runtime: Runtime
) -> None:
    """A folder that is there, and not empty, may still be another one: it is written to only after its objects were
    seen."""
    store = LocalStore(tmp_path, runtime)
    await store.put("a", b"1")
    shutil.rmtree(tmp_path / "%tmp")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"files of the store at .* were removed while it was open"):
            await store.put("a", b"2")
    assert not (tmp_path / "%tmp").exists()
    assert (await store.get("a")).data == b"1"
    await store.put("a", b"2")
    await store.close()


async def test_closing_raises_only_errors_of_ours(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = LocalStore(tmp_path, runtime)
    await store.put("a", b"1")
    with monkeypatch.context() as patched:
        patched.setattr(folder.Folder, "close", fail)
        with pytest.raises(UnavailableError, match="Input/output error"):
            await store.close()
    await store.close()
