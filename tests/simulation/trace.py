"""What happened in a run, one line per event, as one hash.

Two runs of one seed must give the same digest, whatever the interpreter's hash seed. A line says virtual time,
process, operation, key, outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """Hashes lines as they come; keeps them only if asked to."""

    def __init__(self, now: Callable[[], float], *, keep: bool = False) -> None:
        self._now = now
        self._hash = hashlib.sha256()
        self._keep = keep
        self.count = 0
        self.lines: list[str] = []

    def add(self, process: str, operation: str, key: str, outcome: str) -> None:
        """One event, now."""
        line = f"{self._now():.6f} {process} {operation} {key} {outcome}"
        self._hash.update(line.encode() + b"\n")
        self.count += 1
        if self._keep:
            self.lines.append(line)

    def digest(self) -> str:
        """SHA-256 of everything so far, in hex."""
        return self._hash.copy().hexdigest()


def fingerprint(data: bytes) -> str:
    """A short name for some bytes."""
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:12]}"
