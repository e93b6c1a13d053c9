"""A reader that follows the database without writing: adopts manifests, tails the log, shows what it has."""

from __future__ import annotations

from slate_async.errors import SlateError
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.history import Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import RowTuple, live, record_view
from tests.simulation.scenarios.engine.tail import Piece, Tail, sst_rows, still_holds


class Follower:
    """What it knows: a manifest state, and the log's pieces from its ``log_start`` on."""

    def __init__(self, database: SimulatedDatabase, node: Node, state: ManifestState) -> None:
        self._database = database
        self._node = node
        self._handle = database.handle(node)
        self._state = state
        self._tail = Tail(database, self._handle, state)
        self._pieces: list[Piece] = []

    def adopt(self, head: ManifestState) -> None:
        """Rule 20, in one step: rows below ``log_start`` go, the tail moves up to it, ``log_floor`` with it."""
        if head.version <= self._state.version:
            return
        self._state = head
        self._pieces = kept_pieces(self._pieces, head)
        if self._tail.next_id < head.log_start:
            self._tail = Tail(self._database, self._handle, head)

    async def poll(self) -> None:
        """One round."""
        first, floor = self._tail.next_id, self._tail.floor
        believed = False
        try:
            pieces = await self._tail.read(self._database.params.lag)
            if self._node.rng.random() < 0.3:
                await self._handle.nap(1.5)
            head = await self._handle.driver.load()
            assert head is not None
            believed = still_holds(first, head)
        finally:
            if not believed:  # whatever was read does not count, nor does that it was read
                self._tail.walk.next_id, self._tail.walk.floor = first, floor
        if not believed:
            self.adopt(head)
            return
        if applies_more(head, self._state):
            self.adopt(head)
        self._pieces += pieces
        if self._node.rng.random() < 0.5:
            self.adopt(head)

    async def look(self) -> None:
        """Show everything it has."""
        state, pieces = self._state, list(self._pieces)
        stored = await sst_rows(self._database, self._handle, state)
        logged = above_l0([row for piece in pieces for row in piece.rows], state)
        record_view(self._database.history, self._node.name, Kind.DURABLE, live([*stored, *logged]))


def kept_pieces(pieces: list[Piece], head: ManifestState) -> list[Piece]:
    """Rule 20: what stays of the log when ``head`` is adopted."""
    return [piece for piece in pieces if piece.id >= head.log_start]


def above_l0(rows: list[RowTuple], state: ManifestState) -> list[RowTuple]:
    """Rule 19: log rows that the manifest does not cover already."""
    return [row for row in rows if row.seq > state.last_seq]


def applies_more(head: ManifestState, state: ManifestState) -> bool:
    """Rule 30: whether ``head`` has an ingest that comes before the log rows that follow ``state``."""
    return head.ingest_seq > state.ingest_seq


async def follow(database: SimulatedDatabase, node: Node) -> None:
    """Follow until the calm, and once more then."""
    handle = database.handle(node)
    follower: Follower | None = None
    for _ in database.turns():
        await handle.nap(0.3)
        try:
            if follower is None:
                state = await handle.driver.load()
                if state is None:
                    continue
                follower = Follower(database, node, state)
            await follower.poll()
            if node.rng.random() < 0.4:
                await follower.look()
        except SlateError:
            database.count("follower-errors")
