"""A compactor, as small as it can be: merges everything there is into one run, in which tombstones end.

With a WAL it takes L0; without one it takes the log itself, and so moves ``log_start`` (rules 12, 13, 21). Its
commits apply iff the epoch is its own and every input is still there (rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.errors import ConflictError, FencedError, SlateError
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reference import sst_ref
from slate_async.types import PUT
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import Handle, SimulatedDatabase
from tests.simulation.scenarios.engine.rows import RowTuple, columns_of, newest
from tests.simulation.scenarios.engine.tail import Tail, sst_rows, still_holds


@dataclass(frozen=True, slots=True)
class ClaimCompactor:
    """Become the compactor."""

    token: str

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is the token."""
        if state.compactor_token == self.token:
            return None
        return replace(state, compactor_epoch=state.compactor_epoch + 1, compactor_token=self.token)


@dataclass(frozen=True, slots=True)
class Compact:
    """Replace all of ``base``'s SSTs, and the log up to ``log_end``, by ``runs``. ``base`` is what the work began
    with; ``log_end`` is ``None`` if the log was left alone."""

    epoch: int
    base: ManifestState
    runs: tuple[SortedRun, ...]
    log_end: int | None
    log_floor: int
    last_seq: int
    last_tick_ms: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is the run's id, or that the log has moved on."""
        if state.compactor_epoch != self.epoch:
            raise FencedError("another compactor took over")
        if state.runs == self.runs != self.base.runs:
            return None
        inputs = self.base.l0
        if state.runs != self.base.runs or (inputs and state.l0[-len(inputs) :] != inputs):
            raise ConflictError("an input was removed")
        floor = max(state.history_floor, self.base.last_seq, self.last_seq)  # nothing older than the newest is kept
        kept = replace(state, runs=self.runs, l0=state.l0[: len(state.l0) - len(inputs)], history_floor=floor)
        if self.log_end is None:
            return kept
        if state.log_start != self.base.log_start or state.l0 != inputs:
            raise ConflictError("the log's start moved, or something newer than the log is in L0")
        return replace(
            kept,
            log_start=self.log_end + 1,
            log_floor=max(state.log_floor, self.log_floor),
            last_seq=max(state.last_seq, self.last_seq),
            last_tick_ms=max(state.last_tick_ms, self.last_tick_ms),
        )


class Compactor:
    """One process's hold of the role."""

    def __init__(self, database: SimulatedDatabase, node: Node) -> None:
        self._database = database
        self._node = node
        self.handle: Handle = database.handle(node)
        self._epoch = 0

    async def claim(self) -> None:
        """Take the role."""
        state = await self.handle.driver.commit(ClaimCompactor(self._node.runtime.ids.token()))
        self._epoch = state.compactor_epoch

    async def compact(self) -> None:
        """One compaction, if there is something to do."""
        handle = self.handle
        base = await handle.driver.load()
        assert base is not None
        logged: list[RowTuple] = []
        log_end, floor = None, 0
        if not base.wal_enabled:
            tail = Tail(self._database, handle, base)
            pieces = await tail.read(self._node.rng.randint(1, self._database.params.bite))
            head = await handle.driver.load()
            assert head is not None
            if not still_holds(base.log_start, head):
                return
            logged = [row for piece in pieces for row in piece.rows]
            log_end, floor = (tail.next_id - 1, tail.floor) if pieces else (None, 0)
        if not base.l0 and log_end is None:
            return
        rows = [*await sst_rows(self._database, handle, base), *logged]
        now_ms = self._node.clock.now_ms()
        kept = [row for row in newest(rows).values() if row.kind == PUT and row.expire_ms > now_ms]
        runs = (SortedRun(self._node.rng.getrandbits(40), (await self._put(base, kept),)),) if kept else ()
        await handle.nap(self._node.rng.choice((0, 0, 0, 0.05, 1)))
        seqs = [row.seq for row in logged]
        ticks = [row.create_ms for row in logged]
        edit = Compact(self._epoch, base, runs, log_end, floor, max(seqs, default=0), max(ticks, default=0))
        await handle.driver.commit(edit)
        self._database.count("compactions")

    async def _put(self, base: ManifestState, rows: list[RowTuple]) -> SstRef:
        object_id = self._node.runtime.ids.ulid(self._node.clock.now_ms())
        builder = SstBuilder(
            database_id=base.database_id,
            object_id=object_id,
            writer_epoch=base.writer_epoch,
            manifest_version=base.version,
        )
        builder.add(columns_of(rows))
        encoded = builder.finish()
        location = sst_key(base.version, object_id)
        await self.handle.store.put(location, encoded.buffers)
        return sst_ref(location, object_id, encoded, base.writer_epoch)


async def compact(database: SimulatedDatabase, node: Node) -> None:
    """Compact until the calm or until another compactor takes over."""
    compactor = Compactor(database, node)
    claimed = False
    for _ in database.turns():
        await compactor.handle.nap(0.15)
        try:
            if not claimed:
                await compactor.claim()
                claimed = True
            await compactor.compact()
        except FencedError:
            return
        except SlateError:
            database.count("compactor-errors")
