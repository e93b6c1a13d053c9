"""Where a map keeps what, below its prefix: docs/format/map.md."""

from __future__ import annotations

from typing import NamedTuple

ROWS, ENTRIES, CATALOGUE, PROGRESS = b"\x01", b"\x02", b"\x03", b"\x04"
END = b"\xff"
"""Above every packed key."""


class MapLayout(NamedTuple):
    """The stored keys of a map. rows: what stands before its packed keys; catalogue: the key of what its indexes are"""

    prefix: bytes
    rows: bytes
    catalogue: bytes

    def entries(self, index: bytes) -> bytes:
        """What stands before the entries of the index ``index``."""
        return self.prefix + ENTRIES + index + b"\0"

    def progress(self, index: bytes) -> bytes:
        """The key of where the building of an index stands."""
        return self.prefix + PROGRESS + index


def layout_of(prefix: bytes) -> MapLayout:
    """Of the map whose keys begin with ``prefix``."""
    return MapLayout(prefix, prefix + ROWS, prefix + CATALOGUE)
