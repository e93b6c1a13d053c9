"""`Area`: one version of the merged area, a frozen value that says what a collection holds up to its ``upper``.

Invariants (`check_area`, before every commit): the batches are neighbours in time, oldest first, from ``lower`` to
``upper``; no name comes twice; no batch is compacted further than ``since``, and that not further than ``bound``;
``floor`` is no later version than this one. `check_successor` (C26): versions are consecutive; epoch, upper, since,
bound and floor never go back; a deleted collection stays deleted.

Version 0 is not stored: it is what a life begins with (`Area.first`).

Rules C16, C17, C23 and C26 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from slate_async.codec.records import no_fields
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Frontier
from slate_async.errors import InternalError


@dataclass(frozen=True, slots=True)
class MergedBatch:
    """A batch of the merged area, as a version names it. A batch without rows has no object.

    name: of its object, or of the index of its parts; says bounds, epoch and token (C23)
    rows: updates in it, consolidated; ``keys``: different data among them, ``times``: different times
    diff_sum: of all its diffs
    nbytes, crc: of the object of that name
    parts: objects that its index names; 0 if it is one object
    unknown: fields of newer versions, kept as they are
    """

    name: str
    bounds: Bounds
    rows: int
    keys: int
    times: int
    diff_sum: int
    nbytes: int
    crc: int
    parts: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def level(self) -> int:
        """The layer it stands in: a batch of layer i has at most ``2**i`` rows, and more than half of that."""
        return level_of(self.rows)


def level_of(rows: int) -> int:
    """log2 of ``rows``, rounded up; 0 for none."""
    return max(rows - 1, 0).bit_length()


@dataclass(frozen=True, slots=True)
class Fuel:
    """What was granted to the merge of the batches named ``first`` to ``last``, in rows."""

    first: str
    last: str
    rows: int


@dataclass(frozen=True, slots=True)
class Area:
    """See the module docstring.

    epoch, token: of the controller that claimed last
    lower, upper: the batches hold all updates at times beyond lower and not beyond upper
    since: their times are compacted to it, so they answer for times beyond it
    bound: what compaction may go to at most, together with the holds that were listed after this version (C16)
    floor: versions below it are needed by no hold but those that are listed after this version (C17)
    last: token of the pending batch that was absorbed last; empty before the first
    fuel: of the merges that wait
    deleted: this is the tombstone of the collection
    """

    version: int
    epoch: int
    token: str
    lower: Frontier
    upper: Frontier
    since: Frontier
    bound: Frontier
    floor: int
    last: str = ""
    batches: tuple[MergedBatch, ...] = ()
    fuel: tuple[Fuel, ...] = ()
    deleted: bool = False
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @classmethod
    def first(cls, minimum: Frontier) -> Area:
        """Version 0 of a collection whose times begin at ``minimum``."""
        return cls(0, 0, "", minimum, minimum, minimum, minimum, 0)

    @property
    def is_ended(self) -> bool:
        """Whether it can never be read again: it is deleted, or closed and compacted beyond all times."""
        return self.deleted or (self.upper.is_done and self.since.is_done)

    @property
    def rows(self) -> int:
        """Of all batches."""
        return sum(batch.rows for batch in self.batches)

    def names(self) -> Sequence[str]:
        """Of its batches, oldest first."""
        return [batch.name for batch in self.batches]

    def following(self, **changes: Any) -> Area:
        """The next version, with ``changes``."""
        return replace(self, version=self.version + 1, **changes)


def find_neighbours(batches: Sequence[MergedBatch], names: Sequence[str]) -> slice | None:
    """Where in ``batches`` those called ``names`` stand one after the other; ``None`` if they do not."""
    stored = [batch.name for batch in batches]
    if not names or names[0] not in stored:
        return None
    start = stored.index(names[0])
    found = slice(start, start + len(names))
    return found if stored[found] == list(names) else None


def check_area(area: Area) -> None:
    """Raise `InternalError` if an invariant of one version does not hold."""
    if not area.is_ended:
        _check_batches(area)
    elif area.batches:
        raise InternalError(f"version {area.version} has ended and names batches")
    if not area.since <= area.bound:
        raise InternalError(f"version {area.version} is compacted to {area.since}, beyond its bound {area.bound}")
    if area.floor > area.version:
        raise InternalError(f"the floor {area.floor} of version {area.version} is a later version")


def _check_batches(area: Area) -> None:
    if len(set(area.names())) < len(area.batches):
        raise InternalError(f"version {area.version} names a batch twice")
    ends = [area.lower, *(batch.bounds.upper for batch in area.batches)]
    for end, batch in zip(ends, area.batches, strict=False):
        if batch.bounds.lower != end:
            raise InternalError(f"{batch.name} begins at {batch.bounds.lower}, and the batch before it ends at {end}")
        if not batch.bounds.since <= area.since:
            raise InternalError(f"{batch.name} is compacted to {batch.bounds.since}, beyond since {area.since}")
    if ends[-1] != area.upper:
        raise InternalError(f"the batches of version {area.version} end at {ends[-1]}, its upper is {area.upper}")


def check_successor(old: Area, new: Area) -> None:
    """Raise `InternalError` if ``new`` breaks what every edit of ``old`` must keep (C26)."""
    check_area(new)
    if new.version != old.version + 1:
        raise InternalError(f"version {new.version} is made of version {old.version}")
    for name in ("epoch", "floor", "upper", "since", "bound"):
        if not getattr(old, name) <= getattr(new, name):
            raise InternalError(f"an edit took {name} back from {getattr(old, name)} to {getattr(new, name)}")
    if old.deleted and not new.deleted:
        raise InternalError("an edit undid a deletion")
    if new.lower != old.lower or old.unknown != new.unknown:
        raise InternalError("an edit changed what is fixed: the lower frontier, or unknown fields")


def check_history(versions: Iterable[Area]) -> None:
    """Raise `InternalError` unless each of ``versions`` follows the one before it."""
    for old, new in pairwise(versions):
        check_successor(old, new)
