"""Counters of contention: how often writers of the same metadata got in each other's way, or in the backend's.

Every register and metastore of this package has a ``stats`` of its own (`Counted`); none of their
counts is contained in another's, so they may be added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from metastores.protocol import CasOutcome, CommitOutcome, Committed, Conflict

Outcome = TypeVar("Outcome", CasOutcome, CommitOutcome)


@dataclass(slots=True)
class MetaStats:
    """Counts since the register or metastore was made."""

    commits: int = 0
    """Conditional writes that ended as `Committed`."""
    conflicts: int = 0
    """Conditional writes that ended as `Conflict`: another writer was faster."""
    unknowns: int = 0
    """Conditional writes that ended as `Unknown`: an answer was lost."""
    throttles: int = 0
    """Requests the backend refused for its load (DynamoDB; an object store's client counts its own)."""
    write_conflicts: int = 0
    """Requests refused unjudged for a write of another region at the same time (DynamoDB)."""
    retries: int = 0
    """Requests and readings repeated by the metastore itself (an object store's client counts its own)."""

    def counted(self, outcome: Outcome) -> Outcome:
        """Count ``outcome`` and pass it on."""
        if isinstance(outcome, Committed):
            self.commits += 1
        elif isinstance(outcome, Conflict):
            self.conflicts += 1
        else:
            self.unknowns += 1
        return outcome


@runtime_checkable
class Counted(Protocol):
    """A register or metastore that counts. Backends need not: look with ``isinstance``."""

    @property
    def stats(self) -> MetaStats:
        """Its counters, live."""
