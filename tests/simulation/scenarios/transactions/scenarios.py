"""The scenarios of transactions."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.scenarios.engine.params import Params
from tests.simulation.scenarios.engine.play import Play, play_scenario
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.transactions.ingester import ingest_lists
from tests.simulation.scenarios.transactions.ledger import Ledger, ListOfIds, decoded
from tests.simulation.scenarios.transactions.session import ACCOUNTS, LISTS, check_balances, live_with
from tests.simulation.world import World

BUSY: Mapping[str, Any] = {"ack": "committed", "tasks": 4, "rounds": 16, "early_flushes": True}
CALM: Mapping[str, Any] = {
    **BUSY,
    "faults": 0.0,
    "crashes": 0.0,
    "freezes": 0.0,
    "writers": 1,
    "lives": 1,
    "tasks": 6,
    "rounds": 25,
    "ingesters": 0,
}


class TransactionPlay(Play):
    """`Play` whose writers run transactions."""

    def __init__(self, world: World, params: Params) -> None:
        super().__init__(world, params)
        self.ledger = Ledger()
        self.act = functools.partial(live_with, self.ledger)  # type: ignore[method-assign]
        self.ingest = functools.partial(ingest_lists, self.ledger)  # type: ignore[method-assign]
        self._final: dict[bytes, ListOfIds] = {}

    async def _finish(self, session: Session) -> None:
        await session.db.flush()
        self._final = {key: decoded(value) async for key, value in session.db.scan(prefix=LISTS, durable=True)}
        check_balances({key: int(value) async for key, value in session.db.scan(prefix=ACCOUNTS, durable=True)})
        await super()._finish(session)

    async def _judge(self) -> None:
        await super()._judge()
        self.ledger.check(self._final)


TRANSACTIONS: Sequence[Scenario] = (
    play_scenario("transactions", "transactions, updates and conditional writes; all faults", BUSY, TransactionPlay),
    play_scenario("transactions-ingest", "the same beside bulk ingests", {**BUSY, "ingesters": 2}, TransactionPlay),
    play_scenario("transactions-calm", "many tasks of one writer, no faults", CALM, TransactionPlay),
)
