"""One history of a collection: processes, faults, a calm, and a last controller that brings it to rest."""

from __future__ import annotations

import itertools
import random
from typing import Any

from slate_async.collections.core import names
from slate_async.collections.core.times import TimeKind, less_equal
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.collections.controllers import controller, deleter
from tests.simulation.scenarios.collections.readers import listener, mover, newcomer, pinner, reader, relay
from tests.simulation.scenarios.collections.stage import MOODS, Appends, Mood, Process, Role, Stage, consolidated
from tests.simulation.scenarios.collections.writers import rewriter, writer

LONGEST = 1500


def play(
    rng: random.Random, appends: Appends, kind: TimeKind, mood: Mood | None = None, longest: int = LONGEST
) -> Stage:
    """Run one history, and judge it. Raises `Violation` or what the product raises."""
    stage = Stage(rng, appends, kind, rng.choice(MOODS) if mood is None else mood)
    people(stage)
    stage.run(min(longest, 1500 if stage.mood in ("clones", "listen") else rng.choice((400, 900, 1500))))
    finish(stage)
    return stage


def finish(stage: Stage) -> None:
    """The calm: late writes land, sleepers wake, and a last controller brings the collection to rest. Then `judge`."""
    stage.faults = False
    _settle(stage)
    stage.wake()
    stage.run(500)
    _settle(stage)
    stage.tasks.clear()
    last = stage.start(lambda process: controller(stage, process, quiet=True))
    stage.run(20_000, last)
    if stage.tasks:
        raise Violation("stuck", "the last controller did not come to its end")
    judge(stage)


def people(stage: Stage) -> None:
    """Who is there."""
    rng, mood = stage.rng, stage.mood

    def write(name: str, *frozen: int) -> None:
        stage.start(lambda _: writer(stage, name), rng.choice(frozen))

    def run(role: Any, *frozen: int) -> None:
        stage.start(lambda process: _role(role, stage, process), rng.choice(frozen), eager=role is controller)

    if mood == "names" and stage.appends == "definite":
        for _ in range(3):
            stage.start(lambda _: rewriter(stage, "w0"), rng.choice((0, 40)))
    else:
        for number in range(1 if mood == "names" else rng.randint(1, 3)):
            write(f"w{number}", 0, 0, 50, 150)
        for _ in range({"deleted": 4, "names": 4, "walk": 5}.get(mood, rng.random() < 0.6)):
            write("w0", 0, 40, 200)
    run(controller, 0)
    for _ in range(2 if mood == "commit" else rng.random() < 0.5):
        run(controller, 20, 100, 250)
    if mood == "deleted":
        run(deleter, 0)
    for role in readers_of(stage):
        run(role, 0, 0, 60, 150, 300)


def readers_of(stage: Stage) -> list[Any]:
    """The readers. One that lags keeps what others miss, so in some moods there are few."""
    rng, any_number = stage.rng, stage.rng.randint(1, 4)
    match stage.mood:
        case "clones":
            casts: tuple[list[Any], ...] = ([relay], [relay, pinner], [pinner, pinner], [relay, relay, reader])
            return rng.choice(casts)
        case "listen":
            return [listener, listener, listener, reader]
        case "register" if rng.random() < 0.7:
            return [rng.choice((mover, newcomer))] * 2
        case "deleted" | "lease" | "names" | "register":
            return [reader] * 4
        case "walk":
            return []
        case _:
            return [reader] * any_number


def _role(role: Any, stage: Stage, process: Process) -> Role[None]:
    made: Role[None] = role(stage, process)
    return made


def _settle(stage: Stage) -> None:
    while stage.late:
        stage.land()


def _keeps_its_name(stage: Stage, name: str) -> bool:
    """Whether it is a critical hold that was given up: what is late for it must not make another of its name."""
    reader = names.parse_hold(name)
    stored = None if reader is None else stage.hold_of(reader)
    return stored is not None and stored.hold.is_critical and stored.hold.revoked


def judge(stage: Stage) -> None:
    """P7, P9, P14: at rest there is the head with its one batch, and in it all that was acknowledged."""
    head = stage.head
    left = [name for name in stage.objects if name not in head.names() and not _keeps_its_name(stage, name)]
    if left:
        raise Violation("garbage", f"left for ever: {left[:3]}")
    if set(stage.versions) != {head.version}:
        raise Violation("garbage", f"versions {sorted(stage.versions)} are left, the head is {head.version}")
    if len(head.batches) > 1:
        raise Violation("garbage", f"{len(head.batches)} batches are left")
    updates = [update for name in head.names() for update in stage.objects[name].value]
    grid = list(itertools.product(range(stage.edge + 1), repeat=stage.kind.coordinates))
    for as_of in grid:
        if head.since.less_equal(as_of) and not head.upper.less_equal(as_of):
            found = consolidated((data, as_of, diff) for data, time, diff in updates if less_equal(time, as_of))
            if found != stage.contents(as_of):
                raise Violation("final", f"at {as_of}: {found}, expected {stage.contents(as_of)}")
    tokens = {token for _, _, token in stage.chain}
    for lower, upper, token in stage.acknowledged:
        if stage.appends == "compare":
            if token not in tokens:
                raise Violation("lost", f"the append from {lower} to {upper} was acknowledged and is not in the chain")
        elif any(lower.less_equal(at) and not upper.less_equal(at) and head.upper.less_equal(at) for at in grid):
            raise Violation(
                "lost", f"the append from {lower} to {upper} was acknowledged, and the upper is {head.upper}"
            )
