"""The envelope of what collections store: `slate_async.codec.envelope`, ``docs/format/collection-envelope.md``."""

from __future__ import annotations

from enum import IntEnum

from slate_async.codec.envelope import Envelope

FOREIGN_PARTS = "foreign_parts"
"""Parts of a pending batch have tokens of their own."""
KNOWN_FEATURES = frozenset((FOREIGN_PARTS,))
ENVELOPE = Envelope(b"SLATECOL", 1, "a collection", KNOWN_FEATURES)


class Kind(IntEnum):
    """What an envelope holds. No number is given twice."""

    VERSION = 1
    HOLD = 2
    LIFE = 3
    INDEX = 4
