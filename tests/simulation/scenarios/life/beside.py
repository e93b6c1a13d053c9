"""Processes beside the writers: compactors, garbage collectors, readers. Each is one process of the product."""

from __future__ import annotations

from slate_async.database.reader import DbReader
from slate_async.errors import ConflictError, InvalidError
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import MARKER, record_view
from tests.simulation.scenarios.life.estate import EXPECTED, Estate, Rows, rows_of

CALM = 2
"""Turns once the calm has begun."""


async def nap(node: Node, longest: float) -> None:
    """Sleep by chance."""
    await node.runtime.clock.sleep(node.rng.uniform(0, longest))


async def compact(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """Be the compactor until another one takes over, and after a while again."""
    for _ in estate.source.turns(CALM):
        await nap(node, 0.5)
        try:
            async with estate.compactor(node, database) as compactor:
                for _ in range(node.rng.randint(1, 6)):
                    await nap(node, 0.4)
                    if node.rng.random() < 0.3:
                        await compactor.compact(full=node.rng.random() < 0.5)
                    if compactor.status().state != "open" or estate.source.over:
                        break
        except EXPECTED:
            estate.count("compactors-ended")


async def collect(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """Collect garbage."""
    for _ in estate.source.turns(CALM):
        await nap(node, 0.3)
        try:
            async with estate.collector(node, database) as collector:
                for _ in range(node.rng.randint(1, 6)):
                    report = await collector.collect()
                    estate.count("versions-collected", report.manifest_versions)
                    estate.count("objects-collected", len(report.objects))
                    await nap(node, 0.4)
                    if estate.source.over:
                        break
        except EXPECTED:
            estate.count("collectors-ended")


async def follow(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """Follow the database, with checkpoints or without, and look at it in many ways."""
    for _ in database.turns(CALM):
        await nap(node, 0.3)
        pin = node.rng.random() < 0.75
        try:
            async with estate.reader(node, database, pin=pin) as reader:
                following = Following(estate, database, node, reader, pin=pin)
                for _ in range(node.rng.randint(1, 8)):
                    await nap(node, 0.5)
                    await following.step()
                    if estate.source.over:
                        break
        except EXPECTED:
            estate.count("readers-ended")


class Following:
    """One open reader and what it has shown so far."""

    def __init__(self, estate: Estate, database: SimulatedDatabase, node: Node, reader: DbReader, *, pin: bool) -> None:
        self._estate = estate
        self._database = database
        self._node = node
        self._reader = reader
        self._pin = pin
        self._seen: set[int] = set()
        self._ends: list[int] = []

    async def step(self) -> None:
        """Look once."""
        way = self._node.rng.random()
        try:
            if way < 0.5:
                await self._look()
            elif way < 0.8:
                await self._catch_up()
            elif way < 0.9:
                await self._hold()
            else:
                await self._look_back()
        except ConflictError:
            if self._pin and not self._reader.metrics()["reader.checkpoints_lost"]:
                raise
            self._estate.count("lost-moments")

    async def _look(self) -> set[int]:
        rows = await rows_of(self._reader)
        record_view(self._database.history, self._node.name, Kind.DURABLE, rows)
        writes = set(writes_of(rows))
        if self._seen - writes:
            raise Violation("backwards", f"{self._node.name} saw writes {sorted(self._seen - writes)}, then not")
        self._seen = writes
        self._ends = [seq for key, _, seq in rows if key.startswith(MARKER)]
        self._estate.count("reader-views")
        return writes

    async def _catch_up(self) -> None:
        """After `refresh` everything is here that was acknowledged before the call."""
        acked = self._estate.acknowledged()
        await self._reader.refresh()
        writes = await self._look()
        missing = [str(write) for write in acked if write.id not in writes]
        if missing:
            raise Violation("stale", f"{self._node.name} refreshed and misses {missing[0]}")

    async def _hold(self) -> None:
        """A snapshot shows the same however long it is held."""
        async with self._reader.snapshot() as snapshot:
            first = [(row.key, row.seq) async for row in snapshot.scan(prefix=MARKER).rows()]
            await nap(self._node, 2)
            again = [(row.key, row.seq) async for row in snapshot.scan(prefix=MARKER).rows()]
        if first != again:
            raise Violation("snapshot", f"{self._node.name}'s snapshot changed from {first} to {again}")

    async def _look_back(self) -> None:
        """Any read point from the floor of history on is shown as it was: judged when the order is known."""
        floor = self._reader._source.reader_state.manifest.history_floor
        ends = [seq for seq in self._ends if seq >= floor]
        if not ends:
            return
        seq = self._node.rng.choice(ends)
        try:
            async with self._reader.as_of(seq=seq) as snapshot:
                rows = [(row.key, row.value, row.seq) async for row in snapshot.scan().rows()]
        except InvalidError:
            if self._reader._source.reader_state.manifest.history_floor <= seq:
                raise
            return
        view = record_view(self._database.history, self._node.name, Kind.DURABLE, rows)
        self._database.history.moments.append((seq, view))
        self._estate.count("moments")


def writes_of(rows: Rows) -> list[int]:
    """The ids of the writes that a scan shows."""
    return [int(key[1:]) for key, _, _ in rows if key.startswith(MARKER)]
