"""Temporary files: every new object is written under one before it gets its name.

``%tmp/{owner}.{n}`` belongs to one open store, the owner, which holds a lock on ``%tmp/{owner}.lock`` for as long
as it lives. The kernel lets go of the lock when the process ends, however it ends, and not when it is merely
stopped; so a file whose owner's lock can be taken is nobody's and is removed. Nothing rests on that for safety: an
operation whose temporary file was removed fails and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from itertools import count
from pathlib import Path

from slate_async.errors import ClosedError
from slate_async.objectstore.local.file import WrittenFile
from slate_async.objectstore.local.layout import TEMPORARY_FOLDER
from slate_async.objectstore.local.modes import OWNER_ALONE, Modes

LOCK_SUFFIX = ".lock"
OWNER_ATTEMPTS = 16


class Temporaries:
    """The temporary files of one open store. Construction takes the owner's lock and clears up after dead owners."""

    def __init__(self, root: Path, owner: str, modes: Modes = OWNER_ALONE) -> None:
        self.folder = root / TEMPORARY_FOLDER
        self._modes = modes
        modes.make_folder(self.folder)
        self._numbers = count(1)
        self._owner = owner
        self._making = threading.Lock()
        self._lock = self._take_lock()
        remove_abandoned(self.folder)

    def _take_lock(self) -> int:
        """Make and lock the owner's file; again under a longer name if a clean-up took it in between."""
        for _ in range(OWNER_ATTEMPTS):
            path = self.folder / (self._owner + LOCK_SUFFIX)
            try:
                descriptor = self._modes.create_file(path, os.O_RDWR)
            except FileExistsError:
                self._owner += "0"
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            except (BlockingIOError, FileNotFoundError):
                pass
            os.close(descriptor)
            self._owner += "0"
        raise OSError(f"could not lock a file in {self.folder}")

    def new_path(self) -> Path:
        """A name no other temporary file ever had."""
        return self.folder / f"{self._owner}.{next(self._numbers)}"

    def create(self, path: Path) -> WrittenFile:
        """The temporary file at ``path``, new. Raises `OSError`, and `ClosedError` after `close`, which would not find
        it. Threads may race with `close`."""
        with self._making:
            if self._lock < 0:
                raise ClosedError(f"the store in {self.folder.parent} is closed", outcome="not_applied")
            return WrittenFile(path, self._modes)

    def close(self) -> None:
        """Remove what is left of this owner, if the folder is still there. Idempotent."""
        with self._making:
            lock, self._lock = self._lock, -1
        if lock < 0:
            return
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _remove_owner(self.folder, self._owner, sorted(os.listdir(self.folder)))
        finally:
            os.close(lock)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of every owner that lives no more."""
    names = sorted(os.listdir(folder))
    locks = [name for name in names if name.endswith(LOCK_SUFFIX)]
    for lock in locks:
        try:
            descriptor = os.open(folder / lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_owner(folder, lock.removesuffix(LOCK_SUFFIX), names)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _remove_owner(folder: Path, owner: str, names: list[str]) -> None:
    """Files first, the lock last: while it is there, somebody may still find the rest."""
    for name in names:
        if name.startswith(owner + ".") and not name.endswith(LOCK_SUFFIX):
            remove(folder / name)
    remove(folder / (owner + LOCK_SUFFIX))


def remove(path: Path) -> bool:
    """Remove a file; whether it was there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        return True
    return False
