"""Permissions of what a local store makes: its owner's alone, or what ``file_mode`` says."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.errors import InvalidError
from slate_async.settings import Settings


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes_in(root: Path) -> tuple[set[int], set[int]]:
    """The permissions of all folders and of all files, temporary ones and locks too."""
    found = [(path, stat.S_IMODE(path.lstat().st_mode)) for path in [root, *root.rglob("*")] if not path.is_symlink()]
    return {mode for path, mode in found if path.is_dir()}, {mode for path, mode in found if path.is_file()}


async def modes_of(root: Path, settings: Settings) -> tuple[set[int], set[int]]:
    """The permissions in a database that is written, flushed and compacted, and opened again."""
    for _ in range(2):
        async with slate.open(root, settings=settings) as db:
            await db.put(b"k", bytes(1000))
            await db.flush(l0=True)
            await db.compact(full=True)
            found = await asyncio.to_thread(modes_in, root)
    return found


@pytest.mark.parametrize(
    ("file_mode", "folders", "files"),
    [(None, 0o700, 0o600), ("0660", 0o770, 0o660), ("640", 0o750, 0o640), ("umask", 0o755, 0o644)],
)
async def test_files_and_folders_have_the_permissions_that_are_asked_for(
    tmp_path: Path, file_mode: str | None, folders: int, files: int
) -> None:
    settings = Settings() if file_mode is None else Settings(file_mode=file_mode)
    assert await modes_of(tmp_path / "new" / "db", settings) == ({folders}, {files})
    assert modes_in(tmp_path / "new")[0] == {folders}


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    place = tmp_path / "db"
    place.mkdir(mode=0o755)

    async def use() -> None:
        async with slate.open(place) as db:
            await db.put(b"k", b"v")

    asyncio.run(use())
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert stat.S_IMODE((place / "log").stat().st_mode) == 0o700


@pytest.mark.parametrize("bad", ["0400", "0611", "777", "rw-rw----", "", 0o640])
def test_other_modes_are_refused(bad: object) -> None:
    with pytest.raises(InvalidError, match='file_mode: this is a string, "umask" or octal digits such as "0640"'):
        Settings(file_mode=bad)  # type: ignore[arg-type]
