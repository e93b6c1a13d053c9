"""Which version may be read for what.

What is compacted is not cut (C2): times as they were written may be cut at any frontier, but those of a version have
been advanced to its since. And a handle that asks compares THAT version's since with what it asks (C3): its own since
proves nothing, because its lease may have been lost.

Rules C2 and C3 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable

from slate_async.collections.core.area import Area
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import Time

FAR_VERSIONS = 8
"""A handle moves its hold when the head is so many versions on, or half its lease is over."""


def may_adopt(head: Area, coverages: Iterable[Frontier]) -> bool:
    """C2: whether a handle whose listeners have come to ``coverages`` may read ``head`` instead of an older version: no
    listener needs an update from it, whose time may be compacted."""
    return all(head.upper <= coverage for coverage in coverages)


def may_read(area: Area, as_of: Time) -> bool:
    """C3: whether ``area`` distinguishes the times that a snapshot at ``as_of``, or a listener from there, needs."""
    return area.since.less_equal(as_of)


def may_restart(area: Area, coverage: Frontier) -> bool:
    """C2, C3: whether ``area`` shows what lies beyond ``coverage``, or nothing of it is needed."""
    return area.upper <= coverage or is_cut_at(area.since, coverage)


def is_cut_at(since: Frontier, coverage: Frontier) -> bool:
    """C2: whether times compacted to ``since`` still show which of them lie beyond ``coverage``."""
    return since.strictly_below(coverage)


def to_restart_from(coverage: Frontier) -> Frontier:
    """C2: the highest since under which a listener can be started again from ``coverage``."""
    return coverage.step_back()


def after(as_of: Time) -> Frontier:
    """What every time that is not at or before ``as_of`` is beyond: where a listener from there begins."""
    rest = range(len(as_of))
    return Frontier(tuple(as_of[at] + 1 if at == place else 0 for at in rest) for place in rest)


def until_first(lower: Frontier, upper: Frontier, first: int) -> Frontier:
    """The end of what is beyond ``lower``, not beyond ``upper``, and has a first coordinate before ``first``."""
    if lower.is_done:
        return upper
    return lower.join(upper.meet(Frontier([(first, *(0,) * (len(lower.elements[0]) - 1))])))


def is_skipped(bounds: Bounds, coverage: Frontier) -> bool:
    """C3: whether a batch holds nothing for a listener that has come to ``coverage``."""
    return bounds.upper <= coverage


def too_early(as_of: Time, since: Frontier) -> str:
    """Why a snapshot ``as_of`` cannot be asked for where times were compacted to ``since``, in words."""
    relation = "is before" if len(as_of) == 1 else "is not at or beyond any time of"
    return f"as_of {Frontier([as_of])} {relation} since {since}"


def is_worth_moving(held: int, head: int, unwritten_ms: float, lease_ms: int) -> bool:
    """Whether to write the hold now, which renews its lease and moves it in one request."""
    return head - held >= FAR_VERSIONS or unwritten_ms >= lease_ms / 2
