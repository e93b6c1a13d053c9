"""An interleaving that chance finds too rarely: a transaction reads what is lost afterwards."""

from __future__ import annotations

import asyncio

from slate_async.storage.log.names import PREFIX
from tests.simulation.checkers import Violation
from tests.simulation.history import History
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.play import drawn_params, make_world
from tests.simulation.scenarios.engine.stage import CALM, Stage
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.transactions.ledger import Ledger, ListOfIds, decoded
from tests.simulation.scenarios.transactions.session import LISTS, TransactionSession
from tests.simulation.world import World

SOON_SECONDS = 0.5


async def read_before_a_loss(world: World) -> Stats:
    """Run transactions whose rows are on their way to the log, and transactions that read those; then end the writer,
    and lose the rows or not."""
    stage = Stage(SimulatedDatabase(world, drawn_params(world.seed, CALM), History(world.loop.time)))
    await stage.database.create()
    ledger, rng = Ledger(), stage.rng
    owner = TransactionSession(stage.database, world.node("owner"), ledger)
    if not await owner.node.run(owner.open()):
        raise Violation("stuck", "nobody could open a calm database")
    stuck = stage.hold(owner.node, "put", PREFIX)
    stage.begin(owner.node, owner.append_by_update())
    await stuck.caught()
    for _ in range(rng.randint(4, 8)):
        stage.begin(owner.node, owner.append())  # some of which only read
        await asyncio.sleep(rng.uniform(0, SOON_SECONDS))
    if rng.random() < 0.2:
        stuck.release()
        await asyncio.sleep(rng.uniform(0, SOON_SECONDS))
    owner.node.crash()
    last = await stage.writer("last")
    stuck.release()
    await world.network.quiet()
    ledger.check(await last.node.run(_lists(last)))
    return await stage.end()


async def _lists(session: Session) -> dict[bytes, ListOfIds]:
    return {key: decoded(value) async for key, value in session.db.scan(prefix=LISTS, durable=True)}


READ_BEFORE_A_LOSS = Scenario(
    "script-transactions-loss",
    "a writer dies with rows that other transactions have read",
    lambda seed, keep: make_world(seed, keep, CALM),
    read_before_a_loss,
)
