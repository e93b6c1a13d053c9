"""Which users may read and write the files of a local store: its owner alone, unless something else is chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

UMASK = "umask"


@dataclass(frozen=True, slots=True)
class Modes:
    """The permissions of what is made. ``files``: those of files, exactly; folders have them, and users that may read
    may enter them. ``None``: what the process's umask leaves of everything."""

    files: int | None = 0o600

    @classmethod
    def of(cls, said: str) -> Modes:
        """``"umask"``, or octal digits, as the setting ``file_mode`` has them."""
        return cls(None if said == UMASK else int(said, 8))

    def create_file(self, path: Path, flags: int) -> int:
        """Open a file that must not exist before. Raises `OSError`."""
        flags |= os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        if self.files is None:
            return os.open(path, flags, 0o666)
        descriptor = os.open(path, flags, 0o600)
        try:
            if self.files != 0o600:
                os.fchmod(descriptor, self.files)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make_folder(self, folder: Path) -> None:
        """Make a folder; one that is there keeps its permissions. Raises `OSError`."""
        try:
            os.mkdir(folder, 0o777 if self.files is None else 0o700)
        except FileExistsError:
            if not folder.is_dir():
                raise
            return
        if self.files is not None and self.files != 0o600:
            os.chmod(folder, self.files | (self.files & 0o444) >> 2)


OWNER_ALONE = Modes()
