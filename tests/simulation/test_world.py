"""Processes: crash, freeze, clocks, workers, what they leave behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from slate_async.objectstore.protocol import CREATE
from tests.simulation.checkers import Violation, check_no_leaks
from tests.simulation.faults import Fault, FaultPlan, Rule
from tests.simulation.loop import DeadlockError
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.runtime import START_MS, OffloadDelay
from tests.simulation.world import UnhandledError, World

SURE_TO_LAND = FaultPlan(lands_after_crash=1.0).scaled(0)
SURE_TO_DROP = FaultPlan(lands_after_crash=0.0).scaled(0)


def test_a_crash_runs_nothing_any_more() -> None:
    ran: list[str] = []

    async def work() -> None:
        try:
            ran.append("begun")
            await asyncio.sleep(10)
            ran.append("woke")
        finally:
            await asyncio.sleep(0)
            ran.append("finally")

    async def scenario(world: World) -> None:
        node = world.node("a")
        task = node.spawn(work())
        await asyncio.sleep(1)
        node.crash()
        with pytest.raises(NodeCrashedError):
            await node.join(task)
        with pytest.raises(NodeCrashedError):
            node.spawn(asyncio.sleep(0))
        await asyncio.sleep(100)
        assert ran == ["begun"]
        assert node.pending() == []

    world = World(1)
    world.run(scenario(world))


@pytest.mark.parametrize("plan", [SURE_TO_LAND, SURE_TO_DROP])
def test_what_a_crashed_process_had_sent_may_land_and_nothing_else_is_sent(plan: FaultPlan) -> None:
    async def work(world: World, node: Node) -> None:
        store = world.cloud.objects(node)
        try:
            await store.put("sent", b"1")
        finally:
            await store.put("never", b"2")

    async def scenario(world: World) -> None:
        node = world.node("a")
        node.spawn(work(world, node))
        while not world.network.under_way:  # noqa: ASYNC110 - gives the process turns until it has sent
            await asyncio.sleep(0)
        node.crash()
        await asyncio.sleep(100)
        assert list(world.cloud.store.objects) == (["sent"] if plan is SURE_TO_LAND else [])

    world = World(1, plan=plan)
    world.run(scenario(world))


def test_a_crash_can_come_between_any_two_steps() -> None:
    async def count(node: Node, steps: list[int]) -> None:
        for number in range(100):
            steps.append(number)
            await asyncio.sleep(0)

    async def scenario(world: World, limit: int) -> list[int]:
        node, steps = world.node("a"), list[int]()
        node.crash_after(limit)
        with pytest.raises(NodeCrashedError):
            await node.run(count(node, steps))
        return steps

    for limit in range(1, 20):
        world = World(limit)
        assert world.run(scenario(world, limit)) == list(range(limit))


def test_a_process_that_crashes_itself_sends_nothing_after() -> None:
    async def work(world: World, node: Node) -> None:
        node.crash()
        await world.cloud.objects(node).put("k", b"")

    async def scenario(world: World) -> None:
        node = world.node("a")
        with pytest.raises(NodeCrashedError):
            await node.run(work(world, node))
        await asyncio.sleep(10)
        assert world.cloud.store.objects == {}

    world = World(1)
    world.run(scenario(world))


def test_a_frozen_process_stands_still_while_its_requests_land() -> None:
    woke: list[float] = []

    async def sleeper(world: World) -> None:
        await asyncio.sleep(1)
        woke.append(world.loop.time())

    async def writer(world: World, node: Node) -> None:
        await world.cloud.objects(node).put("k", b"", mode=CREATE)
        woke.append(world.loop.time())

    async def scenario(world: World) -> None:
        node, other = world.node("a"), world.node("b")
        tasks = [node.spawn(sleeper(world)), node.spawn(writer(world, node))]
        await asyncio.sleep(0.001)
        node.freeze(50)
        await other.run(asyncio.sleep(20))
        assert list(world.cloud.store.objects) == ["k"]
        assert woke == []
        for task in tasks:
            await node.join(task)
        assert all(50 < moment < 51 for moment in woke)
        assert len(woke) == 2

    world = World(1)
    world.run(scenario(world))


def test_freezes_may_be_open_ended_replaced_and_ended_early() -> None:
    async def scenario(world: World) -> None:
        node = world.node("a")
        task = node.spawn(asyncio.sleep(1))
        node.freeze(5)
        node.freeze(30)
        await asyncio.sleep(10)
        assert node.frozen
        assert not task.done()
        node.thaw()
        await node.join(task)
        assert world.loop.time() < 12
        node.freeze()
        other = node.spawn(asyncio.sleep(0))
        await asyncio.sleep(1000)
        assert not other.done()
        node.thaw()
        await node.join(other)

    world = World(1)
    world.run(scenario(world))


def test_waiting_for_a_process_frozen_for_ever_is_a_deadlock() -> None:
    async def scenario(world: World) -> None:
        node = world.node("a")
        node.freeze()
        await node.run(asyncio.sleep(1), "its work")

    world = World(1)
    with pytest.raises(DeadlockError, match=r"a \(frozen\): its work"):
        world.run(scenario(world))


def test_restarts_are_new_processes_with_new_randomness() -> None:
    async def scenario(world: World) -> list[str]:
        first, second, other = world.node("a"), world.node("a"), world.node("b")
        assert (first.name, second.name, other.name) == ("a", "a.2", "b")
        return [node.runtime.ids.token() for node in (first, second, other)]

    def tokens(seed: int) -> list[str]:
        world = World(seed)
        return world.run(scenario(world))

    assert tokens(1) == tokens(1)
    assert len({*tokens(1), *tokens(2)}) == 6


def test_clocks_skew_drift_and_jump() -> None:
    async def scenario(world: World) -> None:
        right, fast = world.node("right"), world.node("fast", skew_ms=5000, drift_ppm=1000)
        await asyncio.sleep(1000)
        assert right.runtime.clock.now_ms() == START_MS + 1_000_000
        assert fast.runtime.clock.now_ms() == START_MS + 1_000_000 + 5000 + 1000
        before = fast.runtime.clock.monotonic()
        fast.clock.jump(-3_600_000)
        assert fast.runtime.clock.now_ms() < START_MS
        assert fast.runtime.clock.monotonic() >= before
        ulid = fast.runtime.ids.ulid(right.runtime.clock.now_ms())
        assert len(ulid) == 16
        assert int.from_bytes(ulid[:6], "big") == START_MS + 1_000_000
        assert fast.runtime.ids.uuid().version == 4

    world = World(1)
    world.run(scenario(world))


def test_a_cancelled_caller_does_not_stop_its_function_and_a_crash_does() -> None:
    ran: list[str] = []

    async def scenario(world: World) -> None:
        node, doomed = world.node("a"), world.node("b")
        assert await node.run(node.runtime.offload.run(lambda: 42)) == 42
        with pytest.raises(ZeroDivisionError):
            await node.run(node.runtime.offload.run(lambda: 1 // 0))
        task = node.spawn(node.runtime.offload.run(lambda: ran.append("cancelled")))
        doomed.spawn(doomed.runtime.offload.run(lambda: ran.append("crashed")))
        await asyncio.sleep(0.001)
        task.cancel()
        doomed.crash()
        await asyncio.sleep(100)
        assert task.cancelled()
        assert ran == ["cancelled"]

    world = World(1, offload=OffloadDelay(20, 20))
    world.run(scenario(world))


def test_a_process_that_runs_on_leaks() -> None:
    async def scenario(world: World) -> None:
        node = world.node("a")
        task = node.spawn(asyncio.sleep(100), "poller")
        await asyncio.sleep(1)
        with pytest.raises(Violation, match="leak: a still runs poller"):
            check_no_leaks(node)
        task.cancel()
        await asyncio.sleep(1)
        check_no_leaks(node)

    world = World(1)
    world.run(scenario(world))


async def fail() -> None:
    raise ValueError("nobody looks")


def test_a_failure_nobody_looked_at_is_reported() -> None:
    async def scenario(world: World) -> None:
        world.node("a").spawn(fail(), "careless")
        await asyncio.sleep(1)

    world = World(1)
    with pytest.raises(UnhandledError, match=r"a careless: .*nobody looks"):
        world.run(scenario(world))


def test_failures_of_the_dead_and_of_the_thrown_away_are_not() -> None:
    async def late_failure(world: World, node: Node) -> None:
        await world.cloud.objects(node).put("k", b"")

    async def scenario(world: World) -> None:
        dead, unfinished = world.node("a"), world.node("b")
        dead.spawn(fail())
        await asyncio.sleep(1)
        dead.crash()
        world.rule(Rule(lambda *_: True, Fault.LOST_RESPONSE))
        unfinished.spawn(late_failure(world, unfinished))
        await asyncio.sleep(0.001)

    world = World(1)
    world.run(scenario(world))
    gc.collect()
    assert world.unhandled == []
