"""What mirroring did: plain values, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """Mirroring on its way: SSTs that are there by now, of all; and bytes."""

    ssts: int
    ssts_total: int
    nbytes: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """One mirroring.

    path: where the mirror is, without credentials; ``database_id`` is its source's, too
    checkpoint_id: what it shows now
    manifest_version: the mirror's own
    last_seq: the highest sequence number in it
    copied, copied_bytes: SSTs copied now; log rows that became SSTs there included
    kept: SSTs that were there already
    pruned: objects deleted because the mirror needs them no more
    """

    path: str
    database_id: UUID
    checkpoint_id: UUID
    manifest_version: int
    last_seq: int
    copied: int
    copied_bytes: int
    kept: int
    pruned: int
