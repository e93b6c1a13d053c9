"""How long a fenced writer that nobody writes to stays open, to the microsecond of virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest

import slate_async as slate
from tests.engine import KINDS, Kind, on
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.world import World

T = TypeVar("T")
POLL_MS = 700
ONE_WAY = 0.004
INTERVAL = POLL_MS / 1000
EARLIEST_POLL = 0.9 * INTERVAL
"""Polls of processes started together spread over a tenth of the interval."""
COMPUTING = 0.0005
"""Virtual seconds that the callbacks of a poll and of closing take, at a microsecond each."""
SEEDS = 6
LOOK = "land manifest-latest"


async def opened(world: World, node: Node, kind: Kind) -> slate.Db:
    """A writer whose manifest a server keeps: looking at the head is one request."""
    return await on(node.runtime).open(
        world.cloud.objects(node),
        name="memory://idle",
        metastore=world.cloud.metastore(node),
        settings=kind.settings(manifest_poll_interval_ms=POLL_MS),
    )


async def end_of(world: World, db: slate.Db) -> float:
    """When ``db`` closed itself, fenced."""
    with pytest.raises(slate.FencedError):
        await db.wait_closed()
    assert db.status().state == "fenced"
    return world.loop.time()


def moments(world: World, node: str, what: str) -> list[float]:
    """When a process did ``what``: the start of what the trace says behind its name."""
    parts = [line.split(" ", 2) for line in world.trace.lines]
    return [float(time) for time, process, rest in parts if process == node and rest.startswith(what)]


async def next_look(world: World, node: str) -> None:
    """Wait for the next reading of the head by that process."""
    before = len(moments(world, node, LOOK))
    for _ in range(round(2 * INTERVAL / ONE_WAY)):
        if len(moments(world, node, LOOK)) > before:
            return
        await asyncio.sleep(ONE_WAY)
    raise AssertionError(f"{node} never looked at the head")


def simulate(seed: int, scenario: Callable[[World], Coroutine[object, object, T]]) -> tuple[World, T]:
    plan = replace(NO_FAULTS, latency=(ONE_WAY, ONE_WAY))
    world = World(seed, plan=plan, keep_trace=True)
    return world, world.run(scenario(world))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_idle_writer_is_closed_one_poll_after_the_take_over(seed: int, kind: Kind) -> None:
    async def scenario(world: World) -> float:
        older, newer = world.node("older"), world.node("newer")
        db = await older.run(opened(world, older, kind))
        await older.run(db.put(b"k", b"v"))
        end = older.spawn(end_of(world, db))
        await asyncio.sleep(world.rng.uniform(0, 3 * INTERVAL))
        if seed % 2:
            await next_look(world, "older")  # the worst time: right after it
        assert not end.done()
        await newer.run(opened(world, newer, kind))
        return await older.join(end)

    world, closed = simulate(seed, scenario)
    claimed = moments(world, "newer", "land manifest-commit")[0]
    seen = next(sent for sent in moments(world, "older", "send manifest-latest") if sent + ONE_WAY > claimed)
    assert claimed < closed <= claimed + INTERVAL + ONE_WAY + COMPUTING
    assert seen + 2 * ONE_WAY <= closed <= seen + 2 * ONE_WAY + COMPUTING  # by that very look at the head


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_idle_writer_that_slept_through_it_is_closed_by_its_first_look(seed: int) -> None:
    async def scenario(world: World) -> tuple[float, float]:
        older, newer = world.node("older"), world.node("newer")
        db = await older.run(opened(world, older, KINDS[seed % len(KINDS)]))
        end = older.spawn(end_of(world, db))
        await asyncio.sleep(world.rng.uniform(0, 2 * INTERVAL))
        older.freeze()
        await newer.run(opened(world, newer, KINDS[seed % len(KINDS)]))
        await asyncio.sleep(world.rng.uniform(0, 3 * INTERVAL))
        older.thaw()
        thawed = world.loop.time()
        return thawed, await older.join(end)

    _, (thawed, closed) = simulate(seed, scenario)
    assert thawed < closed <= thawed + INTERVAL + 2 * ONE_WAY + COMPUTING


@pytest.mark.parametrize("seed", range(SEEDS))
def test_polls_never_come_later_than_the_interval(seed: int) -> None:
    async def scenario(world: World) -> None:
        node = world.node("only")
        db = await node.run(opened(world, node, KINDS[0]))
        await asyncio.sleep(10 * INTERVAL)
        await node.run(db.close())

    world, _ = simulate(seed, scenario)
    looks = moments(world, "only", "send manifest-latest")
    gaps = [later - earlier for earlier, later in pairwise(looks[-9:])]
    assert len(gaps) == 8
    assert all(EARLIEST_POLL <= gap <= INTERVAL + COMPUTING for gap in gaps), gaps
