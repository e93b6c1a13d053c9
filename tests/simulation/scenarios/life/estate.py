"""All databases of a life: the source, its clones and its mirror; how a process opens parts of them; what must stay."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import slate_async as slate
from slate_async.database.handle import Handle
from slate_async.errors import ClosedError, FencedError, InvalidError, UnavailableError
from slate_async.settings import Settings
from tests.simulation.checkers import Violation
from tests.simulation.history import History, Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.life.consumed import Consumed
from tests.simulation.scenarios.life.eye import Eye, nearby
from tests.simulation.scenarios.life.params import LifeParams
from tests.simulation.world import World

EXPECTED = (FencedError, ClosedError, UnavailableError)
"""What anything open may raise in a world like this."""
Rows = list[tuple[bytes, bytes, int]]
"""(key, value, sequence number), as a scan shows them."""
EXPIRED = b"expired"
"""What `put_expiring` writes where it gives no time."""
IDS_OF_A_CLONE = 100_000
"""Writes of different databases have different ids."""


@dataclass(slots=True)
class Kept:
    """A user's checkpoint.

    expire_ms: until then it is promised, by anybody's clock; ``None`` for ever
    deleted: somebody has begun to delete it
    refreshing: the processes that have begun to lengthen it, and nobody knows when that takes effect; refreshes: how
    many ever did
    rows: what the first reader of it saw
    """

    id: UUID
    expire_ms: int | None
    deleted: bool = False
    refreshing: list[Node] = field(default_factory=list)
    refreshes: int = 0
    rows: Rows | None = None

    def promised(self, node: Node, end: int | None = None) -> bool:
        """Whether it must be there for that process, also for a call that saw nothing newer than the ``end`` it had
        when the call began."""
        now_ms = node.clock.now_ms()
        return not self.deleted and all(deadline is None or now_ms < deadline for deadline in (self.expire_ms, end))


@dataclass(slots=True)
class Clone:
    """A clone, made once or not at all.

    acked: writes that were acknowledged when the first call began that made it
    source: the checkpoint it is made of; ``None`` for the head
    base: what it held when it was finished
    left: the process that makes it soon gives up
    made: it was finished; doomed: somebody has begun to destroy it; ended: its destruction is complete
    """

    database: SimulatedDatabase
    source: Kept | None = None
    begun: bool = False
    acked: list[Write] = field(default_factory=list)
    base: Rows | None = None
    left: bool = False
    made: bool = False
    doomed: bool = False
    ended: bool = False


class Estate:
    """See the module docstring."""

    def __init__(self, world: World, params: LifeParams) -> None:
        self.world = world
        self.params = params
        self.source = SimulatedDatabase(world, params, History(world.loop.time), "memory://source", "source")
        self.clones = [Clone(self._clone_site(number)) for number in range(1, params.clones + 1)]
        self.mirrors = [self._mirror_site(number) for number in range(1, min(params.mirrorers, 1) + 1)]
        for clone in self.clones:
            clone.database.neighbours = list(self.databases())
        self.mirrored: dict[UUID, Kept] = {}
        self.kept: dict[UUID, Kept] = {}
        self.consumers = [Consumed(f"hold{n}" if n % 3 == 0 else None, pin=n % 3 != 1) for n in range(params.feeds)]
        node, cloud = world.node("eye"), nearby(world)
        self.eyes: list[Eye] = []
        for database in self.databases():
            self.eyes.append(Eye(database, node, cloud, self.eyes))
        world.network.observers.extend(self.eyes)

    def _clone_site(self, number: int) -> SimulatedDatabase:
        history = History(self.world.loop.time, ids_from=number * IDS_OF_A_CLONE)
        return SimulatedDatabase(self.world, self.params, history, f"memory://clone{number}", f"clone{number}")

    def _mirror_site(self, number: int) -> SimulatedDatabase:
        history = History(self.world.loop.time, ids_from=(len(self.clones) + number) * IDS_OF_A_CLONE)
        return SimulatedDatabase(self.world, self.params, history, f"memory://mirror{number}", f"mirror{number}")

    def databases(self) -> Iterator[SimulatedDatabase]:
        """All of them."""
        yield self.source
        yield from (clone.database for clone in self.clones)
        yield from self.mirrors

    def eye(self, database: SimulatedDatabase) -> Eye:
        """The environment that sees that database."""
        return next(eye for eye in self.eyes if eye.database is database)

    def is_finished(self, clone: Clone) -> bool:
        """Whether ``clone`` is there, though the process that finished it may not know."""
        head = self.eye(clone.database).head
        return head is not None and head.initialized

    def is_abandoned(self, clone: Clone) -> bool:
        """Whether a collector has ended the making of ``clone``, as it may when it is impatient."""
        head = self.eye(clone.database).head
        ended = head is not None and head.destroyed_at_ms is not None and not head.initialized
        return ended and self.params.impatient

    def count(self, name: str, by: int = 1) -> None:
        """One more of ``name`` for the statistics."""
        self.source.count(name, by)

    def acknowledged(self) -> list[Write]:
        """Writes to the source whose acknowledgement promises that everybody sees them: ``flushed`` promises less."""
        if self.params.ack == "flushed":
            return []
        return [write for write in self.source.history.writes.values() if write.is_acked]

    def check(self) -> None:
        """Raise the first thing that the eyes saw go wrong."""
        for eye in self.eyes:
            if eye.wrong:
                raise eye.wrong[0]

    # ---- what processes open

    def settings(self, node: Node) -> Settings:
        """What a process opens anything with but a writer."""
        return self.params.settings(node.rng, None)

    @contextlib.asynccontextmanager
    async def environment(self, node: Node) -> AsyncIterator[slate.Environment]:
        """An environment in that process, from which all databases are reached."""
        stores = {database.name: database.store(node) for database in self.databases()}
        async with slate.Environment(runtime=node.runtime, stores=stores) as environment:
            yield environment

    @contextlib.asynccontextmanager
    async def compactor(self, node: Node, database: SimulatedDatabase) -> AsyncIterator[slate.DbCompactor]:
        """A compactor of ``database``."""
        async with (
            self.environment(node) as env,
            env.open_compactor(
                database.store(node),
                name=database.name,
                metastore=database.factory(node),
                settings=self.settings(node),
                progress=lambda event: self.count(f"compactions-{event.kind}") if event.kind != "progress" else None,
            ) as compactor,
        ):
            try:
                yield compactor
            finally:
                self._check_cause(node, database, compactor)

    @contextlib.asynccontextmanager
    async def collector(self, node: Node, database: SimulatedDatabase) -> AsyncIterator[slate.GarbageCollector]:
        """A garbage collector of ``database`` that works only when the scenario asks for it."""
        async with (
            self.environment(node) as env,
            env.open_gc(
                database.store(node),
                name=database.name,
                metastore=database.factory(node),
                settings=self.settings(node),
                periodic=False,
            ) as collector,
        ):
            try:
                yield collector
            finally:
                self._check_cause(node, database, collector)

    @contextlib.asynccontextmanager
    async def reader(
        self, node: Node, database: SimulatedDatabase, *, checkpoint: UUID | None = None, pin: bool = True
    ) -> AsyncIterator[slate.DbReader]:
        """A reader of ``database``."""
        async with (
            self.environment(node) as env,
            env.open_reader(
                database.store(node, page_keys=node.rng.choice((2, 1000))),
                checkpoint=checkpoint,
                pin=pin,
                name=database.name,
                metastore=database.factory(node),
                settings=self.settings(node),
            ) as reader,
        ):
            try:
                yield reader
            finally:
                self._check_cause(node, database, reader)

    @contextlib.asynccontextmanager
    async def admin(self, node: Node, database: SimulatedDatabase) -> AsyncIterator[slate.Admin]:
        """The administration of ``database``."""
        async with (
            self.environment(node) as env,
            env.open_admin(
                database.store(node), name=database.name, metastore=database.factory(node), settings=self.settings(node)
            ) as admin,
        ):
            yield admin

    def _check_cause(self, node: Node, database: SimulatedDatabase, handle: Handle) -> None:
        """What closed itself had a reason that this world can give."""
        cause = handle._cause
        if cause is None or isinstance(cause, EXPECTED):
            return
        doomed = any(clone.doomed for clone in self.clones if clone.database is database)
        if not (doomed and isinstance(cause, InvalidError)):
            raise Violation("broken", f"{node.name} closed itself: {cause!r}") from cause


async def rows_of(readable: slate.DbReader) -> Rows:
    """Everything that is there."""
    async with readable.snapshot() as snapshot:
        return [(row.key, row.value, row.seq) async for row in snapshot.scan().rows()]


def lasting(rows: Rows) -> Rows:
    """``rows`` without those that have hardly any time to live: whether they are seen depends on the reader's clock."""
    return [row for row in rows if row[1] != EXPIRED]
