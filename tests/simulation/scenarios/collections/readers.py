"""Readers: they register, read, listen, move on, clone, hold critically, and lose their leases.

Everything that a reader is given is compared with the truth, so each step is a check.
"""

from __future__ import annotations

from slate_async.collections.core import holding, names, reading
from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Verdict
from slate_async.collections.core.times import join, less_equal
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.collections import pending
from tests.simulation.scenarios.collections.holds import (
    Listening,
    Reader,
    get_hold,
    register,
    register_clone,
    stored_hold,
    write_hold,
)
from tests.simulation.scenarios.collections.stage import LeaseLost, Process, Role, Stage, Update, consolidated

CRITICAL_CHANCE = 0.12


def reader(stage: Stage, process: Process) -> Role[None]:
    """A process that opens handles, one after the other."""
    rng = stage.rng
    for _ in range(rng.randint(1, 3)):
        head: Area = yield stage.read_head()
        lease = None if rng.random() < (0.4 if stage.mood == "clones" else CRITICAL_CHANCE) else stage.lease
        mine = Reader(holding.registering(new_name(stage), head, lease), head)
        try:
            yield from register(stage, mine)
            yield from use(stage, mine, process, rng.randint(4, 25))
        except LeaseLost:
            stage.stats["lease lost"] += 1
            continue
        if rng.random() < 0.8:
            yield stage.delete(names.hold_name(mine.handle.reader))


def listener(stage: Stage, process: Process) -> Role[None]:
    """A process that listens for long, holds little back, and is restarted now and then."""
    rng = stage.rng
    head: Area = yield stage.read_head()
    mine = Reader(holding.registering(new_name(stage), head, stage.lease), head)
    try:
        yield from register(stage, mine)
        while mine.listening is None:
            if mine.handle.since.is_done:
                return
            yield from snapshot(stage, mine, True)
            yield from stage.idle(rng.choice((3, 10, 30)))
        listening = mine.listening
        at = Frontier([listening.as_of])
        for _ in range(30):
            backwards = rng.random() < 0.5
            yield from write_hold(stage, mine, since=reading.to_restart_from(listening.coverage) if backwards else at)
            yield from stage.idle(rng.choice((0, 20, 60)))
            yield from adopt(stage, mine)
            yield from listen(stage, mine, listening, restart=rng.random() < 0.4)
    except LeaseLost:
        stage.stats["lease lost"] += 1


def relay(stage: Stage, process: Process) -> Role[None]:
    """A process whose handle is a clone of a clone: each gives its hold up for the next one, which holds as much."""
    rng = stage.rng
    head: Area = yield stage.read_head()
    mine = Reader(holding.registering(new_name(stage), head, stage.lease), head)
    try:
        yield from register(stage, mine)
        for _ in range(40):
            other = Reader(holding.cloning(new_name(stage), mine.handle, mine.area, stage.lease), mine.area)
            if not (yield from register_clone(stage, other, mine)):
                return
            yield stage.delete(names.hold_name(mine.handle.reader))
            mine = other
            if rng.random() < 0.3:
                yield from snapshot(stage, mine, False)
            yield from stage.idle(rng.choice((0, 3, 10, 30)))
    except LeaseLost:
        stage.stats["lease lost"] += 1


def pinner(stage: Stage, process: Process) -> Role[None]:
    """A process that reads through one critical handle, each time anew."""
    head: Area = yield stage.read_head()
    mine = Reader(holding.registering(new_name(stage), head, None), head)
    try:
        yield from register(stage, mine)
        for _ in range(20):
            head = yield stage.read_head()
            other = Reader(holding.cloning(new_name(stage), mine.handle, head, stage.lease), head)
            if (yield from register_clone(stage, other, mine)):
                yield from snapshot(stage, other, False)
            yield stage.delete(names.hold_name(other.handle.reader))
    except LeaseLost:
        stage.stats["lease lost"] += 1


def mover(stage: Stage, process: Process) -> Role[None]:
    """A process that moves on as often as it can, and so pins hardly anything."""
    head: Area = yield stage.read_head()
    mine = Reader(holding.registering(new_name(stage), head, stage.lease), head)
    try:
        yield from register(stage, mine)
        for _ in range(40):
            yield from move(stage, mine)
            yield from snapshot(stage, mine, False)
            yield from stage.idle(stage.rng.choice((0, 3, 10, 30)))
    except LeaseLost:
        stage.stats["lease lost"] += 1


def newcomer(stage: Stage, process: Process) -> Role[None]:
    """A process that opens a handle for each thing that it reads."""
    for _ in range(20):
        head: Area = yield stage.read_head()
        mine = Reader(holding.registering(new_name(stage), head, stage.lease), head)
        try:
            yield from register(stage, mine)
            yield from stage.idle(stage.rng.choice((0, 3, 10, 30)))
            yield from snapshot(stage, mine, False)
        except LeaseLost:
            stage.stats["lease lost"] += 1
        yield stage.delete(names.hold_name(mine.handle.reader))


def new_name(stage: Stage) -> str:
    """Of a handle."""
    return f"r{stage.token().lstrip('0')}"


def life_of_clone(stage: Stage, process: Process, mine: Reader) -> Role[None]:
    """Another task of the process."""
    try:
        yield from use(stage, mine, process, stage.rng.randint(3, 14))
    except LeaseLost:
        stage.stats["lease lost"] += 1
        return
    yield stage.delete(names.hold_name(mine.handle.reader))


_LIKELY = {
    "clones": (0.5, (0.3, 0.3, 0.6, 0.6, 0.92)),
    "listen": (0.6, (0.1, 0.3, 0.8, 0.8)),
    "register": (0.5, (0.2, 0.2, 0.6, 0.99)),
    "lease": (0.6, (0.1, 0.3, 0.6)),
    "names": (0.6, (0.6, 0.6, 0.99)),
    "deleted": (0.6, (0.6, 0.6, 0.99)),
}


def use(stage: Stage, mine: Reader, process: Process, operations: int) -> Role[None]:
    """Do so many things with a handle."""
    rng = stage.rng
    for _ in range(operations):
        chance = rng.random()
        often, choices = _LIKELY.get(stage.mood, (0.0, ()))
        if rng.random() < often:
            chance = rng.choice(choices)
            yield from stage.nap("lease", 120)
        if mine.handle.is_critical:
            yield from use_critical(stage, mine, process)
        elif chance < 0.15:
            yield from adopt(stage, mine)
        elif chance < 0.27:
            yield from move(stage, mine)
        elif chance < 0.42:
            yield from downgrade(stage, mine)
        elif chance < 0.52:
            yield from write_hold(stage, mine)
        elif chance < 0.72:
            yield from snapshot(stage, mine, mine.listening is None and rng.random() < 0.5)
        elif chance < 0.90:
            if mine.listening is not None:
                yield from listen(stage, mine, mine.listening, restart=rng.random() < 0.3)
        elif chance < 0.93:
            yield from clone(stage, mine, process)
        else:
            yield from stage.idle(rng.choice((2, 10, 80)))


def adopt(stage: Stage, mine: Reader, *, restart: bool = False) -> Role[None]:
    """Read the head from now on, under the older hold, if no listener needs what is compacted in it: C2."""
    head: Area = yield stage.read_head()
    if head.version > mine.area.version and (restart or reading.may_adopt(head, mine.coverages)):
        mine.area = head


def move(stage: Stage, mine: Reader) -> Role[None]:
    """Advance the hold to the version in use: C13."""
    yield from adopt(stage, mine)
    yield from write_hold(stage, mine, version=mine.area.version)


def downgrade(stage: Stage, mine: Reader) -> Role[None]:
    """Give up times: a listener those before where it can be restarted from, sometimes."""
    rng = stage.rng
    to = Frontier([stage.point()] if rng.random() < 0.6 else [stage.point(), stage.point()])
    if mine.listening is not None:
        to = reading.to_restart_from(mine.listening.coverage) if rng.random() < 0.5 else mine.handle.since
    if not to.is_done:
        yield from write_hold(stage, mine, since=to)
    if stage.mood == "listen":
        yield from stage.nap("listen", 300)
        yield from adopt(stage, mine)


def clone(stage: Stage, mine: Reader, process: Process) -> Role[None]:
    """A handle made of this one lives beside it."""
    lease = None if stage.rng.random() < 0.2 else stage.lease
    other = Reader(holding.cloning(new_name(stage), mine.handle, mine.area, lease), mine.area)
    if (yield from register_clone(stage, other, mine)):
        stage.stats["clones"] += 1
        stage.spawn(life_of_clone(stage, process, other), process)
    else:
        stage.stats["clones refused"] += 1
        yield stage.delete(names.hold_name(other.handle.reader))


def use_critical(stage: Stage, mine: Reader, process: Process) -> Role[None]:
    """A critical handle reads through a leased one that begins at its since."""
    head: Area = yield stage.read_head()
    other = Reader(holding.cloning(new_name(stage), mine.handle, head, stage.lease), head)
    if not (yield from register_clone(stage, other, mine)):
        return
    stage.spawn(life_of_clone(stage, process, other), process)
    if stage.rng.random() < 0.5:
        yield from write_hold(stage, mine, since=Frontier([stage.point()]))
    yield from stage.idle(20)


# ---- reading


def promised(stage: Stage, mine: Reader, what: str) -> LeaseLost:
    """C15: a `Violation` if ``what`` is so under a hold that stands; else the lease was lost."""
    verdict = holding.judge_missing(mine.handle, stage.hold_of(mine.handle.reader), stage.head)
    if verdict is Verdict.CORRUPTED:
        raise Violation("broken-promise", f"the hold of {mine.handle} stands, and {what}")
    return LeaseLost()


def everything(stage: Stage, mine: Reader, skip: Frontier | None = None) -> Role[tuple[list[Update], Frontier]]:
    """Updates of the version in use, and of what is pending beyond it; and how far that goes."""
    updates: list[Update] = []
    for batch in mine.area.batches:
        if skip is not None and reading.is_skipped(batch.bounds, skip):
            continue
        found = yield stage.get(batch.name)
        if found is None:
            raise promised(stage, mine, f"{batch.name} of version {mine.area.version} is missing")
        updates += found.value
    beyond = yield from read_pending(stage, mine.area, mine.area.upper)
    if beyond is None:
        raise promised(stage, mine, "a pending batch is missing")
    if stage.appends == "compare":
        stored = stored_hold((yield get_hold(stage, mine.handle)))
        if not holding.counts(mine.handle, stored):
            raise LeaseLost
    return [*updates, *beyond.updates], beyond.upper


def read_pending(stage: Stage, area: Area, start: Frontier) -> Role[pending.Pending | None]:
    """What is pending beyond a version: C4."""
    return pending.read_from(stage, area, start)


def snapshot(stage: Stage, mine: Reader, begin_to_listen: bool) -> Role[None]:
    """At a time that the handle may ask for; C3."""
    if mine.handle.since.is_done:
        return
    since = stage.rng.choice(mine.handle.since.elements)
    as_of = join(since, stage.point()) if stage.rng.random() < 0.7 else since
    if not reading.may_read(mine.area, as_of):
        raise promised(stage, mine, f"version {mine.area.version} is compacted to {mine.area.since}, past {as_of}")
    updates, upper = yield from everything(stage, mine)
    if upper.less_equal(as_of):
        stage.stats["blocked"] += 1
        return
    found = consolidated((data, as_of, diff) for data, time, diff in updates if less_equal(time, as_of))
    check("snapshot", f"at {as_of} of version {mine.area.version}", found, stage.contents(as_of))
    stage.stats["snapshots"] += 1
    if begin_to_listen:
        after = [(data, join(time, as_of), diff) for data, time, diff in updates if not less_equal(time, as_of)]
        mine.listening = Listening(as_of, upper, after)
        check_listening(stage, mine.listening)


def listen(stage: Stage, mine: Reader, listening: Listening, *, restart: bool) -> Role[None]:
    """All that lies beyond where it has come to. A restart forgets everything but that: C2."""
    if restart:
        if not reading.is_cut_at(mine.handle.since, listening.coverage):
            stage.stats["restart refused"] += 1
            return
        yield from adopt(stage, mine, restart=True)
        stage.stats["restarts"] += 1
        if not reading.may_restart(mine.area, listening.coverage):
            raise promised(stage, mine, f"version {mine.area.version} cannot be cut at {listening.coverage}")
    updates, upper = yield from everything(stage, mine, listening.coverage)
    listening.seen += [
        (data, join(time, listening.as_of), diff) for data, time, diff in updates if listening.coverage.less_equal(time)
    ]
    listening.coverage = listening.coverage.join(upper)
    stage.stats["listened"] += 1
    check_listening(stage, listening)


def check_listening(stage: Stage, listening: Listening) -> None:
    """P6: none twice, none lost."""
    as_of, coverage = listening.as_of, listening.coverage
    expected = consolidated(
        (data, join(time, as_of), diff)
        for data, time, diff in stage.truth
        if not less_equal(time, as_of) and not coverage.less_equal(time)
    )
    check("listening", f"from {as_of} to {coverage}", consolidated(listening.seen), expected)


def check(kind: str, what: str, found: object, expected: object) -> None:
    """Raise `Violation` if they differ."""
    if found != expected:
        raise Violation(kind, f"{what}: {found}, expected {expected}")
