"""Errors of the file system: what waiting cannot mend is told at once, in words that name what is in the way."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

import slate_async
from slate_async.errors import InvalidError, SlateError, UnavailableError
from slate_async.objectstore.local import LocalStore, folder
from slate_async.objectstore.local.failures import translated
from slate_async.objectstore.local.file import WrittenFile
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


async def test_a_folder_removed_while_open(tmp_path: Path, runtime: Runtime) -> None:
    root = tmp_path / "db"
    store, _ = open_store(root, runtime)
    await store.put("a/b", b"1")
    shutil.rmtree(root)
    for _ in range(2):
        with pytest.raises(InvalidError, match="db was removed while it was open") as failure:
            await store.put("a/b", b"2")
    assert failure.value.outcome == "not_applied"
    with pytest.raises(ObjectNotFoundError):
        await store.get("a/b")
    await store.delete(["a/b"])
    await store.close()
    assert not root.exists()


async def test_temporary_files_removed_while_open(tmp_path: Path, runtime: Runtime) -> None:
    store, _ = open_store(tmp_path, runtime)
    await store.put("a", b"1")
    shutil.rmtree(tmp_path / "%tmp")
    with pytest.raises(InvalidError, match=r"files of the store at .* were removed while it was open"):
        await store.put("a", b"2")
    assert (await store.get("a")).data == b"1"
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


async def test_a_database_whose_folder_is_removed_says_so_and_closes(tmp_path: Path) -> None:
    root = tmp_path / "db"
    db = await slate_async.open(root)
    await db.put(b"a", b"1")
    shutil.rmtree(root)
    with pytest.raises(SlateError, match="removed while it was open") as failure:
        await db.put(b"b", b"2")
    assert not isinstance(failure.value, UnavailableError)
    await db.close()


async def test_a_database_whose_folder_is_removed_closes_with_an_error_of_ours(tmp_path: Path) -> None:
    root = tmp_path / "db"
    db = await slate_async.open(root)
    await db.put(b"a", b"1", await_durable=False)
    shutil.rmtree(root)
    with pytest.raises(SlateError, match="removed while it was open"):
        await db.close()
