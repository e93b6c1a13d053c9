"""Controllers: rounds of absorbing, publishing and collecting garbage, and mergers beside them. Two are safe.

A quiet one, at the end, brings the collection to rest: no holds, one batch, no garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slate_async.collections.core import garbage, names, spine, sweep, times
from slate_async.collections.core.area import Area, MergedBatch, check_successor
from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.edits import Absorb, Claim, Finalize, Publish, ReplaceMerged, Tombstone
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, MergedFile, PendingFile, Picture, Wanted
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.collections.core.sweep import Leases, Listing
from slate_async.errors import ClosedError, ConflictError, FencedError
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.collections import pending
from tests.simulation.scenarios.collections.stage import (
    HASTY,
    TAKEN,
    UNKNOWN,
    Process,
    Role,
    Stage,
    Update,
    Updates,
    consolidated,
    retried,
)

ROUNDS, QUIET_ROUNDS = 400, 16
TRIES = 8
AreaEdit = Claim | Publish | ReplaceMerged | Finalize | Tombstone


@dataclass(slots=True)
class Controller:
    """What one knows. ``target``: what its mergers may compact to; ``None`` before its first round."""

    quiet: bool
    epoch: int = 0
    target: Frontier | None = None
    in_flight: set[str] = field(default_factory=set)
    leases: Leases = field(default_factory=Leases)


def controller(stage: Stage, process: Process, quiet: bool = False) -> Role[None]:
    """Claim the role and do the rounds."""
    mine = Controller(quiet)
    try:
        claimed = yield from commit(stage, Claim(stage.token()))
        assert claimed is not None
        mine.epoch = claimed.epoch
        for _ in range(0 if quiet else 2):
            stage.spawn(merger(stage, mine), process)
        if stage.mood == "lease" and not quiet:
            stage.spawn(sweeper(stage, mine), process)
        for _ in range(QUIET_ROUNDS if quiet else ROUNDS):
            yield from one_round(stage, mine)
            if quiet:
                yield from merge_once(stage, mine)
            else:
                yield from stage.idle(stage.rng.choice((0, 0, 5) if stage.mood in HASTY else (0, 0, 5, 30)))
    except FencedError:
        stage.stats["fenced"] += 1
    except ClosedError:
        stage.stats["closed"] += 1
        yield from bury(stage, mine)


def merger(stage: Stage, mine: Controller) -> Role[None]:
    """Beside a controller, until it is fenced."""
    try:
        while True:
            yield from merge_once(stage, mine)
            yield from stage.idle(stage.rng.choice((1, 5, 20)))
    except (FencedError, ClosedError):
        return


def sweeper(stage: Stage, mine: Controller) -> Role[None]:
    """Beside a controller: looks at the holds more often than it has rounds. Few histories have as many rounds as it
    takes looks to see a lease end (C19)."""
    while True:
        head: Area = yield stage.read_head()
        if head.deleted or head.epoch != mine.epoch:
            return
        yield from read_holds(stage, mine, head)
        yield from stage.idle(stage.rng.choice((0, 0, 5)))


def deleter(stage: Stage, process: Process) -> Role[None]:
    """A process that deletes the collection, whoever holds it."""
    yield from stage.idle(stage.rng.randrange(20, 150))
    yield from commit(stage, Tombstone(stage.token()))
    stage.stats["deletions"] += 1
    yield from bury(stage, Controller(quiet=False))


def bury(stage: Stage, mine: Controller) -> Role[None]:
    """Take all that is left of a deleted collection, and what zombies put there meanwhile; the holds first: C14."""
    head: Area = yield stage.read_head()
    mine.epoch = head.epoch
    for _ in range(3):
        yield from remove_holds(stage, mine, head)
        yield from collect_garbage(stage, mine, head, [])


def remove_holds(stage: Stage, mine: Controller, head: Area) -> Role[None]:
    """Until a listing shows none: C18."""
    while listed := (yield stage.list(names.READERS)):
        stored: dict[str, StoredHold] = {}
        for name in listed:
            found = yield stage.get(name)
            if found is not None:
                stored[name] = StoredHold(found.value, found.etag)
        for name in sweep.to_remove(head, stored):
            yield stage.delete(name)


# ---- commits


def commit(stage: Stage, edit: AreaEdit) -> Role[Area | None]:
    """The commit loop, as in `slate_async.commits`: on any answer but yes the edit is judged again on the head."""
    while True:
        head: Area = yield stage.read_head()
        new = edit.apply(head)
        if new is None:
            return head
        check_successor(head, new)
        answer = yield stage.commit(new)
        if answer is True:
            return new
        if answer is UNKNOWN and is_settled(edit):
            return None
        yield from stage.nap("commit", 60)


def is_settled(edit: AreaEdit) -> bool:
    """C22: whether a commit without an answer is taken for settled. It never is."""
    return False


# ---- rounds


def one_round(stage: Stage, mine: Controller) -> Role[None]:
    """Holds, absorb, publish, collect: C16, C17."""
    head: Area = yield stage.read_head()
    standing = yield from read_holds(stage, mine, head)
    yield from stage.nap("register", 60)
    allows = sweep.allowed(standing)
    mine.target = sweep.compaction_target(head, allows.meet)
    absorb = None
    if spine.has_room(head) or mine.quiet:
        limit = 1 if stage.rng.random() < 0.3 and not mine.quiet else None
        found = yield from to_absorb(stage, head, limit)
        if found is not None and found.upper != head.upper and (yield from is_in_chain(stage, head)):
            batch = yield from put_merged(stage, mine, Bounds(head.upper, found.upper, head.since), found.updates)
            if batch is None:
                return
            absorb = Absorb(mine.epoch, batch, found.last)
    published = None
    try:
        published = yield from commit(stage, Publish(mine.epoch, allows.meet, allows.oldest, absorb))
    except ConflictError:
        stage.stats["absorbed by another"] += 1
    if absorb is not None:
        mine.in_flight.discard(absorb.batch.name)
    if published is not None:
        if sweep.may_end(head, allows.meet):
            yield from end_if_given_up(stage, mine, published)
        yield from collect_garbage(stage, mine, head, standing)


def to_absorb(stage: Stage, head: Area, limit: int | None) -> Role[pending.Pending | None]:
    """What is pending beyond the upper: C4."""
    return pending.read_from(stage, head, head.upper, limit)


def is_in_chain(stage: Stage, head: Area) -> Role[bool]:
    """C30: what was read of a chain counts by a head that is read afterwards."""
    if stage.appends == "definite":
        return True
    now: Area = yield stage.read_head()
    return now.upper <= head.upper


def end_if_given_up(stage: Stage, mine: Controller, published: Area) -> Role[None]:
    """A collection that is closed, whose last time all holds have given up."""
    if Finalize(mine.epoch).apply(published) is not None:
        ended = yield from commit(stage, Finalize(mine.epoch))
        stage.stats["ended"] += ended is not None


def read_holds(stage: Stage, mine: Controller, head: Area) -> Role[list[Hold]]:
    """All that stand: C18, C19."""
    listing, standing = Listing(), list[Hold]()
    stored: dict[str, StoredHold] = {}
    while True:
        listing = listing.listed((yield stage.list(names.READERS)))
        for name in sorted(listing.unread):
            yield from stage.nap("clones", 60)
            found = yield stage.get(name)
            if found is None:
                continue
            stored[name] = StoredHold(found.value, found.etag)
            if sweep.to_remove(head, {name: stored[name]}):
                yield stage.delete(name)
            elif not found.value.revoked and not (yield from is_revoked(stage, mine, name, stored[name])):
                standing.append(found.value)
        if listing.complete:
            mine.leases = mine.leases.noted(stored, stage.now)
            return standing
        listing = listing.read()


def is_revoked(stage: Stage, mine: Controller, name: str, stored: StoredHold) -> Role[bool]:
    """Whether a hold was revoked, by an answer that says so: C19."""
    if not mine.quiet and not mine.leases.expired({name: stored}, stage.now):
        return False
    answer = yield stage.match(name, stored.etag, sweep.revoking(stored.hold, stage.token()), "hold")
    if answer is UNKNOWN or answer == TAKEN:
        return False
    stage.stats["revoked"] += 1
    return True


# ---- merged files


def merged_name(stage: Stage, mine: Controller, bounds: Bounds) -> str:
    """C23."""
    return str(names.MergedName(bounds.lower, bounds.upper, mine.epoch, stage.token()))


def put_merged(stage: Stage, mine: Controller, bounds: Bounds, updates: Updates) -> Role[MergedBatch | None]:
    """The file of a batch whose times are advanced to its since; ``None`` if it was given up. C22: it stays in flight
    then, because it may land yet."""
    since = bounds.since.elements
    rows = consolidated((data, times.advance(time, since), diff) for data, time, diff in updates)
    name = merged_name(stage, mine, bounds)
    mine.in_flight.add(name)
    if (yield from retried(stage.put(name, rows, "merged"), TRIES)) is UNKNOWN:
        return None
    keys, points = {row[0] for row in rows}, {row[1] for row in rows}
    return MergedBatch(name, bounds, len(rows), len(keys), len(points), sum(row[2] for row in rows), 0, 0)


def chosen(stage: Stage, mine: Controller, head: Area) -> tuple[MergedBatch, ...]:
    """What to merge: by the spine, or any neighbours, since every choice must be right."""
    if mine.quiet:
        return head.batches if len(head.batches) > 1 else ()
    ready = spine.due(head, ())
    if ready and stage.rng.random() < 0.5:
        return stage.rng.choice(ready).batches
    start = stage.rng.randrange(len(head.batches))
    return head.batches[start : start + stage.rng.choice((1, 2, 2, 3))]


def merge_once(stage: Stage, mine: Controller) -> Role[None]:
    """Read, merge, put, and replace: C16, C21."""
    head: Area = yield stage.read_head()
    target = mine.target
    if not head.batches or target is None:
        return
    inputs = chosen(stage, mine, head)
    if not inputs:
        return
    updates: list[Update] = []
    for batch in inputs:
        found = yield stage.get(batch.name)
        if found is None:
            now: Area = yield stage.read_head()
            if now.epoch == mine.epoch and batch in now.batches:
                raise Violation("missing", f"the live controller misses {batch}")
            return
        updates += found.value
    bounds = spanning([batch.bounds for batch in inputs]).compacted(target)
    output = yield from put_merged(stage, mine, bounds, tuple(updates))
    if output is None:
        return
    yield from stage.idle(0 if mine.quiet else stage.rng.choice((0, 0, 10, 60)))
    try:
        yield from commit(stage, ReplaceMerged(mine.epoch, tuple(batch.name for batch in inputs), output))
    except ConflictError:
        stage.stats["merged by another"] += 1
    mine.in_flight.discard(output.name)


# ---- garbage


def collect_garbage(stage: Stage, mine: Controller, published: Area, standing: list[Hold]) -> Role[None]:
    """C17, C22 to C25. ``published``: read before the holds were listed; its floor was known to whoever registered."""
    yield from stage.nap("commit", 120)
    held = [hold.version for hold in standing if hold.version is not None]
    picture = yield from look(stage, mine, garbage.lowest_needed(published, held))
    if picture is None:
        return
    yield from stage.nap("commit", 60)
    for name in (yield stage.list(names.PENDING_BATCHES)):
        file = pending.file_of(stage, name)
        if file is None:
            found = yield stage.get(name)
            file = None if found is None else PendingFile(name, found.value.lower, found.value.upper)
        if file is not None and any(picture.dead_pending([file])):
            yield from stage.nap("names", 60)
            yield stage.delete(name)
    for dead in picture.dead_merged(mine.epoch):
        yield from stage.nap("commit", 30)
        yield stage.delete(dead.key)
    known = [(version, str(version)) for version in stage.versions]
    for old in picture.old_versions(known):
        yield stage.delete_version(int(old.key))


def look(stage: Stage, mine: Controller, lowest: int) -> Role[Picture | None]:
    """C24: list, note what is in flight, read the head, read every version."""
    files = yield from list_merged(stage)
    listed = Listed(lowest, files, frozenset(mine.in_flight))
    return (yield from read_versions(stage, listed.at((yield stage.read_head()))))


def list_merged(stage: Stage) -> Role[tuple[MergedFile, ...]]:
    """By what their names say."""
    found = yield stage.list(names.MERGED_BATCHES)
    return tuple(file_of_merged(stage, name) for name in found)


def file_of_merged(stage: Stage, name: str) -> MergedFile:
    """What a name says: C23."""
    parsed = names.parse_merged(name, stage.kind)
    assert parsed is not None
    return MergedFile(name, name, parsed.epoch, parsed.upper)


def read_versions(stage: Stage, wanted: Wanted) -> Role[Picture | None]:
    """Every one that is needed."""
    found: dict[int, Area | None] = {}
    for version in wanted.versions:
        found[version] = yield stage.read_version(version)
    return Picture.of(wanted, found)
