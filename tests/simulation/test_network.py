"""Requests and their fates; the store and the metastores behind the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.protocol import Cell, Committed, Conflict, Record, Unknown, VersionRef
from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import (
    CREATE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    Span,
    Suffix,
)
from tests.simulation.faults import Fault, FaultPlan, Rule
from tests.simulation.metadata import FaultyMetaStore, FaultyRegister
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.store import Conditions, FaultyStore
from tests.simulation.world import World

WRITES = ("put", "cas", "commit")
Body = Callable[[World, Node, FaultyStore], Coroutine[Any, Any, None]]


def play(body: Body, **options: Any) -> World:
    """Run ``body`` in one process of a world."""
    world = World(1, **options)

    async def scenario() -> None:
        node = world.node("a")
        await node.run(body(world, node, world.cloud.objects(node, page_keys=3)))

    world.run(scenario())
    return world


def once(fault: Fault, late_seconds: float | None = None) -> Rule:
    """The next write gets this fault."""
    return Rule(lambda _, operation, __: any(word in operation for word in WRITES), fault, 1, late_seconds)


def test_the_store_without_faults() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        etag = await store.put("a/1", [b"he", bytearray(b"llo")], mode=CREATE, metadata={"epoch": "3"})
        with pytest.raises(ObjectExistsError):
            await store.put("a/1", b"x", mode=CREATE)
        with pytest.raises(ObjectChangedError):
            await store.put("a/1", b"x", mode=Match("other"))
        with pytest.raises(ObjectChangedError):
            await store.put("a/none", b"x", mode=Match(etag))
        found = await store.get("a/1")
        assert (found.data, found.info.etag, dict(found.info.metadata)) == (b"hello", etag, {"epoch": "3"})
        assert (await store.get("a/1", Suffix(3))).data == b"llo"
        assert (await store.get("a/1", Span(3, 10))).data == b"lo"
        with pytest.raises(InvalidError):
            await store.get("a/1", Span(5, 1))
        assert await store.put("a/1", b"world", mode=Match(etag)) != etag
        assert (await store.head("a/1")).size == 5
        for number in range(2, 9):
            await store.put(f"a/{number}", b"")
        await store.put("b", b"")
        assert [info.key async for info in store.list("a/", start_after="a/3")] == [f"a/{n}" for n in range(4, 9)]
        await store.delete(["a/1", "a/1", "b"])
        for call in (store.get("a/1"), store.head("b")):
            with pytest.raises(ObjectNotFoundError):
                await call
        await store.close()
        with pytest.raises(InvalidError):
            await store.head("a/2")

    play(body)


@pytest.mark.parametrize(
    ("fault", "outcome", "soon", "later"),
    [
        (Fault.THROTTLED, "not_applied", False, False),
        (Fault.REFUSED, "not_applied", False, False),
        (Fault.FAILED_BEFORE, "unknown", False, False),
        (Fault.LOST_RESPONSE, "unknown", True, True),
        (Fault.LATE, "unknown", False, True),
    ],
)
def test_what_a_caller_sees_and_what_happened(fault: Fault, outcome: str, soon: bool, later: bool) -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        world.rule(once(fault, late_seconds=30))
        with pytest.raises(UnavailableError) as raised:
            await store.put("k", b"v", mode=CREATE)
        assert raised.value.outcome == outcome
        assert ("k" in world.cloud.store.objects) is soon
        await world.network.quiet()
        assert ("k" in world.cloud.store.objects) is later

    play(body)


def test_a_delayed_request_succeeds_late() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        world.rule(once(Fault.DELAYED))
        await store.put("k", b"v")
        assert world.loop.time() > world.plan.delay[0]

    play(body)


def test_the_condition_of_a_late_write_is_judged_when_it_lands() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        world.rule(once(Fault.LATE, late_seconds=10))
        with pytest.raises(UnavailableError):
            await store.put("k", b"late", mode=CREATE)
        await store.put("k", b"second", mode=CREATE)
        await world.network.quiet()
        assert (await store.get("k")).data == b"second"
        world.rule(once(Fault.LATE, late_seconds=10))
        with pytest.raises(UnavailableError):
            await store.put("k", b"late", mode=CREATE)
        await store.delete(["k"])
        await world.network.quiet()
        assert (await store.get("k")).data == b"late"

    play(body)


def test_a_late_write_lands_after_the_crash_of_its_sender() -> None:
    async def write(store: FaultyStore) -> None:
        with pytest.raises(UnavailableError):
            await store.put("k", b"v")

    async def scenario(world: World) -> None:
        node = world.node("a")
        world.rule(once(Fault.LATE, late_seconds=100))
        await node.run(write(world.cloud.objects(node)))
        node.crash()
        assert world.cloud.store.objects == {}
        await asyncio.sleep(101)
        assert list(world.cloud.store.objects) == ["k"]

    world = World(1, plan=FaultPlan(lands_after_crash=1.0).scaled(0))
    world.run(scenario(world))


def test_a_held_request_waits_for_its_release() -> None:
    async def scenario(world: World) -> None:
        node = world.node("a")
        world.rule(Rule(lambda process, operation, key: key == "k1", Fault.HELD))
        store = world.cloud.objects(node)
        first = node.spawn(store.put("k1", b""))
        await node.run(store.put("k2", b""))
        await asyncio.sleep(500)
        assert list(world.cloud.store.objects) == ["k2"]
        with pytest.raises(RuntimeError, match="held"):
            await world.network.quiet()
        (request,) = world.network.held.values()
        assert (request.sender.name, request.key) == ("a", "k1")
        world.network.release(request)
        await node.join(first)
        assert list(world.cloud.store.objects) == ["k2", "k1"]

    world = World(1)
    world.run(scenario(world))


@pytest.mark.parametrize("lands", [0.0, 1.0])
def test_a_cancelled_put_happens_as_a_whole_or_not(lands: float) -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        task = asyncio.ensure_future(store.put("k", b"v"))
        await asyncio.sleep(0.0001)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await world.network.quiet()
        assert len(world.cloud.store.objects) == lands

    play(body, plan=FaultPlan(lands_after_crash=lands).scaled(0))


def test_a_store_without_conditions() -> None:
    async def ignored(world: World, node: Node, store: FaultyStore) -> None:
        await store.put("k", b"1", mode=CREATE)
        await store.put("k", b"2", mode=CREATE)
        await store.put("k", b"3", mode=Match("x"))
        assert (await store.get("k")).data == b"3"

    async def refused(world: World, node: Node, store: FaultyStore) -> None:
        with pytest.raises(InvalidError, match="no conditional writes"):
            await store.put("k", b"1", mode=CREATE)
        await store.put("k", b"1")

    play(ignored, conditions=Conditions.IGNORED)
    play(refused, conditions=Conditions.REFUSED)


def test_rates_are_what_the_plan_says() -> None:
    plan, rng = FaultPlan(), derived_rng(1, "rates")
    drawn = [plan.draw(rng, write=True) for _ in range(20_000)]
    for fault, rate in ((Fault.LATE, plan.late), (Fault.LOST_RESPONSE, plan.lost_response), (Fault.NONE, 0.77)):
        assert abs(drawn.count(fault) / len(drawn) - rate) < 0.02
    reads = {plan.draw(rng, write=False) for _ in range(2000)}
    assert reads == {Fault.NONE, Fault.DELAYED, Fault.THROTTLED, Fault.REFUSED}
    assert {plan.scaled(0).draw(rng, write=True) for _ in range(100)} == {Fault.NONE}


def metadata(world: World, node: Node) -> tuple[FaultyRegister, FaultyMetaStore]:
    """The register and the manifest of one database."""
    objects, factory = MetaObjects(world.cloud.objects(node)), world.cloud.metastore(node)
    return factory.register(objects, "db"), factory.manifest(objects, "db")


def test_a_register_has_three_outcomes() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        register, _ = metadata(world, node)
        assert await register.read() is None
        first = await register.compare_and_set(None, b"1")
        assert isinstance(first, Committed)
        assert await register.compare_and_set(None, b"2") == Conflict(Cell(b"1", first.value))
        world.rule(once(Fault.LOST_RESPONSE))
        assert isinstance(await register.compare_and_set(first.value, b"2"), Unknown)
        second = await register.read()
        assert second is not None
        assert second.value == b"2"
        world.rule(once(Fault.LATE, late_seconds=5))
        assert isinstance(await register.compare_and_set(second.tag, b"2"), Unknown)
        assert await register.read() == second
        await world.network.quiet()
        third = await register.read()
        assert third is not None
        assert (third.value, third.tag == second.tag) == (b"2", False)  # equal bytes, fresh tag
        world.rule(Rule(lambda *_: True, Fault.REFUSED))
        with pytest.raises(MetaStoreUnavailableError):
            await register.read()
        with pytest.raises(MetaStoreInvalidError):
            await register.compare_and_set(third.tag, bytes(400_000))

    play(body)


def test_a_manifest_has_three_outcomes_and_keeps_its_head() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        _, manifest = metadata(world, node)
        refs = [VersionRef(number, node.runtime.ids.token()) for number in range(1, 5)]
        assert await manifest.latest() is None
        assert await manifest.commit(refs[1], b"") == Conflict(None)
        assert await manifest.commit(refs[0], b"one") == Committed(refs[0])
        assert await manifest.commit(VersionRef(1, refs[3].token), b"") == Conflict(refs[0])
        world.rule(once(Fault.LATE, late_seconds=5))
        assert isinstance(await manifest.commit(refs[1], b"late"), Unknown)
        assert (await manifest.versions()) == refs[:1]
        await world.network.quiet()
        assert await manifest.latest() == Record(refs[1], b"late")
        assert await manifest.commit(refs[2], b"three") == Committed(refs[2])
        with pytest.raises(MetaStoreInvalidError):
            await manifest.delete([refs[2]])
        await manifest.delete([refs[0]])
        assert await manifest.read(refs[0]) is None
        assert await manifest.read(VersionRef(2, refs[0].token)) is None
        assert await manifest.collect([refs[1]]) == 0
        assert await manifest.collect([], as_of=refs[1]) == 0
        assert await manifest.collect([]) == 1
        assert await manifest.versions() == [refs[2]]
        assert await manifest.commit(refs[0], b"again") == Conflict(refs[2])

    play(body)


def test_every_event_is_traced() -> None:
    async def body(world: World, node: Node, store: FaultyStore) -> None:
        await store.put("k", b"v", mode=CREATE)
        with pytest.raises(ObjectExistsError):
            await store.put("k", b"v", mode=CREATE)

    world = play(body, keep_trace=True)
    events = [line.split(" ", 1)[1] for line in world.trace.lines]
    assert events[:5] == [
        "a start  0 0",
        "a send put-create(1:4c94485e0c21) k ok",
        "a land put-create(1:4c94485e0c21) k ok",
        "a send put-create(1:4c94485e0c21) k ok",
        "a land put-create(1:4c94485e0c21) k ObjectExistsError",
    ]
    assert world.trace.count == len(world.trace.lines)
