"""Keepers: make checkpoints, read them, lengthen them, delete them. Their contents never change."""

from __future__ import annotations

import slate_async as slate
from slate_async.errors import ConflictError, InvalidError
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind, Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import record_view
from tests.simulation.scenarios.life.beside import CALM, nap, writes_of
from tests.simulation.scenarios.life.estate import EXPECTED, Estate, Kept, rows_of


async def keep(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """One thing after another, with any checkpoint there is."""
    keeper = Keeper(estate, database, node)
    for _ in database.turns(CALM):
        await nap(node, 0.5)
        try:
            await keeper.step()
        except EXPECTED:
            estate.count("keepers-failed")


class Keeper:
    """One process that looks after checkpoints of the source."""

    def __init__(self, estate: Estate, database: SimulatedDatabase, node: Node) -> None:
        self._estate = estate
        self._database = database
        self._node = node

    async def step(self) -> None:
        """Do something."""
        steps = (self._create, self._copy, self.read, self._refresh, self._delete)
        step = self._node.rng.choices(steps, (0.35, 0.1, 0.35, 0.1, 0.1))[0]
        await step()

    async def _create(self) -> None:
        await self._create_for(self._lifetime())

    async def create(self) -> Kept:
        """One for ever, and read it."""
        return await self._create_for(None)

    async def _create_for(self, lifetime: float | None) -> Kept:
        acked = self._estate.acknowledged()
        async with self._estate.admin(self._node, self._database) as admin:
            info = await admin.checkpoints.create(lifetime=lifetime)
        kept = self._note(info)
        await self._read(kept, acked)
        return kept

    async def _copy(self) -> None:
        source = self._any()
        if source is None:
            return
        end = source.expire_ms
        try:
            async with self._estate.admin(self._node, self._database) as admin:
                info = await admin.checkpoints.create(lifetime=self._lifetime(), source=source.id)
        except InvalidError:
            self._check_lost(source, end)
        else:
            self._note(info).rows = source.rows

    async def read(self) -> None:
        """Read one, and compare with what was read first."""
        kept = self._any()
        if kept is not None:
            await self._read(kept, [])

    async def _refresh(self) -> None:
        kept = self._any()
        if kept is None or kept.expire_ms is None:
            return
        end = kept.expire_ms
        lifetime = self._lifetime()
        alone = not kept.refreshing
        kept.refreshing.append(self._node)
        kept.refreshes += 1
        turn = kept.refreshes
        if lifetime is not None:  # from here on that may be its end
            kept.expire_ms = min(kept.expire_ms, self._node.clock.now_ms() + round(lifetime * 1000))
        try:
            async with self._estate.admin(self._node, self._database) as admin:
                info = await admin.checkpoints.refresh(kept.id, lifetime=lifetime)
        except InvalidError:
            kept.refreshing.remove(self._node)
            self._check_lost(kept, end)
            return
        if alone and kept.refreshes == turn:  # else another one's may have come later, or be still to come
            kept.expire_ms = self._end(info)
        kept.refreshing.remove(self._node)
        self._estate.count("checkpoints-refreshed")

    async def _delete(self) -> None:
        kept = self._any()
        if kept is None:
            return
        kept.deleted = True
        try:
            async with self._estate.admin(self._node, self._database) as admin:
                await admin.checkpoints.delete(kept.id)
        except InvalidError:
            return  # it had expired and was collected, or somebody else was first
        self._estate.count("checkpoints-deleted")

    async def _read(self, kept: Kept, acked: list[Write]) -> None:
        end = kept.expire_ms
        try:
            async with self._estate.reader(self._node, self._database, checkpoint=kept.id) as reader:
                rows = await rows_of(reader)
        except (InvalidError, ConflictError):
            self._check_lost(kept, end)
            return
        record_view(self._database.history, self._node.name, Kind.DURABLE, rows)
        self._estate.count("checkpoint-views")
        missing = {write.id for write in acked}.difference(writes_of(rows))
        if missing:
            raise Violation("stale", f"checkpoint {kept.id} misses writes {sorted(missing)}, acknowledged before it")
        if kept.rows is None:
            kept.rows = rows
        elif kept.rows != rows:
            raise Violation("checkpoint", f"checkpoint {kept.id} held {kept.rows}, and holds {rows}")

    def _note(self, info: slate.CheckpointInfo) -> Kept:
        kept = self._estate.kept[info.id] = Kept(info.id, self._end(info))
        self._estate.count("checkpoints")
        return kept

    def _any(self) -> Kept | None:
        alive = [kept for kept in self._estate.kept.values() if kept.promised(self._node)]
        return self._node.rng.choice(alive) if alive else None

    def _check_lost(self, kept: Kept, end: int | None) -> None:
        """``end``: what its end was when the call began, which may have seen nothing newer."""
        if kept.promised(self._node, end):
            raise Violation("checkpoint", f"checkpoint {kept.id} vanished before its time")

    def _lifetime(self) -> float | None:
        return self._node.rng.choice((None, 0.3, 2.0))

    def _end(self, info: slate.CheckpointInfo) -> int | None:
        return None if info.expire_time is None else round(info.expire_time * 1000)
