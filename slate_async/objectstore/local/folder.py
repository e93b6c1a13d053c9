"""The operations on a local folder, blocking, each complete in itself; `LocalStore` runs them on worker threads.

Ordering rule of a put: temporary file written and synced -> named (link, or rename under a claim) -> folder synced
-> reported. A crash in between leaves a temporary file or a whole object, never a part. Folders are synced into
their parents before the first name in them counts. A refused put, and a read, count as reports of what they met: the
folder is synced before them, too (`unsynced`).

Invariant: a folder that objects were seen in is never created anew. If it is missing, or empty, it was moved away or
its disk is not mounted, and what is missed there says nothing of the objects: `FolderLostError`. This owner's place in
it is taken again once objects are found in it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from slate_async.errors import CorruptionError
from slate_async.objectstore.keys import resolve_range
from slate_async.objectstore.local.claims import Claims, Verdict, current_etag
from slate_async.objectstore.local.file import FileInfo, WrittenFile, read_exactly, read_info, sync_folder
from slate_async.objectstore.local.layout import path_of, walk
from slate_async.objectstore.local.lost_folder import FolderLostError
from slate_async.objectstore.local.modes import OWNER_ALONE, Modes
from slate_async.objectstore.local.open_files import OpenFile
from slate_async.objectstore.local.temps import Temporaries, remove
from slate_async.objectstore.local.unsynced import UnsyncedNames
from slate_async.objectstore.protocol import (
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    PutMode,
)
from slate_async.types import Buffer

T = TypeVar("T")


class NotWrittenError(Exception):
    """A put failed before anything had a name; ``__cause__`` is the `OSError`."""


class Folder:
    """Objects below ``root``. Methods may be called from several threads at once, except `open_for_writing`."""

    def __init__(self, root: Path, modes: Modes = OWNER_ALONE) -> None:
        self._root = root
        self._modes = modes
        self._claims = Claims(root, modes)
        self._temporaries: Temporaries | None = None
        self._synced_folders: dict[Path, None] = {}
        self._unsynced = UnsyncedNames()
        self._seen = False
        self._place_lost = False
        self.found_again = False
        """Objects were found here after this owner's place was: `open_for_writing` again."""

    def open_for_writing(self, owner: str) -> None:
        """Make the folder, unless objects were seen in it, and this owner's place for temporary files; clear up after
        crashed owners. Called again it takes a new place."""
        self._refuse_lost()
        if not self._seen:
            make_synced(self._root, self._modes)
        before, self._temporaries = self._temporaries, Temporaries(self._root, owner, self._modes)
        self._place_lost = self.found_again = False
        self._synced_folders.clear()
        if before is not None:
            before.close()
        self._claims.remove_settled()

    def _refuse_lost(self) -> None:
        """Raise `FolderLostError` if the folder is missing, or empty, though objects were seen in it."""
        if not self._seen:
            return
        try:
            with os.scandir(self._root) as entries:
                if next(entries, None) is not None:
                    return
        except FileNotFoundError:
            raise FolderLostError(errno.ENOENT, "was moved away or removed", str(self._root)) from None
        raise FolderLostError(errno.ENOENT, "is empty: it is not the one that was open", str(self._root))

    def _met(self) -> None:
        """An object is here."""
        self._seen = True
        if self._place_lost:
            self.found_again = True

    def close(self) -> None:
        """Give up the owner's place. Idempotent."""
        if self._temporaries is not None:
            self._temporaries.close()

    def scratch(self) -> Path:
        """A path for a new temporary file."""
        return self._place().new_path()

    def _place(self) -> Temporaries:
        if self._temporaries is None:
            raise OSError("the folder is not open for writing")
        return self._temporaries

    def begin(self, temporary: Path, parts: Sequence[Buffer]) -> WrittenFile:
        """Write the first ``parts`` of an object file under ``temporary``, to `append` others and for `finish`. Takes a
        processor, not a disk. Raises `NotWrittenError`, and `ClosedError` once this owner's place is given up."""
        try:
            written = self._place().create(temporary)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._place_lost = True
            raise NotWrittenError from error
        return self.append(written, temporary, parts)

    def append(self, written: WrittenFile, temporary: Path, parts: Sequence[Buffer]) -> WrittenFile:
        """Write more of it. Raises `NotWrittenError`."""
        try:
            written.append(parts)
        except OSError as error:
            remove(temporary)
            raise NotWrittenError from error
        return written

    def finish(self, written: WrittenFile, temporary: Path, key: str, mode: PutMode) -> Verdict:
        """Sync what was ``written`` under ``temporary``, then `name_temporary` it.

        Raises what that raises, and `NotWrittenError`."""
        try:
            written.sync()
        except OSError as error:
            remove(temporary)
            raise NotWrittenError from error
        return self.name_temporary(temporary, key, mode, break_others=False)

    def name_temporary(self, temporary: Path, key: str, mode: PutMode, *, break_others: bool) -> Verdict:
        """Give a temporary file its name, under ``mode``, and sync the name, or that of what is there instead.

        Raises `ObjectExistsError`, `ObjectChangedError`, or `OSError`. Unless DONE, the file has no name yet: after
        BUSY, and CHANGED (only of an overwrite), the temporary file is still there and this may be called again;
        after BROKEN it was removed."""
        path = path_of(self._root, key)
        with self._unsynced.naming(path):
            verdict = self._name(temporary, path, mode, break_others)
            refused = verdict is Verdict.CHANGED and isinstance(mode, Create | Match)
            if verdict is Verdict.DONE or refused:
                self._met()
                self._unsynced.sync(path)
        if not refused:
            return verdict
        remove(temporary)
        raise ObjectExistsError(key) if isinstance(mode, Create) else ObjectChangedError(key)

    def _name(self, temporary: Path, path: Path, mode: PutMode, break_others: bool) -> Verdict:
        if isinstance(mode, Match):
            return self._claims.replace_file(path, mode.etag, temporary, break_others=break_others)
        etag = None if isinstance(mode, Create) else current_etag(path)
        if etag is None:
            return self._create(temporary, path)
        return self._claims.replace_file(path, etag, temporary, break_others=break_others)

    def _create(self, temporary: Path, path: Path) -> Verdict:
        self._make_folder(path.parent)
        if os.path.lexists(path):
            return Verdict.CHANGED
        self._claims.clear_place(path)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return Verdict.CHANGED
        except FileNotFoundError:
            if not temporary.exists():
                return Verdict.BROKEN
            self._synced_folders.pop(path.parent, None)
            self._make_folder(path.parent)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return Verdict.CHANGED
        remove(temporary)
        return Verdict.DONE

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root and sync it, and each above it, into its parent; once for each."""
        if folder in self._synced_folders or folder == self._root:
            return
        self._make_folder(folder.parent)
        self._modes.make_folder(folder)
        sync_folder(folder.parent)
        self._synced_folders[folder] = None

    def read(self, key: str, byte_range: ByteRange | None) -> GetResult:
        """Read an object or a part of it, and only that part."""

        return self._opened(key, lambda descriptor, info: _part(descriptor, key, byte_range, info))

    def open_and_read(self, key: str, byte_range: ByteRange) -> tuple[GetResult, OpenFile]:
        """As `read`, with the file, which is still open."""
        file = OpenFile(self._open(key), path_of(self._root, key))
        info = read_info(file.descriptor, key)
        file.size = info.size
        return _part(file.descriptor, key, byte_range, info), file

    def info(self, key: str) -> ObjectInfo:
        """What the end of the object's file says."""
        return self._opened(key, lambda _, info: _described(key, info))

    def _opened(self, key: str, action: Callable[[int, FileInfo], T]) -> T:
        descriptor = self._open(key)
        try:
            return action(descriptor, read_info(descriptor, key))
        finally:
            os.close(descriptor)

    def _open(self, key: str) -> int:
        path = path_of(self._root, key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            if isinstance(error, NotADirectoryError) and not os.path.isdir(self._root):
                raise
            self._refuse_lost()
            raise ObjectNotFoundError(key) from error
        self._met()
        try:
            self._unsynced.settle(path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def pages(self, prefix: str, start_after: str) -> Iterator[tuple[str, Path]]:
        """The walk behind a listing; advance it with `page`."""
        return walk(self._root, prefix, start_after)

    def page(self, pages: Iterator[tuple[str, Path]], count: int) -> tuple[list[ObjectInfo], bool]:
        """The next objects of a walk, and whether it may have more. Objects removed meanwhile are left out. One that is
        damaged, or foreign, is there without an etag: a read of it says what is wrong."""
        found = []
        names = list(islice(pages, count))
        for key, path in names:
            try:
                info = self.info(key)
            except ObjectNotFoundError:
                continue
            except CorruptionError:
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append(ObjectInfo(key, status.st_size, "", status.st_mtime_ns // 1_000_000))
                continue
            found.append(ObjectInfo(key, info.size, info.etag, info.last_modified_ms))
        if not names:
            self._refuse_lost()
        return found, len(names) == count

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error. An earlier removal of them may not have been synced."""
        parents: dict[Path, None] = {}
        for key in keys:
            path = path_of(self._root, key)
            self._claims.remove_file(path, self.scratch)
            parents[path.parent] = None
        for parent in parents:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                sync_folder(parent)


def _part(descriptor: int, key: str, byte_range: ByteRange | None, info: FileInfo) -> GetResult:
    start, end = resolve_range(key, byte_range, info.size)
    return GetResult(_described(key, info), read_exactly(descriptor, start, end - start, key), start)


def _described(key: str, info: FileInfo) -> ObjectInfo:
    return ObjectInfo(key, info.size, info.etag, info.last_modified_ms, info.metadata)


def make_synced(folder: Path, modes: Modes) -> None:
    """Make a folder and its missing parents, each synced into its parent. One that is there is synced as well: its
    maker may not have come to that. Raises `OSError`."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    with contextlib.suppress(PermissionError):  # a parent that this process may not read
        sync_folder(folder.parent)
    for made in reversed(missing):
        modes.make_folder(made)
        sync_folder(made.parent)
