"""What a round did, and what holds back what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier, meet_all
from slate_async.collections.core.garbage import Garbage
from slate_async.collections.core.holding import StoredHold


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Who keeps what from being compacted or deleted.

    since: what compaction may go to; ``since_by``: readers whose holds keep it from going further
    floor: the lowest version that is needed; ``floor_by``: readers that have it
    versions: that are kept besides the head
    pending: objects of batches that are merged, which readers of older versions still read in the pending area
    in_flight: merged batches whose commits are not resolved
    """

    since: Frontier
    since_by: tuple[str, ...]
    floor: int
    floor_by: tuple[str, ...]
    versions: int = 0
    pending: int = 0
    in_flight: int = 0


def held_back(
    head: Area, standing: Mapping[str, StoredHold], floor: int, *, pending: int = 0, in_flight: int = 0
) -> HeldBack:
    """Of ``standing`` holds, which were listed before ``head`` was read."""
    holds = {name: stored.hold for name, stored in sorted(standing.items())}
    meet = meet_all(hold.since for hold in holds.values()) if holds else head.bound
    since_by = tuple(
        name for name, hold in holds.items() if any(element in meet.elements for element in hold.since.elements)
    )
    leased = {name: hold.version for name, hold in holds.items() if hold.version is not None}
    lowest = min(leased.values(), default=None)
    floor_by = tuple(name for name, version in leased.items() if version == lowest and version <= floor)
    return HeldBack(
        meet, since_by, floor, floor_by, max(head.version - max(floor, 1), 0), pending=pending, in_flight=in_flight
    )


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection of garbage deleted; of a dry run: what it would delete.

    complete: whether that was all there is; not if it was too much for one round, or if another controller collects
    garbage: each object with its reason, of a dry run
    nbytes: of pending and merged objects"""

    pending: int = 0
    merged: int = 0
    versions: int = 0
    kept_pending: int = 0
    complete: bool = True
    garbage: tuple[Garbage, ...] = ()
    nbytes: int = 0

    @property
    def objects(self) -> int:
        """Of all kinds."""
        return self.pending + self.merged + self.versions


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What one round of a controller did.

    version: the head at its end
    appends, rows: pending batches that were absorbed, and updates of them that were new
    waits_for_merges: whether nothing was absorbed because merges have to come first
    revoked: readers whose holds were revoked
    changed: whether anything was committed or deleted
    """

    epoch: int
    version: int
    upper: Frontier
    since: Frontier
    appends: int
    rows: int
    waits_for_merges: bool
    revoked: tuple[str, ...]
    collected: Collected | None
    held_back: HeldBack
    deleted: bool
    changed: bool


def buried(tombstone: Area, collected: Collected) -> RoundReport:
    """Of a round of a deleted collection."""
    return RoundReport(
        epoch=tombstone.epoch,
        version=tombstone.version,
        upper=tombstone.upper,
        since=tombstone.since,
        appends=0,
        rows=0,
        waits_for_merges=False,
        revoked=(),
        collected=collected,
        held_back=HeldBack(tombstone.since, (), tombstone.version, ()),
        deleted=True,
        changed=collected.objects > 0,
    )
