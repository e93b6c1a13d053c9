"""Compare-and-set of a file between processes, without a lock that a stopped process could hold for ever.

To replace the version with etag E of a file by a prepared temporary file T, a writer makes a *claim*: the symbolic
link ``%cas/{E}.{n}`` that points to T, where n is one above every claim on E there. Then it compares the file's
etag with E, and if it is E renames T over the file. A writer that finds an older claim on E either waits for it or
breaks it by removing its T: the rename of the broken claim's owner then fails, at whatever time it wakes up.

Why it is exclusive. A version is left only by a rename under a claim on its etag or by `remove_file`. A claim is made
only after the temporary files of all older claims on E are removed; so at most the newest claim can still rename, and
what it compared still holds when it does. A writer removes a claim on E only after it has seen that the file no longer
carries E; etags never come back, so numbers of claims that matter never repeat.

`remove_file` first takes the file away, then breaks the claims on what it took, then looks again: a writer that had
compared before is broken or has renamed already, and then the removal is done again; one that compares later sees
no file.

A remover may die between those steps and leave a claim whose owner compared before and has yet to rename. So
a writer that creates an object first breaks every claim that names its place (`clear_place`): such an owner wakes up to
a broken claim, not on top of the newcomer. What is left takes another creation of the same object, a claim on it and
a second remover that dies, all between that look and the newcomer's link.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from slate_async.errors import CorruptionError
from slate_async.objectstore.local.file import read_info
from slate_async.objectstore.local.layout import CLAIMS_FOLDER, TEMPORARY_FOLDER
from slate_async.objectstore.local.modes import OWNER_ALONE, Modes
from slate_async.objectstore.local.temps import remove

REMOVE_ATTEMPTS = 64


class Verdict(Enum):
    """How one try to replace a version ended."""

    DONE = "the file is replaced"
    CHANGED = "the file does not carry the etag"
    BUSY = "another writer claims the version; wait, or break its claim"
    BROKEN = "another writer broke this claim; nothing was written, the temporary file was removed"


class Claims:
    """The claims of one folder. ``root`` is the store's folder."""

    def __init__(self, root: Path, modes: Modes = OWNER_ALONE) -> None:
        self._root = root
        self._modes = modes
        self._folder = root / CLAIMS_FOLDER
        self._temporaries = root / TEMPORARY_FOLDER

    def replace_file(self, path: Path, etag: str, temporary: Path, *, break_others: bool) -> Verdict:
        """Rename ``temporary`` over ``path`` iff that carries ``etag``. Raises `OSError`.

        Unless DONE or BROKEN, ``temporary`` is left alone."""
        if current_etag(path) != etag:
            return Verdict.CHANGED
        self._modes.make_folder(self._folder)
        claims = self._claims_on(etag)
        for claim in claims:
            rival = self._temporary_of(claim)
            if rival is not None and os.path.lexists(rival):
                if not break_others:
                    return Verdict.BUSY
                remove(rival)
        number = max((int(claim.rpartition(".")[2]) for claim in claims), default=0) + 1
        mine = self._folder / f"{etag}.{number}"
        try:
            mine.symlink_to(f"{temporary.name}/{path.relative_to(self._root)}")
        except FileExistsError:
            return Verdict.BUSY
        if current_etag(path) != etag:
            remove(mine)
            return Verdict.CHANGED
        try:
            temporary.rename(path)
        except FileNotFoundError:
            return Verdict.BROKEN
        self._forget(etag)
        return Verdict.DONE

    def remove_file(self, path: Path, scratch: Callable[[], Path]) -> bool:
        """Remove the file, whatever it carries; whether there was one. ``scratch`` names temporary files."""
        removed = False
        for _ in range(REMOVE_ATTEMPTS):
            taken = scratch()
            try:
                path.rename(taken)
            except (FileNotFoundError, NotADirectoryError):
                break
            removed = True
            with contextlib.suppress(CorruptionError):
                self._break_all(current_etag(taken) or "")
            remove(taken)
            if not os.path.lexists(path):
                break
        return removed

    def clear_place(self, path: Path) -> None:
        """Break the claims that name ``path``, where there is no file: what they compared is not there any more."""
        place = path.relative_to(self._root).as_posix()
        for claim in self._names():
            temporary, claimed = self._target_of(claim)
            if temporary is None or claimed != place:
                continue
            remove(temporary)
            if current_etag(path) != claim.rpartition(".")[0]:
                remove(self._folder / claim)

    def _break_all(self, etag: str) -> None:
        """Break every claim on ``etag``, which no file carries any more."""
        for claim in self._claims_on(etag):
            rival = self._temporary_of(claim)
            if rival is not None:
                remove(rival)
        self._forget(etag)

    def remove_settled(self) -> None:
        """Remove claims on versions that are not there any more, which crashed writers left behind."""
        for name in self._names():
            temporary, place = self._target_of(name)
            if temporary is None or os.path.lexists(temporary):
                continue
            with contextlib.suppress(CorruptionError):
                if current_etag(self._root / place) != name.rpartition(".")[0]:
                    remove(self._folder / name)

    def _forget(self, etag: str) -> None:
        """Remove the claims on ``etag``. Call only after seeing that the file carries it no more."""
        for claim in self._claims_on(etag):
            remove(self._folder / claim)

    def _claims_on(self, etag: str) -> list[str]:
        return [name for name in self._names() if name.startswith(etag + ".")]

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []

    def _temporary_of(self, claim: str) -> Path | None:
        """Where the claim's temporary file would be; ``None`` if the claim was removed meanwhile."""
        return self._target_of(claim)[0]

    def _target_of(self, claim: str) -> tuple[Path | None, str]:
        """`_temporary_of` the claim, and the path it names, relative to the root."""
        try:
            temporary, _, place = os.readlink(self._folder / claim).partition("/")
        except FileNotFoundError:
            return None, ""
        return self._temporaries / temporary, place


def current_etag(path: Path) -> str | None:
    """The etag an object file carries, ``None`` if there is none. Raises `CorruptionError`, `OSError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return read_info(descriptor, path.name).etag
    finally:
        os.close(descriptor)
