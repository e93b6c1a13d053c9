"""What an error of the file system means to the caller of the store, in words that name the folder.

Whatever waiting does not mend (a path that is no folder, no permission) is `InvalidError`: it is raised at once, not
tried again for a minute. A full or failing disk, a folder that vanished while it was open (an outage until it is back),
and whatever is not known here, is `UnavailableError`. Looks at the path to say what is in the way, so call it off the
event loop.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from slate_async.errors import ConfigError, Outcome, SlateError, UnavailableError
from slate_async.objectstore.local.lost_folder import FolderLostError

_NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM)
_HINTS: dict[int, str] = {
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "a symbolic link there leads in a circle",
    errno.EFBIG: "the file system does not hold files of that size",
    errno.ENODEV: "choose a folder of a disk",
    errno.ENXIO: "choose a folder of a disk",
    errno.EINVAL: "this file system cannot hold a store",
    errno.EXDEV: "this file system cannot hold a store",
    errno.ENOSYS: "this file system cannot hold a store",
    errno.EOPNOTSUPP: "this file system cannot hold a store",
}


def translated(error: OSError, root: Path, outcome: Outcome | None, *, opening: bool = False) -> SlateError:
    """The error to raise for ``error`` of the store at ``root``; ``opening`` while its folder is being made."""
    text = f"{error.strerror or error}: {error.filename or root}"
    if isinstance(error, FolderLostError):
        return UnavailableError(f"the folder {root} {error.strerror}; is its disk mounted?", outcome=outcome)
    if error.errno == errno.ENOENT and opening:
        return ConfigError(f"the folder {root} cannot be made: {text}", outcome=outcome)
    if error.errno == errno.ENOENT:
        return UnavailableError(_missing(root, text), outcome=outcome)
    if error.errno in _NOT_A_FOLDER:
        return ConfigError(not_a_folder(root) or f"{text}; check the path", outcome=outcome)
    if error.errno in _NOT_ALLOWED:
        return ConfigError(f"{text}; check the path and its permissions", outcome=outcome)
    if error.errno in _HINTS:
        return ConfigError(f"{text}; {_HINTS[error.errno]}", outcome=outcome)
    return UnavailableError(text, outcome=outcome)


def _missing(root: Path, text: str) -> str:
    if os.path.isdir(root):
        return f"files of the store at {root} were removed while it was open: {text}"
    return f"the folder {root} was moved away or removed while it was open"


def not_a_folder(root: Path) -> str | None:
    """What stands where ``root`` or a folder above it should be, as a sentence; ``None`` if nothing does."""
    for path in (root, *root.parents):
        if os.path.isdir(path):
            return None
        if os.path.isfile(path):
            return f"{path} is a file, not a folder"
        if os.path.lexists(path):
            return f"{path} is not a folder" if os.path.exists(path) else f"{path} is a link that leads nowhere"
    return None
