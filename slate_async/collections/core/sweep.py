"""Which holds stand, and what they allow: for the controller.

Ordering rules:
* a head is read, THEN the holds are listed, so what they allow goes with what that head has published (C16, C17)
* the holds are listed, read, and listed again until no new name appears (C18): a clone made after a listing is missed
  else, while its source, read after it, has moved on or been revoked
* of a deleted collection the holds go before anything else, listed until a listing shows none: what a reader of a
  ``compare`` collection looked up counts on its hold, which must not outlive the names that it protects (C14)
* an expired lease is revoked by compare-and-set; until that was answered yes the hold counts (C19)

Rules C14, C16 to C19 and C29 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier, meet_all
from slate_async.collections.core.holding import Hold, StoredHold


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of holds, listed until none is new (C18). ``seen``: those that were read; ``unread``: those to read."""

    seen: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    complete: bool = False

    def listed(self, names: Iterable[str]) -> Listing:
        """After a listing that gave ``names``. It is complete if all that it gave had been read before."""
        unread = frozenset(names) - self.seen
        return replace(self, unread=unread, complete=is_fixpoint(unread))

    def read(self) -> Listing:
        """After all of ``unread`` were read."""
        return replace(self, seen=self.seen | self.unread, unread=frozenset())


def is_fixpoint(unread: frozenset[str]) -> bool:
    """C18: whether a listing that gave the new names ``unread`` was the last one."""
    return not unread


LOOKS_A_LEASE = 4
"""So many looks see a lease end, at least: no more than its part of the lease passes between two of them."""


@dataclass(frozen=True, slots=True)
class Leases:
    """How long each hold has had its etag, by the sweeper's own monotonic clock (C19). ``looked_ms``: the last look

    A sweeper that was cut off, or stood still, knows nothing of that time: its readers may have been cut off as it was.
    So of the time between two looks only a part counts (`counted_ms`)."""

    unwritten: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    looked_ms: float = 0.0

    def noted(self, stored: Mapping[str, StoredHold], now_ms: float) -> Leases:
        """After the holds were read at ``now_ms``; those that are not there are forgotten."""
        unwritten = {name: (found.etag, self._unwritten_ms(name, found, now_ms)) for name, found in stored.items()}
        return Leases(unwritten, now_ms)

    def expired(self, stored: Mapping[str, StoredHold], now_ms: float) -> list[str]:
        """Those that were not written for their whole lease: to be revoked, on the etag that was seen."""
        return [
            name
            for name, found in stored.items()
            if not found.hold.revoked
            and found.hold.lease_ms is not None
            and self._unwritten_ms(name, found, now_ms) >= found.hold.lease_ms
        ]

    def _unwritten_ms(self, name: str, found: StoredHold, now_ms: float) -> float:
        etag, unwritten_ms = self.unwritten.get(name, ("", 0.0))
        if etag != found.etag or found.hold.lease_ms is None:
            return 0.0
        return unwritten_ms + counted_ms(now_ms - self.looked_ms, found.hold.lease_ms)


def counted_ms(passed_ms: float, lease_ms: int) -> float:
    """C19: what counts of a lease, of the time that passed between two looks. A reader renews after half its lease,
    so after an outage of both it has time left to be heard."""
    return min(passed_ms, lease_ms / LOOKS_A_LEASE)


def to_remove(head: Area, stored: Mapping[str, StoredHold]) -> list[str]:
    """Holds that anybody may delete: leased ones that were revoked, and all of a deleted collection. The name of a
    critical one may be taken again, and a removal that comes late would hit the next one."""
    return [
        name for name, found in stored.items() if head.deleted or (found.hold.revoked and not found.hold.is_critical)
    ]


def revoking(hold: Hold, nonce: str) -> Hold:
    """``hold`` revoked. Its owner finds that when it reads it."""
    return replace(hold, revoked=True, nonce=nonce)


def expiring(stored: StoredHold, nonce: str) -> Hold:
    """What a user who expires ``stored`` writes in its place. A damaged one may have been critical, so what stands for
    it is left there as that of a critical one is."""
    return revoking(replace(stored.hold, version=None) if stored.damage else stored.hold, nonce)


def damaged(stored: Mapping[str, StoredHold]) -> dict[str, str]:
    """What is wrong with those of ``stored`` that cannot be read, by reader. While there is one, nothing is collected:
    it may be that of a reader whose version and files nobody can name."""
    return {name: found.damage for name, found in sorted(stored.items()) if found.damage}


def is_hoarding(hold: Hold, lowest: int) -> bool:
    """Whether a leased hold retains versions below ``lowest``, which is too many."""
    return not hold.revoked and hold.lease_ms is not None and hold.version is not None and hold.version < lowest


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the holds that stand allow.

    meet: of their sinces; ``None`` without holds (C29)
    oldest: the lowest version that a leased one has; ``None`` without. Critical ones count for since only
    """

    meet: Frontier | None = None
    oldest: int | None = None


def allowed(standing: Iterable[Hold]) -> Allowed:
    """What all ``standing`` allow: every one that was read and is not revoked, but one whose revocation was answered
    yes (C19)."""
    holds = [hold for hold in standing if not hold.revoked]
    versions = [hold.version for hold in holds if hold.version is not None]
    meet = meet_of([hold.since for hold in holds]) if holds else None
    return Allowed(meet, min(versions, default=None))


def meet_of(sinces: list[Frontier]) -> Frontier:
    """C16: the meet over ALL of them."""
    return meet_all(sinces)


def compaction_target(head: Area, meet: Frontier | None) -> Frontier:
    """C16: what merges may compact to: the bound that ``head`` has published, as far as the holds that were listed
    after it allow. The since of ``head`` when that is done: no time is left to advance to."""
    target = head.bound if meet is None else head.bound.meet(meet).coarsened()
    return head.since if target.is_done else target


def may_end(head: Area, meet: Frontier | None) -> bool:
    """C16: whether since may become done. ``head`` published that, and no hold listed after it keeps a time."""
    return head.bound.is_done and (meet is None or meet.is_done)
