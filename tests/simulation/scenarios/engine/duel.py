"""Two writers open one database at the same instant: one wins, the other is fenced, whatever the interleaving."""

from __future__ import annotations

from slate_async.errors import FencedError, SlateError
from tests.simulation.checkers import Violation, check_history
from tests.simulation.history import History, Kind
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.params import Params
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.protocol import Stats
from tests.simulation.world import World

CALM = {
    "faults": 0.0,
    "ack": "committed",
    "create_by_writers": False,
    "crashes": 0.0,
    "freezes": 0.0,
}
WRITES = 3
LONG_MS = 3_600_000


class Duelist:
    """One of the two. ``fate``: how it was fenced, ``None`` for the winner."""

    def __init__(self, database: SimulatedDatabase, node: Node) -> None:
        self.session = Session(database, node)
        self.fate: str | None = None

    async def run(self) -> None:
        """Open, write, and ask whether it still is the writer."""
        try:
            await self._run()
        except FencedError:
            self.fate = self.fate or "fenced-while-writing"

    async def _run(self) -> None:
        if not await self.session.open():
            self.fate = "fenced-while-opening"
            return
        for _ in range(WRITES):
            await self.session.write()
        await self.session.db.confirm()


async def duel(world: World) -> Stats:
    """Both at once; sometimes the database is yet to be created."""
    params = Params.draw(derived_rng(world.seed, "params"), CALM)
    database = SimulatedDatabase(world, params, History(world.loop.time))
    if world.rng.random() < 0.7:
        await database.create()
    pair = [Duelist(database, world.node(name, skew_ms=world.rng.randrange(-60_000, 60_000))) for name in ("a", "b")]
    tasks = [duellist.session.node.spawn(duellist.run(), "duel") for duellist in pair]
    for one, task in zip(pair, tasks, strict=True):
        await one.session.node.join(task)
    winner = await _winner(pair)
    winner.session.node.clock.jump(LONG_MS)  # so that what was to expire has
    if not await winner.session.node.run(winner.session.look(Kind.FINAL)):
        raise Violation("epoch", "the winner cannot read")
    check_history(database.history)
    loser = pair[1 - pair.index(winner)]
    if loser.fate is None:
        loser.fate = "fenced-after-writing"
    return {
        "duels": 1,
        loser.fate: 1,
        "acknowledged": sum(write.is_acked for write in database.history.writes.values()),
    }


async def _winner(pair: list[Duelist]) -> Duelist:
    """The sessions that are still writers; there must be exactly one."""
    alive: list[Duelist] = []
    for duellist in pair:
        if duellist.fate is None:
            try:
                await duellist.session.node.run(duellist.session.db.confirm())
            except SlateError:
                continue
            alive.append(duellist)
    if len(alive) != 1:
        raise Violation("epoch", f"{len(alive)} of two writers that opened at one instant live")
    return alive[0]
