"""A disk that forgets: it keeps of a folder what was synced, and nothing else, when its power is cut.

Stands between the local store and the functions of `os` it uses. Every folder's names are durable as of its last sync,
every file's bytes as of the file's own. `power_cut` makes a folder of what is left. A sync can be made to fail, or to
last, as it does on a disk that is full of work.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

Identity = tuple[int, int]


class ForgetfulDisk:
    """The disk below ``root``, a folder that is there. ``scratch`` is an empty folder of the same file system."""

    def __init__(self, root: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._scratch = scratch
        self._kept: dict[Identity, Path] = {}
        """Files whose bytes are durable, each with a second name that keeps it."""
        self._folders: dict[Identity, dict[str, Identity]] = {}
        """What is durable of each folder: its names, and which files or folders they mean."""
        self._failing: list[Path] = []
        self._lasting: dict[Path, threading.Event] = {}
        self.waiting = threading.Event()
        """Set when a sync has met a folder that `hold` was called for."""
        self._fsync = os.fsync
        self._lock = threading.Lock()
        self._note_folder(root)
        monkeypatch.setattr(os, "fsync", self._sync)

    def fail(self, folder: Path, *, times: int = 1) -> None:
        """The next ``times`` syncs of ``folder`` fail."""
        self._failing += [folder] * times

    def hold(self, folder: Path) -> threading.Event:
        """The next sync of ``folder`` lasts until the event returned is set."""
        self._lasting[folder] = threading.Event()
        return self._lasting[folder]

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        lasting = self._lasting.pop(path, None)
        if lasting is not None:
            self.waiting.set()
            lasting.wait(60)
        if path in self._failing:
            self._failing.remove(path)
            raise OSError(5, "the disk did not answer", str(path))
        with self._lock:
            if os.path.isdir(path):
                self._note_folder(path)
            else:
                self._keep(path, (status.st_dev, status.st_ino))

    def _keep(self, path: Path, identity: Identity) -> None:
        if identity not in self._kept:
            second = self._scratch / f"kept-{len(self._kept)}"
            os.link(path, second)
            self._kept[identity] = second

    def _note_folder(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            named = {entry.name: _identity(entry.stat(follow_symlinks=False)) for entry in entries}
        self._folders[_identity(os.stat(folder))] = named

    def power_cut(self) -> Path:
        """What is there when the power is back, in a folder of its own."""
        left = self._scratch / "left"
        with self._lock:
            self._restore(_identity(os.stat(self.root)), left)
        return left

    def _restore(self, folder: Identity, at: Path) -> None:
        at.mkdir()
        for name, identity in self._folders.get(folder, {}).items():
            if identity in self._kept:
                shutil.copyfile(self._kept[identity], at / name)
            elif identity in self._folders:
                self._restore(identity, at / name)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
