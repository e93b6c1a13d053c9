"""Names that were made and may not survive a loss of power yet, because their folder is not synced.

Invariant: nobody hears that an object is there before its name is durable. Between naming a file and syncing its
folder there is a short time, and after a sync that failed there is no end to it. In both the object can be seen: by a
put that meets it and reports a conflict, by a read after a put that was given up. So an answer from such a name syncs
the folder first. Names that other processes make are theirs to sync; a put that meets one syncs it, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from slate_async.objectstore.local.file import sync_folder


class UnsyncedNames:
    """The names one store made in this process. Methods may be called from several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._being_named: Counter[Path] = Counter()
        self._left: dict[Path, int] = {}
        """Names whose sync failed, each with the number of the last failure."""
        self._failures = 0

    @contextlib.contextmanager
    def naming(self, path: Path) -> Iterator[None]:
        """While a file gets the name ``path`` and its folder is synced. An exception leaves the name unsynced."""
        with self._lock:
            self._being_named[path] += 1
        try:
            yield
        except BaseException:
            with self._lock:
                self._failures += 1
                self._left[path] = self._failures
            raise
        finally:
            with self._lock:
                self._being_named[path] -= 1
                if not self._being_named[path]:
                    del self._being_named[path]

    def settle(self, path: Path) -> None:
        """Before an answer from ``path``: sync its name if that may be needed. Raises `OSError`."""
        if path in self._left or path in self._being_named:
            self.sync(path)

    def sync(self, path: Path) -> None:
        """Sync the folder of ``path``; none is needed where there is no folder. Raises `OSError`."""
        failure = self._left.get(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(path.parent)
        if failure is not None:
            with self._lock:
                if self._left.get(path) == failure:
                    del self._left[path]
