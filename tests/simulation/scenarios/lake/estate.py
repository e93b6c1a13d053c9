"""One collection of a world, what is true of it, and how each simulated process gets at it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from metastores.names import MERGED_AREAS
from metastores.protocol import MetaStore, MetaStoreFactory
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import Time, join, less_equal
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.collections.writer.puts import WriterContext
from slate_async.collections.writer.writer import shard_of
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.supervisor import Supervisor
from tests.simulation.dynamodb import REGIONS, SimGlobalTable, factory_in, replica_of
from tests.simulation.node import Cloud, Node
from tests.simulation.scenarios.lake.params import LakeParams
from tests.simulation.world import World

NAME = "orders"
FOLDER = f"{NAME}/1"
DEADLINE_MS = 4_000
Row = tuple[bytes, Time, int]
"""Data, time, diff."""
Contents = list[tuple[bytes, int]]
"""Data and sums."""


@dataclass(slots=True)
class Ack:
    """An append that was acknowledged. ``rows``: what it brought to a ``compare`` collection."""

    lower: Frontier
    upper: Frontier
    rows: list[Row]
    author: str


@dataclass(slots=True)
class Estate:
    """A seed's world, its parameters, and what was seen.

    truth: all updates of a ``definite`` collection; of a ``compare`` one, what its chain has brought so far
    acks: of all processes; ``refused``: marks of appends that certainly brought nothing
    over: the calm has begun; nobody starts anything new
    """

    world: World
    params: LakeParams
    rng: random.Random
    truth: list[Row] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    over: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    marks: int = 0
    uuid: UUID = field(init=False)
    schema: UpdateSchema = field(init=False)
    _table: SimGlobalTable | None = None

    def __post_init__(self) -> None:
        rng = self.rng
        self.uuid = UUID(int=rng.getrandbits(128), version=4)
        self.schema = UpdateSchema.of_bytes(self.params.kind)
        if self.params.appends is Appends.DEFINITE:
            self.truth = [
                (b"%d" % rng.randint(0, 2), self.point(rng), rng.choice((-1, 1, 2))) for _ in range(rng.randint(8, 24))
            ]
        if self.params.metastore == "dynamodb":
            self._table = SimGlobalTable(self.world)

    # ---- times

    @property
    def minimum(self) -> Frontier:
        """Where times begin."""
        return Frontier.minimum(self.params.kind)

    def point(self, rng: random.Random) -> Time:
        """Any time."""
        return tuple(rng.randrange(self.params.edge) for _ in range(self.params.kind.coordinates))

    def next_upper(self, rng: random.Random, lower: Frontier) -> Frontier:
        """Where the next batch ends, which may be anywhere beyond where it begins."""
        if rng.random() < self.params.closed:
            return DONE
        if self.params.kind.coordinates == 1:
            return Frontier([(lower.elements[0][0] + rng.randint(1, 3),)])
        for _ in range(9):
            one, other = self.point(rng), self.point(rng)
            upper = lower.join(Frontier([one, other] if rng.random() < 0.6 else [join(one, other)]))
            if upper != lower:
                return upper
        return Frontier(tuple(number + 1 for number in element) for element in lower.elements)

    def is_finished(self, end: Frontier) -> bool:
        """Whether every time is written, or the collection closed."""
        return all(max(element) >= self.params.edge for element in end.elements)

    # ---- what is true

    def rows(self, lower: Frontier, upper: Frontier) -> list[Row]:
        """What is written at the times between."""
        return [row for row in self.truth if lower.less_equal(row[1]) and not upper.less_equal(row[1])]

    def contents(self, as_of: Time) -> Contents:
        """What a snapshot shows."""
        sums: dict[bytes, int] = {}
        for data, time, diff in self.truth:
            if less_equal(time, as_of):
                sums[data] = sums.get(data, 0) + diff
        return sorted((data, diff) for data, diff in sums.items() if diff)

    def mark(self, author: str) -> bytes:
        """Data that only one append brings."""
        self.marks += 1
        return b"%s %d" % (author.encode(), self.marks)

    def count(self, name: str, by: int = 1) -> None:
        """One more of ``name`` for the statistics."""
        self.counts[name] = self.counts.get(name, 0) + by

    def turns(self) -> Iterator[None]:
        """Rounds of a process, until the calm."""
        while not self.over:
            yield

    # ---- how a process gets at it

    def factory(self, node: Node, cloud: Cloud | None = None) -> MetaStoreFactory:
        """The metastore in that process."""
        cloud = self.world.cloud if cloud is None else cloud
        match self.params.metastore:
            case "put-if-absent":
                return cloud.put_if_absent(node)
            case "if-match":
                return cloud.if_match(node)
            case "server":
                return cloud.metastore(node)
        assert self._table is not None
        return factory_in(self.world, node, self._table, REGIONS[0])

    def store(self, node: Node, cloud: Cloud | None = None) -> ObjectStore:
        """The folder of the life."""
        cloud = self.world.cloud if cloud is None else cloud
        return PrefixedStore(cloud.objects(node, page_keys=self.params.page_keys), FOLDER)

    def versions(self, node: Node, cloud: Cloud | None = None) -> AreaVersions:
        """The merged area, as one more process opens it."""
        metastore: MetaStore
        url = f"memory://{FOLDER}"
        if cloud is not None and self._table is not None:
            metastore = replica_of(self._table, url, REGIONS[0], node, MERGED_AREAS)
        else:
            metastore = self.factory(node, cloud).manifest(MetaObjects(self.store(node, cloud)), url, MERGED_AREAS)
        supervisor = Supervisor(f"{node.name}/versions", _ignored)
        return AreaVersions(metastore, self.params.kind, node.runtime, supervisor, name=NAME, deadline_ms=DEADLINE_MS)

    def pending(self, node: Node, cloud: Cloud | None = None) -> PendingStore:
        """The pending area."""
        return PendingStore(self.store(node, cloud), self.schema, self.uuid, node.runtime.offload)

    def holds(self, node: Node) -> HoldStore:
        """The holds of all readers."""
        return HoldStore(self.store(node), self.params.kind)

    def writing(self, node: Node, writer: str) -> WriterContext:
        """What a writer works with."""
        shard = shard_of(writer, self.params.appends)
        return WriterContext(
            NAME, shard, self.schema, self.pending(node), self.versions(node), node.runtime, DEADLINE_MS
        )

    def reading(self, node: Node, **options: Any) -> ReaderContext:
        """What a reader works with."""
        params = self.params
        given: dict[str, Any] = {
            "deadline_ms": DEADLINE_MS,
            "lease_ms": params.lease_ms,
            "poll_interval_ms": params.poll_ms,
            "shard_patience_ms": 3 * params.poll_ms,
            "shard_lag": 2,
            **options,
        }
        return ReaderContext(
            NAME,
            self.schema,
            params.appends,
            self.store(node),
            self.pending(node),
            self.holds(node),
            self.versions(node),
            node.runtime,
            **given,
        )


def _ignored(cause: BaseException) -> None:
    """Commits report to who waits for them."""
