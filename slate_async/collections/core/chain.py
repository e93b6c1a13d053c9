"""Appends of ``compare`` collections: one chain of batches, each named by its lower frontier alone (C7).

Everybody looks up only the name of the frontier that they have come to, and puts only there, so the first to put at the
end of the chain decides what follows. A batch whose lower is before the merged upper is dead, wherever its upper is:
its name was collected and put once more by a process that slept.

Ordering rules:
* the end is found by walking from the head's upper, or from a link that is known, and counts iff a head read AFTERWARDS
  has not moved past where the walk began (C9)
* a put is acknowledged after a head read that FOLLOWS it (C8)

Rules C7 to C9 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class Link:
    """A batch of the chain, as it was read. ``token``: of the append that put it."""

    lower: Frontier
    upper: Frontier
    token: str


@dataclass(frozen=True, slots=True)
class Walk:
    """Along the chain. ``began``: where; ``at``: the name to look up next; ``last``: the link that ends there."""

    began: Frontier
    at: Frontier
    last: Link | None = None

    @classmethod
    def from_head(cls, head: Area) -> Walk:
        """A walk that begins at the upper of ``head``."""
        return cls(head.upper, head.upper)

    @classmethod
    def from_link(cls, upper: Frontier) -> Walk:
        """A walk that begins at ``upper``, where a batch of the chain was known to end. Until the merged area has moved
        past it, that batch is one still, and no name from there on was collected."""
        return cls(upper, upper)

    def past(self, link: Link, name: str) -> Walk:
        """After ``link`` was found under the name of `at`. Raises `CorruptionError` if it leads nowhere."""
        if link.lower != self.at or not self.at < link.upper:
            raise CorruptionError(
                f"a batch from {link.lower} to {link.upper} lies where one from {self.at} belongs", object_name=name
            )
        return replace(self, at=link.upper, last=link)

    def counts(self, head: Area) -> bool:
        """C9: whether `at` was the end of the chain, by a ``head`` that was read after nothing was found there. If not,
        what was not there may have been collected."""
        return head.upper <= self.began


def is_dead(lower: Frontier, merged_upper: Frontier) -> bool:
    """C7: whether a batch named ``lower`` is of no account once the merged area goes to ``merged_upper``."""
    return not merged_upper <= lower


class Put(Enum):
    """What an append's put came to, before a head was read.

    OWN: my batch lies there; TAKEN: another's does; UNKNOWN: nobody answered, and looking there may tell
    """

    OWN = "own"
    TAKEN = "taken"
    UNKNOWN = "unknown"


def judge_put(mine: Link, found: Link | None) -> Put:
    """What lies under the name of ``mine`` (``None``: it could not be found out)."""
    if found is None:
        return Put.UNKNOWN
    return Put.OWN if found.token == mine.token else Put.TAKEN


def is_acknowledged(mine: Link, head: Area) -> bool:
    """C8: whether ``mine``, which was found to lie there, is part of the chain for certain, by a ``head`` that was read
    after that: the merged area had not come to it, or it ends with it. Else its outcome is unknown: it may lie at a
    name that was collected, where nobody looks."""
    return head.upper <= mine.lower or (head.upper == mine.upper and head.last == mine.token)
