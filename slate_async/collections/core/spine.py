"""The spine: which batches of the merged area are merged, and when.

Batches stand in layers (`MergedBatch.level`), oldest first. The plan brings them into strictly falling order: a batch
takes in all older neighbours of its own layer and below. Two of one layer are a *pair*, which waits for fuel: each
absorbed batch of layer l grants ``8 << l`` rows to every pair, so the work is spread over what comes in. Any other
merge is due at once: a batch that came in above smaller ones, a result that shrank below its neighbours, a third one of
a layer. While one of those is open, nothing is absorbed (`has_room`).

Invariant: an area with room has at most two batches of a layer, in falling order; no other has more than one beyond
that. So it has at most ``2 * (log2(rows) + 1) + 1``.

Fuel is bookkeeping: a merge that is lost is planned again. An idle collection is merged into one batch, the smallest
ones first, and that batch is compacted once when since has passed it (`idle_merge`); then it costs nothing.

Source: `spine_fueled` of differential dataflow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from slate_async.collections.core.area import Area, Fuel, MergedBatch, level_of
from slate_async.collections.core.frontier import Frontier

FUEL_SHARE = 8
"""Rows of fuel for each row of the layer that comes in."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbours that are to become one batch, oldest first. One batch alone is compacted.

    fuel: rows granted so far
    """

    batches: tuple[MergedBatch, ...]
    fuel: int = 0

    @property
    def rows(self) -> int:
        """What it reads."""
        return sum(batch.rows for batch in self.batches)

    @property
    def names(self) -> tuple[str, ...]:
        """Of its inputs."""
        return tuple(batch.name for batch in self.batches)

    @property
    def is_pair(self) -> bool:
        """Whether it is two batches of one layer: only that waits for fuel."""
        return len(self.batches) == 2 and self.batches[0].level == self.batches[1].level

    @property
    def is_due(self) -> bool:
        """Whether it may run now."""
        return not self.is_pair or self.fuel >= self.rows


@dataclass(frozen=True, slots=True)
class Exertion:
    """What an idle controller has granted so far to the merge of the batches called ``names``, in rows."""

    names: tuple[str, ...]
    rows: int


def plan(area: Area) -> list[Merge]:
    """The merges of ``area`` that wait, oldest first."""
    granted = {(fuel.first, fuel.last): fuel.rows for fuel in area.fuel}
    return [
        Merge(batches, granted.get((batches[0].name, batches[-1].name), 0))
        for batches in _groups(area.batches)
        if len(batches) > 1
    ]


def _groups(batches: Sequence[MergedBatch]) -> Iterator[tuple[MergedBatch, ...]]:
    """``batches`` in groups whose layers fall: each takes in the older ones of its layer and below."""
    groups: list[list[MergedBatch]] = []
    levels: list[int] = []
    for batch in batches:
        group = [batch]
        while levels and levels[-1] <= batch.level:
            levels.pop()
            group = groups.pop() + group
        groups.append(group)
        levels.append(batch.level)
    return map(tuple, groups)


def due(area: Area, busy: Collection[str]) -> list[Merge]:
    """The merges that may run now, without those that touch a batch named in ``busy``. Those that hold absorbing up
    come first, then the smallest."""
    free = (merge for merge in plan(area) if merge.is_due and not any(name in busy for name in merge.names))
    return sorted(free, key=lambda merge: (merge.is_pair, merge.rows))


def has_room(area: Area) -> bool:
    """Whether a batch may be absorbed: no merge waits but pairs."""
    return all(merge.is_pair for merge in plan(area))


def refuelled(area: Area, absorbed: MergedBatch | None = None) -> Area:
    """``area``, the same version, with the fuel that its pairs have, and what ``absorbed`` grants them."""
    grant = 0 if absorbed is None else FUEL_SHARE << absorbed.level
    pairs = (replace(merge, fuel=min(merge.fuel + grant, merge.rows)) for merge in plan(area) if merge.is_pair)
    kept = tuple(Fuel(pair.names[0], pair.names[-1], pair.fuel) for pair in pairs if pair.fuel)
    return area if kept == area.fuel else replace(area, fuel=kept)


def idle_merge(area: Area, target: Frontier) -> Merge | None:
    """What to do while nothing comes in: the smallest merge that waits, else the two newest batches, else the only
    batch alone, if it can shrink; ``None`` once nothing is left to do.

    target: what compaction may go to"""
    waiting = plan(area)
    if waiting:
        return min(waiting, key=lambda merge: merge.rows)
    if len(area.batches) > 1:
        return Merge(area.batches[-2:])
    if area.batches and can_shrink(area.batches[0], target):
        return Merge(area.batches)
    return None


def can_shrink(batch: MergedBatch, target: Frontier) -> bool:
    """Whether compacting ``batch`` to ``target`` may join updates of one datum: it has several times, and target has
    come to the last of them for the first time, so that it is rewritten once.

    That is a step behind its upper. Readers who follow a collection stay there, to be able to start again. The end of a
    closed collection says nothing of its last time, so its batch is rewritten whenever target has moved on."""
    bounds = batch.bounds
    is_reached = bounds.upper.is_done or bounds.upper.step_back() <= target
    return batch.times > 1 and is_reached and not target <= bounds.since


def exert(area: Area, target: Frontier, before: Exertion | None, rows: int) -> tuple[Exertion | None, Merge | None]:
    """Grant ``rows`` to the next `idle_merge`, and give that merge once all its rows are paid for. Nothing must be due.

    before: what the last call returned; counts only while the next merge is still the same, so that a collection to
    which a little comes in now and then is not rewritten each time"""
    merge = idle_merge(area, target)
    if merge is None:
        return None, None
    saved = before.rows if before is not None and before.names == merge.names else 0
    granted = Exertion(merge.names, saved + rows)
    return granted, (merge if merge.fuel + granted.rows >= merge.rows else None)


def most_batches(rows: int) -> int:
    """How many batches an area has at most of which all that was ever absorbed were ``rows``."""
    return 2 * (level_of(rows) + 1) + 1
