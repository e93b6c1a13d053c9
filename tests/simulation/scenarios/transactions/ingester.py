"""`ListIngester`: a driver of bulk ingests, each of which begins a list: a transaction that reads nothing."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import write_ssts
from tests.simulation.history import Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.ingester import CALM, Ingester, batches_of
from tests.simulation.scenarios.transactions.ledger import Ledger, Txn, encoded
from tests.simulation.scenarios.transactions.session import LISTS


class ListIngester(Ingester):
    """See the module docstring."""

    def __init__(self, database: SimulatedDatabase, node: Node, ledger: Ledger) -> None:
        super().__init__(database, node)
        self._ledger = ledger
        self._key, self._txn = b"", Txn(0, "", 0.0)

    async def step(self) -> None:
        """One write, in a few attempts; what came of it is noted."""
        history = self._database.history
        self._txn = txn = self._ledger.begin(self._node.name, history.now())
        self._key = LISTS + b"i%04d" % txn.id
        txn.appends = {self._key}
        self._ledger.ingested.append(self._key)
        number = history.next_id
        await super().step()
        write = history.writes[number]
        if write.is_acked:
            txn.outcome, txn.ended, txn.seq = "ok", history.now(), write.seq or 0
            self._database.count("ingested-lists")
        elif write.refused:
            txn.outcome = "refused"

    async def _make(self, spec: IngestSpec, write: Write) -> Sequence[IngestedSst]:
        rows = {**write.changes, self._key: encoded((self._txn.id,))}
        return await write_ssts(self._handle.store, spec, batches_of(write.id, rows), self._node.runtime)


async def ingest_lists(ledger: Ledger, database: SimulatedDatabase, node: Node) -> None:
    """Ingest until the calm."""
    ingester = ListIngester(database, node, ledger)
    for _ in database.turns(CALM):
        await ingester._handle.nap(0.6)
        await ingester.step()
