"""Bounds of a batch: which times it is about, and how far they may have been compacted.

A batch holds all updates at times beyond ``lower`` and not beyond ``upper``. ``since`` says how far these times may
have been advanced (rule C1) by compaction: a batch answers for reads at times beyond its since, and only such. A batch
whose times are as they were written has the minimum as its since.

Invariant: ``lower <= upper``, and neighbours share a frontier: the upper of one is the lower of the next.

Source: `Description` of differential dataflow.

Rules C1 and C2 of collections.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slate_async.collections.core.frontier import Frontier, Mask, join_all
from slate_async.collections.core.times import Time, Times
from slate_async.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Bounds:
    """``lower``, ``upper`` and ``since`` of a batch. Raises `InvalidError` if lower is not at or below upper."""

    lower: Frontier
    upper: Frontier
    since: Frontier

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise InvalidError(f"lower {self.lower} is not at or below upper {self.upper}")

    @property
    def is_empty(self) -> bool:
        """Whether no time lies within."""
        return self.lower == self.upper

    def contains(self, time: Time) -> bool:
        """Whether an update was written at ``time`` if it is in this batch: beyond lower, not beyond upper."""
        return self.lower.less_equal(time) and not self.upper.less_equal(time)

    def mask(self, columns: Times) -> Mask:
        """`contains` of each of ``columns``."""
        within: Mask = self.lower.mask(columns) & ~self.upper.mask(columns)
        return within

    def can_cut(self, at: Frontier) -> bool:
        """Rule C2: whether the rows at times beyond ``at`` can be separated from the others.

        So it is where times are as they were written, because the minimum is strictly below every frontier."""
        return self.since.strictly_below(at)

    def cut(self, at: Frontier) -> Bounds:
        """The bounds of the rows at times beyond ``at``. Raises `InvalidError` if they cannot be separated."""
        if not self.can_cut(at):
            raise InvalidError(f"times compacted to {self.since} cannot be cut at {at}")
        return replace(self, lower=self.lower.join(at), upper=self.upper.join(at))

    def compacted(self, since: Frontier) -> Bounds:
        """The bounds after times were advanced to ``since``."""
        return replace(self, since=self.since.join(since))


def spanning(neighbours: Sequence[Bounds]) -> Bounds:
    """The bounds of ``neighbours``, oldest first, merged into one batch.

    Raises `InvalidError` if there are none, or if the upper of one is not the lower of the next."""
    if not neighbours:
        raise InvalidError("no batch has no bounds")
    for earlier, later in itertools.pairwise(neighbours):
        if earlier.upper != later.lower:
            raise InvalidError(f"a batch up to {earlier.upper} and one from {later.lower} are no neighbours")
    first = neighbours[0]
    since = join_all((bounds.since for bounds in neighbours[1:]), first.since)
    return Bounds(first.lower, neighbours[-1].upper, since)
