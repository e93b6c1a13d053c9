"""One collection of a world, what is true of it, and how each simulated process gets at it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.collections.codec.life import Appends, Life, LifeState
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import Time, join, less_equal
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.writer.puts import WriterContext
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.collections import CollectionSettings
from tests.simulation.dynamodb import REGIONS, ReplicaFactory, SimGlobalTable, factory_in
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
class Heard:
    """What a listener has stored: all it was given from ``as_of`` until ``upper``; ``begun``: the contents then."""

    as_of: Time
    upper: Frontier
    begun: bool = False
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Estate:
    """A seed's world, its parameters, and what was seen.

    truth: all updates of a ``definite`` collection; of a ``compare`` one, what its chain has brought so far
    acks: of all processes; ``refused``: marks of appends that certainly brought nothing
    stored: what listeners have stored, by their names: it survives them
    over: the calm has begun; nobody starts anything new
    acknowledged: what some processes hand over to others
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
    stored: dict[str, Heard] = field(default_factory=dict)
    life: Life = field(init=False)
    settings: CollectionSettings = field(init=False)
    acknowledged: AcknowledgedBatches = field(default_factory=AcknowledgedBatches)
    _opened: int = 0
    _table: SimGlobalTable | None = None

    def __post_init__(self) -> None:
        rng, params = self.rng, self.params
        uuid = UUID(int=rng.getrandbits(128), version=4)
        self.life = Life(uuid, 1, LifeState.OPEN, UpdateSchema.of_bytes(params.kind), params.appends)
        self.settings = CollectionSettings(
            lease_ms=params.lease_ms,
            poll_interval_ms=params.poll_ms,
            shard_patience_ms=params.poll_ms,
            shard_lag=2,
            flush_parallelism=params.parallelism,
            exert_interval_ms=2 * params.poll_ms,
            gc_interval_ms=2 * params.poll_ms,
            downgrade_interval_ms=params.poll_ms,
            retry_deadline_ms=DEADLINE_MS,
            request_timeout_ms=DEADLINE_MS,
        )
        if self.params.appends is Appends.DEFINITE:
            self.truth = [
                (b"%d" % rng.randint(0, 2), self.point(rng), rng.choice((-1, 1, 2)))
                for _ in range(rng.randint(8, 2 * params.edge))
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
        return contents_of(self.truth, as_of)

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
        """The metastore in that process; ``cloud``: without a network."""
        match self.params.metastore:
            case "put-if-absent":
                return (cloud or self.world.cloud).put_if_absent(node)
            case "if-match":
                return (cloud or self.world.cloud).if_match(node)
            case "server":
                return (cloud or self.world.cloud).metastore(node)
        assert self._table is not None
        if cloud is not None:
            return ReplicaFactory(node, self._table, REGIONS[0])
        return factory_in(self.world, node, self._table, REGIONS[0])

    def stores(self, node: Node, cloud: Cloud | None = None) -> LifeStores:
        """The life, as one more process opens it."""
        objects = (cloud or self.world.cloud).objects(node, page_keys=self.params.page_keys)
        stores = LifeStores.of(
            PrefixedStore(objects, NAME),
            self.life,
            name=NAME,
            url=f"memory://{NAME}",
            metastores=self.factory(node, cloud),
            runtime=node.runtime,
            settings=self.settings,
            supervisor=Supervisor(f"{node.name}/life", _ignored),
        )
        self._opened += 1
        near = self.params.near
        return replace(stores, acknowledged=self.acknowledged) if near and self._opened % near == 1 % near else stores

    def writing(self, node: Node, name: str) -> WriterContext:
        """What the writer ``name`` works with."""
        context, nbytes = self.stores(node).writing(name), self.params.part_bytes
        if self.params.near:
            context = replace(context, acknowledged=self.acknowledged)
        return replace(context, part_bytes=nbytes) if nbytes else context


def _ignored(cause: BaseException) -> None:
    """Commits report to who waits for them."""


def contents_of(rows: Iterable[Row], as_of: Time) -> Contents:
    """The sums of ``rows`` at a time."""
    sums: dict[bytes, int] = {}
    for data, time, diff in rows:
        if less_equal(time, as_of):
            sums[data] = sums.get(data, 0) + diff
    return sorted((data, diff) for data, diff in sums.items() if diff)
