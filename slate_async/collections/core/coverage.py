"""Coverage: how far pending batches take a reader, a controller or a writer (rule C4).

Coverage is the frontier up to which all updates are known. It starts at the upper of the merged batches and grows by
pending batches: one extends coverage C iff its lower is at or below C and its upper is not. The rows at times beyond C
are taken from it, and C becomes ``C join upper``. So nothing is taken twice, and nothing across a gap.

Invariant: any choice and order of batches gives the same updates (property P4), if batches of several writers hold the
same updates at each time. The longest reach first takes the fewest.

Rule C4 of collections.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from slate_async.collections.core.frontier import Frontier


class Spanning(Protocol):
    """A batch: all updates at times beyond lower and not beyond upper, as they were written."""

    @property
    def lower(self) -> Frontier:
        """Where it begins."""
        ...

    @property
    def upper(self) -> Frontier:
        """Where it ends."""
        ...


B = TypeVar("B", bound=Spanning)


class Reach(Enum):
    """What a batch from lower to upper is to a coverage."""

    EXTENDS = "extends"
    COVERED = "covered"
    """All that it holds is known: it is a repetition."""
    GAP = "gap"
    """It begins beyond the coverage: what lies between is not known yet."""


def reach(coverage: Frontier, lower: Frontier, upper: Frontier) -> Reach:
    """What the batch from ``lower`` to ``upper`` is to ``coverage``: rule C4."""
    if upper <= coverage:
        return Reach.COVERED
    return Reach.EXTENDS if lower <= coverage else Reach.GAP


@dataclass(frozen=True, slots=True)
class Taken(Generic[B]):
    """A batch that extended coverage from ``start`` to ``end``: its rows at times beyond ``start`` are taken."""

    batch: B
    start: Frontier
    end: Frontier

    @property
    def is_whole(self) -> bool:
        """Whether all rows are taken, because none is at a time that was covered."""
        return self.start <= self.batch.lower


@dataclass(frozen=True, slots=True)
class Extension(Generic[B]):
    """How far a coverage grew, and by what, in order."""

    coverage: Frontier
    taken: tuple[Taken[B], ...]


def extend(coverage: Frontier, batches: Iterable[B], *, limit: int | None = None) -> Extension[B]:
    """Extend ``coverage`` by those of ``batches`` that extend it, the longest reach first, and at most ``limit``.

    Batches wait in the order of their lower's rank. ``F <= G`` implies ``rank(F) <= rank(G)``, so a batch is looked at
    when the rank of coverage reaches that of its lower, and again after that only if times are pairs."""
    waiting = [(_rank(batch.lower), number, batch) for number, batch in enumerate(batches)]
    heapq.heapify(waiting)
    blocked: list[B] = []
    reachable: list[tuple[float, int, B]] = []
    order = itertools.count()
    taken: list[Taken[B]] = []
    while limit is None or len(taken) < limit:
        while waiting and waiting[0][0] <= _rank(coverage):
            blocked.append(heapq.heappop(waiting)[2])
        still_blocked = []
        for batch in blocked:
            match reach(coverage, batch.lower, batch.upper):
                case Reach.EXTENDS:
                    heapq.heappush(reachable, (-_rank(batch.upper), next(order), batch))
                case Reach.GAP:
                    still_blocked.append(batch)
                case Reach.COVERED:
                    pass
        blocked = still_blocked
        while reachable and reachable[0][2].upper <= coverage:
            heapq.heappop(reachable)
        if not reachable:
            break
        batch = heapq.heappop(reachable)[2]
        end = coverage.join(batch.upper)
        taken.append(Taken(batch, coverage, end))
        coverage = end
    return Extension(coverage, tuple(taken))


def _rank(frontier: Frontier) -> float:
    """A number that is as large or larger for every frontier above this one: the smallest sum of an element."""
    return min((sum(element) for element in frontier.elements), default=math.inf)
