"""The simulated store and metastores pass the suites that every backend must pass, run in the simulator itself."""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from metastores.protocol import MetaStore, Register
from metastores.testing import MetaStoreSuite, RegisterSuite
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.testing import ObjectStoreConformance
from tests.simulation.loop import Interleaving
from tests.simulation.node import Node
from tests.simulation.store import FaultyStore
from tests.simulation.world import World

WORLD: contextvars.ContextVar[World] = contextvars.ContextVar("world")
NAMES = (f"database-{number}" for number in itertools.count())


def processes(world: World, count: int) -> list[tuple[Node, MetaObjects]]:
    """Fresh processes and their view of the object store."""
    return [(node, MetaObjects(world.cloud.objects(node))) for node in (world.node("p") for _ in range(count))]


class Objects(ObjectStoreConformance):
    """The store of a world without faults; each handle belongs to another process."""

    racers = 12
    rounds = 3
    increments = 20
    large_bytes = 100_000

    async def make_store(self) -> ObjectStore:
        world = WORLD.get()
        return world.cloud.objects(world.node("a"))

    async def make_peer(self, store: ObjectStore) -> FaultyStore:
        world = WORLD.get()
        return world.cloud.objects(world.node("b"))


class Manifests(MetaStoreSuite):
    """The manifest of a server."""

    body_sizes = (10, 1_000, 400_000)

    async def make_metastores(self, count: int) -> Sequence[MetaStore]:
        world, name = WORLD.get(), next(NAMES)
        return [world.cloud.metastore(node).manifest(objects, name) for node, objects in processes(world, count)]


class Registers(RegisterSuite):
    """The register of a server."""

    async def make_registers(self, count: int) -> Sequence[Register]:
        world, name = WORLD.get(), next(NAMES)
        return [world.cloud.metastore(node).register(objects, name) for node, objects in processes(world, count)]


def cases(suite: type) -> list[Any]:
    """Every test of a suite."""
    return [
        pytest.param(suite, name, id=f"{suite.__name__}-{name}")
        for name in sorted(dir(suite))
        if name.startswith("test_")
    ]


@pytest.mark.parametrize(("suite", "name"), [*cases(Objects), *cases(Manifests), *cases(Registers)])
def test_conformance(suite: type, name: str) -> None:
    async def scenario(world: World) -> None:
        WORLD.set(world)
        await getattr(suite(), name)()

    world = World(1, interleaving=Interleaving.SHUFFLED)
    world.run(scenario(world))
