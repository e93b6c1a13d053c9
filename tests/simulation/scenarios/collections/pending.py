"""The pending area: names of batches, and how far they take a coverage. One way for all who read it."""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.collections.core import coverage, names
from slate_async.collections.core.area import Area
from slate_async.collections.core.chain import Link, Walk
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import PendingFile
from tests.simulation.scenarios.collections.stage import PendingBatch, Request, Role, Stage, Update, Updates


@dataclass(frozen=True, slots=True)
class Pending:
    """What was read of the pending area. ``last``: token of the batch that ends it."""

    upper: Frontier
    updates: Updates
    last: str


def name_of(stage: Stage, writer: str, lower: Frontier, upper: Frontier) -> str:
    """Where a batch of ``writer`` lies: C5, C7."""
    if stage.appends == "compare":
        return str(names.PendingName(names.COMPARE_SHARD, lower, None))
    return str(names.PendingName(writer, lower, upper))


def file_of(stage: Stage, name: str) -> PendingFile | None:
    """What a name says; ``None`` if that is not all by which its deletion is decided."""
    parsed = names.parse_pending(name, stage.kind)
    assert parsed is not None
    assert isinstance(parsed.lower, Frontier)
    assert parsed.upper is None or isinstance(parsed.upper, Frontier)
    return PendingFile(name, parsed.lower, parsed.upper)


def read_from(stage: Stage, head: Area, start: Frontier, limit: int | None = None) -> Role[Pending | None]:
    """All there is beyond ``start``; ``None`` if something that was listed is not there."""
    if stage.appends == "compare":
        return (yield from walked(stage, start, head.last))
    return (yield from listed(stage, start, head.last, limit))


def walked(stage: Stage, start: Frontier, last: str) -> Role[Pending]:
    """Along the chain: C7."""
    walk, updates = Walk(start, start), list[Update]()
    while True:
        name = name_of(stage, names.COMPARE_SHARD, walk.at, walk.at)
        found = yield stage.get(name)
        if found is None:
            return Pending(walk.at, tuple(updates), last if walk.last is None else walk.last.token)
        batch: PendingBatch = found.value
        updates += batch.updates
        walk = walk.past(Link(batch.lower, batch.upper, batch.token), name)


def listed(
    stage: Stage, start: Frontier, last: str, limit: int | None = None, *, trimmed: bool = True
) -> Role[Pending | None]:
    """All shards: C4. ``trimmed``: without the rows that were covered before."""
    batches: list[PendingBatch] = []
    for name in (yield stage.list(names.PENDING_BATCHES)):
        file = file_of(stage, name)
        if file is not None and file.upper is not None and file.upper <= start:
            continue
        found = yield stage.get(name)
        if found is not None:
            batches.append(found.value)
        elif file is not None:
            return None
    stage.rng.shuffle(batches)
    grown = coverage.extend(start, batches, limit=limit)
    updates = tuple(
        update for taken in grown.taken for update in taken.batch.updates if is_taken(taken, update) or not trimmed
    )
    return Pending(grown.coverage, updates, grown.taken[-1].batch.token if grown.taken else last)


def is_taken(taken: Taken[PendingBatch], update: Update) -> bool:
    """C4: rows beyond what was covered before."""
    return taken.start.less_equal(update[1])


def get_chain_end(stage: Stage, at: Frontier) -> Request:
    """Look up the one name that can come next."""
    return stage.get(name_of(stage, names.COMPARE_SHARD, at, at))
