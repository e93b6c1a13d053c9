"""The files the house rules look at, and what they find."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

BINARY_SUFFIXES = {".png", ".jpg", ".parquet", ".bin", ".gz", ".zst", ".sst", ".manifest"}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One broken rule. ``line`` 0 means the file as a whole."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One text file of the project; ``path`` is relative to its root, with ``/``."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return self.text.split("\n")

    @property
    def is_product(self) -> bool:
        """Whether it is a Python module that ships."""
        return self.path.endswith(".py") and self.path.startswith(("slate_async/", "metastores/"))


def project_sources(root: Path) -> tuple[list[Source], list[Finding]]:
    """Every text file that git tracks or would track, and those that are not UTF-8 text though they should be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    sources, findings = [], []
    for path in sorted(filter(None, listed.stdout.split("\0"))):
        file = root / path
        if not file.is_file() or file.suffix in BINARY_SUFFIXES or path.startswith("tests/golden/"):
            continue
        try:
            sources.append(Source(path, file.read_bytes().decode()))
        except UnicodeDecodeError:
            findings.append(Finding(path, 0, "is not UTF-8 text"))
    return sources, findings
