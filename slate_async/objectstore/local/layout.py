"""Keys and paths.

The object ``a/b`` is the file ``a/b.obj`` below the store's folder. The suffix lets the objects ``a`` and ``a/b``
stand beside each other. ``%`` in a key is written ``%25``, and a folder's name that ends in ``.obj`` ends in
``%2Eobj``; so a name with ``%`` before anything but two hex digits can never belong to a key. Such names are the
store's own: ``%tmp`` (temporary files) and ``%cas`` (claims). Any other file is somebody else's and left alone.
Links to folders are refused: objects in them would be found by their key and be missing in listings.

The walk yields keys in byte order, not in the order of names: a file's key ends where a folder's goes on with
``/``, so folders sort as if their name ended in ``/``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from slate_async.errors import ConfigError

SUFFIX = ".obj"
TEMPORARY_FOLDER = "%tmp"
CLAIMS_FOLDER = "%cas"


def path_of(root: Path, key: str) -> Path:
    """Where the object ``key`` is kept."""
    *folders, name = key.replace("%", "%25").split("/")
    return root.joinpath(*map(_folder_name, folders), name + SUFFIX)


def _folder_name(segment: str) -> str:
    return segment[: -len(SUFFIX)] + "%2Eobj" if segment.endswith(SUFFIX) else segment


def walk(root: Path, prefix: str, start_after: str) -> Iterator[tuple[str, Path]]:
    """Keys that start with ``prefix`` and are greater than ``start_after``, in byte order, with their paths.

    Folders are read one at a time, as the walk gets there. Raises `OSError`, and `ConfigError` at a link to a
    folder."""
    yield from _walk(root, "", prefix, start_after)


def _walk(folder: Path, folder_key: str, prefix: str, start_after: str) -> Iterator[tuple[str, Path]]:
    for key, name in _entries(folder, folder_key):
        if not (key.startswith(prefix) or prefix.startswith(key)):
            continue
        if key.endswith("/"):
            if key > start_after or start_after.startswith(key):
                yield from _walk(folder / name, key, prefix, start_after)
        elif key.startswith(prefix) and key > start_after:
            yield key, folder / name


def _entries(folder: Path, folder_key: str) -> list[tuple[str, str]]:
    """``(key, name)`` of one folder in byte order; the key of a folder ends in ``/``."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in (TEMPORARY_FOLDER, CLAIMS_FOLDER):
                    continue  # this store's, or deeper down those of a store nested in it
                if entry.name.endswith(SUFFIX):
                    if entry.is_file():
                        found.append((folder_key + unquote(entry.name[: -len(SUFFIX)]), entry.name))
                elif entry.is_dir(follow_symlinks=False):
                    found.append((folder_key + unquote(entry.name) + "/", entry.name))
                elif entry.is_symlink() and entry.is_dir():
                    raise ConfigError(
                        f"{entry.path} is a link to a folder, which would not be listed: put the folder itself there,"
                        " or mount it"
                    )
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if folder_key:
            return []
        raise
    found.sort()
    return found
