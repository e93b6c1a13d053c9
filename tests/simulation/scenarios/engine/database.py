"""The one database of a world, and how each simulated process gets at it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import slate_async as slate
from metastores.bodies import ObjectBodies
from metastores.names import MANIFEST, Layout
from metastores.protocol import ConditionalObjects, MetaStore, MetaStoreFactory, Needs, Register
from metastores.register_store import RegisterMetaStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.retry import RetryingStore
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.reader import LogReader
from slate_async.storage.manifest.creation import features_of, kept_elsewhere
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import Ground
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.state import ManifestState
from tests.engine import on
from tests.simulation.history import History
from tests.simulation.node import Cloud, Node
from tests.simulation.scenarios.engine.attempts import Attempts
from tests.simulation.scenarios.engine.params import Params
from tests.simulation.scenarios.engine.rows import RowCache
from tests.simulation.world import World

CALM_TURNS = 10
NAME = "memory://simulated"


class RegisterFactory:
    """The manifest's head in a plain register of a server, bodies as objects; the writer's register beside it."""

    needs = Needs()

    def __init__(self, cloud: Cloud, node: Node) -> None:
        self._server = cloud.metastore(node)
        self._runtime = node.metadata_runtime

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = MANIFEST) -> MetaStore:
        """The manifest of that database."""
        head = self._server.register(objects, f"{name}/head")
        return RegisterMetaStore(head, ObjectBodies(objects, layout), self._runtime, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """The register of that database."""
        return self._server.register(objects, name)

    async def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class SimulatedDatabase:
    """A seed's world, its parameters, and what was seen.

    name, folder: of the database, and where in the store it is
    over: the calm has begun; nobody starts anything new
    neighbours: databases whose SSTs it may name
    collected: log objects that the collectors have deleted, or are about to
    """

    world: World
    params: Params
    history: History
    name: str = NAME
    folder: str = ""
    rows: RowCache = field(default_factory=RowCache)
    attempts: Attempts = field(default_factory=Attempts)
    neighbours: Sequence[SimulatedDatabase] = ()
    over: bool = False
    collected: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        """One more of ``name`` for the statistics."""
        self.counts[name] = self.counts.get(name, 0) + by

    def turns(self, calm: int = CALM_TURNS) -> Iterator[None]:
        """Rounds of a helper: for ever, and ``calm`` more once the calm has begun, when the sleepers wake."""
        left = calm
        while left:
            left -= self.over
            yield

    def store(self, node: Node, cloud: Cloud | None = None, *, page_keys: int = 1000) -> ObjectStore:
        """Its folder in that process; ``cloud`` instead of the world's, for callers that need no network."""
        objects = (self.world.cloud if cloud is None else cloud).objects(node, page_keys=page_keys)
        return PrefixedStore(objects, self.folder) if self.folder else objects

    def factory(self, node: Node, cloud: Cloud | None = None) -> MetaStoreFactory:
        """Its metadata in that process."""
        cloud = self.world.cloud if cloud is None else cloud
        if self.params.metadata == "put-if-absent":
            return cloud.put_if_absent(node)
        if self.params.metadata == "if-match":
            return cloud.if_match(node)
        return cloud.metastore(node) if self.params.metadata == "server" else RegisterFactory(cloud, node)

    async def open(self, node: Node, poll_ms: int | None) -> slate.Db:
        """Open it as a writer."""
        rng: random.Random = node.rng
        store = self.store(node, page_keys=rng.choice((2, 1000)))
        factory, settings = self.factory(node), self.params.settings(rng, poll_ms)
        if not self.neighbours:
            return await on(node.runtime).open(store, name=self.name, metastore=factory, settings=settings)
        stores = {database.name: database.store(node) for database in self.neighbours}
        environment = slate.Environment(runtime=node.runtime, stores=stores)
        try:
            # not recreated where a clone was destroyed
            db = await environment.open(store, name=self.name, metastore=factory, settings=settings, create=False)
        except BaseException:
            await run_to_completion(environment.close())
            raise
        db._on_closed(environment.close)
        return db

    def handle(self, node: Node) -> Handle:
        """What actors other than writers work with."""
        store = RetryingStore(self.store(node), node.runtime.clock, node.runtime.rng)
        objects = MetaObjects(store)
        factory = self.factory(node)
        metastore = factory.manifest(objects, self.name)
        supervisor = Supervisor(node.name, node_failure)
        driver = ManifestDriver(metastore, node.runtime, supervisor, name=self.name, full_every=3, deadline_ms=10_000)
        return Handle(node, store, metastore, driver, factory.register(objects, self.name))

    async def create(self) -> None:
        """Make the empty database, in a process of its own."""
        node = self.world.node("creator")
        handle = self.handle(node)
        state = ManifestState(
            database_id=node.runtime.ids.uuid(),
            log_protocol=self.params.protocol,
            wal_enabled=self.params.wal,
            created_ms=node.clock.now_ms(),
            properties=MappingProxyType({}),
            required_features=features_of(self.factory(node)),
        )
        await node.run(self._create(handle, state))

    async def _create(self, handle: Handle, state: ManifestState) -> None:
        await self.settle(handle, await handle.driver.create(state))

    async def settle(self, handle: Handle, state: ManifestState) -> None:
        """What comes before anything is put into the database's place."""
        ground = Ground(handle.store, self.name, kept_elsewhere(self.factory(handle.node)))
        await settle_place(ground, handle.driver, state, None, handle.node.runtime.ids.uuid)


def node_failure(cause: BaseException) -> None:
    """A failed task of an actor: its own awaiter raises it."""


@dataclass(slots=True)
class Handle:
    """Store, metastore, manifest and writer's register in one process."""

    node: Node
    store: RetryingStore
    metastore: MetaStore
    driver: ManifestDriver
    register: Register

    def log(self, state: ManifestState) -> LogReader:
        """A reader of whole log objects."""
        return LogReader(self.store, state.database_id, whole=True)

    async def nap(self, longest: float) -> None:
        """Sleep by chance."""
        await self.node.runtime.clock.sleep(self.node.rng.uniform(0, longest))
