"""Writers of both kinds of collections. They come and go, sleep, and may be many of one name."""

from __future__ import annotations

from slate_async.collections.core import chain, coverage, names
from slate_async.collections.core.area import Area
from slate_async.collections.core.chain import Link, Put, Walk
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import join
from tests.simulation.scenarios.collections import pending
from tests.simulation.scenarios.collections.stage import TAKEN, UNKNOWN, PendingBatch, Role, Stage, Updates, retried

TRIES = 6


def writer(stage: Stage, name: str) -> Role[None]:
    """A process that appends until all times are written, or it closes the collection."""
    return comparer(stage) if stage.appends == "compare" else definite(stage, name)


def next_upper(stage: Stage, lower: Frontier) -> Frontier:
    """Where the next batch ends, which may be anywhere beyond where it begins."""
    rng = stage.rng
    if rng.random() < 0.02:
        return DONE
    if stage.kind.coordinates == 1:
        return Frontier([(lower.elements[0][0] + rng.randint(1, 3),)])
    for _ in range(9):
        one, other = stage.point(), stage.point()
        upper = lower.join(Frontier([one, other] if rng.random() < 0.6 else [join(one, other)]))
        if upper != lower:
            return upper
    return Frontier(tuple(number + 1 for number in element) for element in lower.elements)


def is_finished(stage: Stage, end: Frontier) -> bool:
    """Whether every time is written, or the collection closed."""
    return all(max(element) >= stage.edge for element in end.elements)


def definite(stage: Stage, name: str) -> Role[None]:
    """C6: what it writes of a time is always the same; Created and Exists are success, Unknown is sent again."""
    rng = stage.rng
    end = yield from restarted(stage, name)
    if rng.random() < (0.7 if stage.mood == "names" else 0.25):
        end = stage.minimum  # a stubborn one begins anew: its batches straddle what is there
    while not is_finished(stage, end):
        yield from stage.nap("listen", 80)
        reached = yield from put_definite(stage, name, end, next_upper(stage, end))
        if reached is None:
            return
        end = reached
        yield from stage.idle(rng.choice((0, 0, 3, 15)))


def put_definite(stage: Stage, name: str, lower: Frontier, upper: Frontier) -> Role[Frontier | None]:
    """Where the batch that lies there ends; ``None`` if nobody answered."""
    rows = tuple(row for row in stage.truth if lower.less_equal(row[1]) and not upper.less_equal(row[1]))
    yield from stage.nap("names", 120)
    at = pending.name_of(stage, name, lower, upper)
    answer = yield from retried(stage.create(at, PendingBatch(lower, upper, stage.token(), rows), "batch"), TRIES)
    if answer is UNKNOWN:
        return None
    if answer is TAKEN:
        found = yield stage.get(at)
        return lower.join(upper if found is None else found.value.upper)
    stage.acknowledged.append((lower, upper, ""))
    stage.stats["acknowledged"] += 1
    return upper


def rewriter(stage: Stage, name: str) -> Role[None]:
    """One that was restarted from its input's beginning, again and again: all its batches have one lower."""
    for _ in range(8):
        upper = Frontier([tuple(stage.rng.randint(1, stage.edge) for _ in range(stage.kind.coordinates))])
        yield from put_definite(stage, name, stage.minimum, upper)
        yield from stage.idle(stage.rng.choice((10, 40, 100)))


def restarted(stage: Stage, name: str) -> Role[Frontier]:
    """C6: where a writer goes on: its own shard's end, beyond the merged area."""
    head: Area = yield stage.read_head()
    own: list[PendingBatch] = []
    for listed in (yield stage.list(names.shard_prefix(name))):
        found = yield stage.get(listed)
        if found is not None:
            own.append(found.value)
    return coverage.extend(head.upper, own).coverage


def comparer(stage: Stage) -> Role[None]:
    """Every append is compare-and-append on the end of the chain; what it brings is made up each time."""
    rng = stage.rng
    end: Frontier | None = None
    while True:
        if end is None:
            end = yield from chain_end(stage)
        if is_finished(stage, end):
            return
        yield from stage.idle(rng.choice((0, 0, 3, 40)))
        mine = Link(end, next_upper(stage, end), stage.token())
        yield from stage.nap("names", 150)
        yield from stage.nap("walk", 150)
        yield from stage.nap("listen", 80)
        yield from stage.nap("deleted", 80)
        end = mine.upper if (yield from append(stage, mine)) else None


def chain_end(stage: Stage) -> Role[Frontier]:
    """C9."""
    while True:
        head: Area = yield stage.read_head()
        walk = Walk.from_head(head)
        yield from stage.nap("walk", 200)
        while (found := (yield pending.get_chain_end(stage, walk.at))) is not None:
            batch: PendingBatch = found.value
            walk = walk.past(Link(batch.lower, batch.upper, batch.token), "")
        if walk.counts((yield stage.read_head())):
            return walk.at


def append(stage: Stage, mine: Link) -> Role[bool]:
    """Whether ``mine`` was acknowledged: C7, C8."""
    name = pending.name_of(stage, names.COMPARE_SHARD, mine.lower, mine.upper)
    batch = PendingBatch(mine.lower, mine.upper, mine.token, made_up(stage, mine))
    answer = yield from retried(stage.create(name, batch, "batch"), TRIES)
    if answer is UNKNOWN:
        return False
    if answer is TAKEN:
        found = yield stage.get(name)
        there = None if found is None else Link(found.value.lower, found.value.upper, found.value.token)
        if chain.judge_put(mine, there) is not Put.OWN:
            stage.stats["mismatched"] += 1
            return False
    if not chain.is_acknowledged(mine, (yield stage.read_head())):
        stage.stats["unknown"] += 1
        return False
    stage.acknowledged.append((mine.lower, mine.upper, mine.token))
    stage.stats["acknowledged"] += 1
    return True


def made_up(stage: Stage, link: Link) -> Updates:
    """Rows at times that the append is about."""
    rng = stage.rng
    points = sorted({stage.point() for _ in range(rng.randint(0, 6))} | {link.lower.elements[0]})
    return tuple(
        (rng.randint(0, 2), time, rng.choice((-1, 1, 2)))
        for time in points
        if link.lower.less_equal(time) and not link.upper.less_equal(time)
    )
