"""Files that stay open after a part of them was read, so that parts in the operating system's memory are read at once.

``preadv`` with ``RWF_NOWAIT`` (Linux) reads what is in the page cache and nothing else, so the event loop may call it.
Where the system or the file system cannot do that, no file is kept.

Invariant: a read returns bytes of the file that was at the object's name when it was opened. For objects that are
written once these are the object's bytes, even if it was deleted since. To look the name up again would cost as much as
the read.

A file that is removed occupies the disk until it is closed. So files are let go as soon as this store removes them; and
of those that others remove, a few are looked for whenever the store does anything else. These are closed by a worker
thread: with the last descriptor the disk gets its blocks back, which takes milliseconds for a large file.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from slate_async.objectstore.sync_read import SYNC_READ_BYTES

MOST_FILES = 256
SHARE_OF_FILES = 8
"""A store keeps at most the process' limit of open files divided by this."""
SHARE_OF_ALL = 4
"""All stores of the process together keep at most the limit divided by this."""
LOOKED_AT = 4
"""Files that are looked at together, a few microseconds for each."""
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class OpenFile:
    """An object file that is open for reading. It is closed when it is dropped.

    descriptor: belongs to it
    size: of the object, once that is known
    """

    __slots__ = ("_identity", "_path", "descriptor", "size")

    def __init__(self, descriptor: int, path: Path) -> None:
        """``path``: what was opened. Raises `OSError`."""
        self.descriptor = descriptor
        self.size = 0
        self._path = os.fspath(path)
        self._identity = _identity(os.fstat(descriptor))

    def stands(self) -> bool:
        """Whether it is the file at its name."""
        try:
            return _identity(os.stat(self._path)) == self._identity
        except OSError:
            return False

    def read_sync(self, offset: int, room: memoryview) -> bool:
        """Fill ``room`` from ``offset``; whether all of that was in memory. Raises `OSError`."""
        assert _NOWAIT is not None
        try:
            return os.preadv(self.descriptor, [room], offset, _NOWAIT) == len(room)
        except BlockingIOError:
            return False

    def __del__(self) -> None:
        os.close(self.descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class Room:
    """How many files all stores of a process keep open, in whatever thread their loops run."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a store that is dropped gives back, which may be while another one takes
        self._taken = 0

    def take(self) -> bool:
        """Whether there was room for one more, which is now taken."""
        with self._lock:
            there_is = self._taken < _limit(SHARE_OF_ALL)
            self._taken += there_is
            return there_is

    def give_back(self, count: int) -> None:
        """``count`` files are kept no more."""
        with self._lock:
            self._taken -= count


def _limit(share: int) -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share * MOST_FILES if limit == resource.RLIM_INFINITY else limit // share


ROOM = Room()


class OpenFiles:
    """The files of one store that were read last. Belongs to the event loop."""

    def __init__(self, room: Room = ROOM) -> None:
        self.most = min(MOST_FILES, _limit(SHARE_OF_FILES))
        self._room = room
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._stale: list[OpenFile] = []
        self._next: Iterator[str] = iter(())
        self._room_to_read = memoryview(bytearray(SYNC_READ_BYTES))
        if _NOWAIT is None:
            self.most = 0

    def __len__(self) -> int:
        return len(self._files)

    def keep(self, key: str, file: OpenFile) -> None:
        """Keep the file of the object ``key`` open, and let go of the one that was not read longest if need be."""
        self.forget([key])
        if len(self._files) < self.most and self._room.take():
            self._files[key] = file
        elif self._files and self.most:
            self._files.popitem(last=False)
            self._files[key] = file

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """See `SyncReads.read_sync`."""
        file = self._files.get(key)
        if file is None or length > SYNC_READ_BYTES:
            return None
        if file.size != size:
            self._stale.append(self._take_out(key))
            return None
        self._files.move_to_end(key)
        room = self._room_to_read[:length]
        try:
            return bytes(room) if file.read_sync(offset, room) else None
        except OSError as error:
            if error.errno in _CANNOT:
                self.close()
            else:
                self._take_out(key)
            return None

    def _take_out(self, key: str) -> OpenFile:
        file = self._files.pop(key)
        self._room.give_back(1)
        return file

    def forget(self, keys: Sequence[str]) -> None:
        """Let go of the files of the objects ``keys``, if they are kept."""
        for key in keys:
            if key in self._files:
                self._take_out(key)

    def look(self) -> list[OpenFile]:
        """Check the next `LOOKED_AT` files and release those that were replaced or deleted. Returns these, and those
        that `read_sync` released, to be closed on a worker thread."""
        looked_at = list(islice(self._next, LOOKED_AT))
        if not looked_at:
            self._next = iter(tuple(self._files))
            looked_at = list(islice(self._next, LOOKED_AT))
        for key in looked_at:
            file = self._files.get(key)
            if file is not None and not file.stands():
                self._stale.append(self._take_out(key))
        stale, self._stale = self._stale, []
        return stale

    def clear(self) -> None:
        """Let go of all."""
        self._room.give_back(len(self._files))
        self._files.clear()

    def close(self) -> None:
        """Let go of all, and keep none any more. Idempotent."""
        self.most = 0
        self.clear()

    def __del__(self) -> None:
        self.clear()
