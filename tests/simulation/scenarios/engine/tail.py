"""Reading the log as everybody but its writer may: what is at the tail, and which of it counts.

Rule 12: where to start ignoring lower epochs is the manifest's ``log_floor``. Rule 13: nothing concluded from ids
holds unless a head read *afterwards* still starts the log at or below them; `still_holds` is that test.
"""

from __future__ import annotations

from typing import NamedTuple

from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.scenarios.engine.actors import read_register
from tests.simulation.scenarios.engine.database import Handle, SimulatedDatabase
from tests.simulation.scenarios.engine.rows import RowTuple


class Piece(NamedTuple):
    """The rows of one log position; none if it does not count."""

    id: int
    rows: list[RowTuple]


class Tail:
    """A position in the log and what to ignore from there on."""

    def __init__(self, database: SimulatedDatabase, handle: Handle, state: ManifestState) -> None:
        self._database = database
        self._handle = handle
        self._state = state
        self.walk = ContiguousWalk(state.log_start, initial_floor(state))

    @property
    def next_id(self) -> int:
        """The position that comes next."""
        return self.walk.next_id

    @property
    def floor(self) -> int:
        """The highest epoch seen so far."""
        return self.walk.floor

    async def read(self, limit: int) -> list[Piece]:
        """Up to ``limit`` positions that are there, without a gap."""
        if self._state.log_protocol == "contiguous":
            return await self._read_contiguous(limit)
        return await self._read_epoch_prefixed(limit)

    async def _read_contiguous(self, limit: int) -> list[Piece]:
        pieces: list[Piece] = []
        reader = self._handle.log(self._state)
        for _ in range(limit):
            log_id = self.walk.next_id
            found = await reader.read(log_id, contiguous_key(log_id))
            if found is None:
                break
            valid = self.walk.offer(log_id, found.header.writer_epoch) is Verdict.VALID
            pieces.append(Piece(log_id, self._rows(found) if valid else []))
        return pieces

    async def _read_epoch_prefixed(self, limit: int) -> list[Piece]:
        pieces: list[Piece] = []
        register = await read_register(self._handle)
        reader = self._handle.log(self._state)
        for _ in range(limit):
            log_id = self.walk.next_id
            owner = register.owner(log_id)
            if log_id > register.last_written or owner is None:
                break
            found = await reader.read(log_id, epoch_key(owner, log_id))
            if found is None:
                break
            self.walk.next_id += 1
            self.walk.floor = max(self.walk.floor, owner)
            pieces.append(Piece(log_id, self._rows(found)))
        return pieces

    def _rows(self, found: LogObject) -> list[RowTuple]:
        etag = found.data[:80].hex()  # the header holds a checksum of everything
        return self._database.rows.decode(found.key, etag, found.data, self._state.database_id)


def initial_floor(state: ManifestState) -> int:
    """Rule 12."""
    return state.log_floor


def still_holds(first_id: int, head: ManifestState) -> bool:
    """Rule 13: whether ids from ``first_id`` on, read before ``head``, may be believed."""
    return head.log_start <= first_id


async def sst_rows(database: SimulatedDatabase, handle: Handle, state: ManifestState) -> list[RowTuple]:
    """All rows of the SSTs that a state names."""
    rows: list[RowTuple] = []
    for sst in (*state.l0, *(sst for run in state.runs for sst in run.ssts)):
        found = await handle.store.get(sst.location)
        stored = database.rows.decode(sst.location, found.info.etag, found.data, state.database_id)
        rows += stored if sst.global_seq is None else [row._replace(seq=sst.global_seq) for row in stored]
    return rows
