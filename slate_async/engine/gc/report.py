"""What a GC round did, or would do: plain values, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

GcStage = Literal["log", "ssts", "leftovers"]
"""What a GC round is looking at."""


@dataclass(frozen=True, slots=True)
class GarbageObject:
    """An object that went, or would go. ``size`` in bytes."""

    key: str
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class BlockingCompaction:
    """A registered compaction that is old: what was made for ``base_version`` or later stays until it has ended.

    since_ms: wall clock when it was begun; about, if ``retention_ms`` was changed after it
    """

    id: UUID
    base_version: int
    since_ms: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return (
            f"compaction {self.id}, begun at manifest version {self.base_version} about {since}, holds back garbage"
            " made since; if no compactor is at work on it, run `slate compact`, or open one: it is then finished or"
            " dropped, else given up after gc_stalled_compaction_ms"
        )


@dataclass(frozen=True, slots=True)
class GcProgress:
    """A round on its way: what it is at, and what is deleted so far."""

    stage: GcStage
    deleted: int
    deleted_bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """One round.

    dry_run: nothing was changed; everything below is what would be
    manifest_version: the version it was judged by
    sst_floor: the manifest's after it: SSTs made for older versions can be added no more
    expired_checkpoints: taken out of the manifest
    manifest_versions: versions, and bodies of commits that lost, deleted. A dry run does not count the version that a
    round's own commit would outdate
    objects: log objects, SSTs and leftovers deleted
    waiting: SSTs that nothing names, not deleted because work in progress may still name them
    truncated: more was found than one round deletes
    blocked_by: compactions begun more than ``gc_min_age_ms`` ago, still registered: they hold ``sst_floor`` down
    evicted: compactions that no compactor resumed, given up: their output is garbage now
    detached: a clone gave its parents up, since nothing names their SSTs any more
    removed: a database destroyed before was removed for good
    abandoned: clones whose making was broken off long ago, by their URLs: removed, with what they held in their parent
    """

    dry_run: bool
    manifest_version: int
    sst_floor: int
    expired_checkpoints: tuple[UUID, ...]
    manifest_versions: int
    objects: tuple[GarbageObject, ...]
    waiting: int
    truncated: bool
    blocked_by: tuple[BlockingCompaction, ...] = ()
    evicted: tuple[UUID, ...] = ()
    detached: bool = False
    removed: bool = False
    abandoned: tuple[str, ...] = ()

    @property
    def deleted_bytes(self) -> int:
        """Bytes of ``objects``."""
        return sum(garbage.size for garbage in self.objects)
