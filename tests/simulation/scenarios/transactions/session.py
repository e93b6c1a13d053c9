"""`TransactionSession`: one life of a writer whose tasks run transactions, updates and conditional writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import slate_async as slate
from slate_async.errors import ConflictError, SlateError
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.workload import EXPECTED, Session, live_in
from tests.simulation.scenarios.transactions.ledger import Ledger, ListOfIds, Txn, decoded, encoded

LISTS = b"xl"
LIST_KEYS = [LISTS + b"%d" % number for number in range(5)]
ACCOUNTS = b"xb"
ACCOUNT_KEYS = [ACCOUNTS + b"%d" % number for number in range(4)]
EACH = 100
PAUSE_S = 0.08
READS = ("get", "get_many", "get_row", "scan", "scan_reverse")


class TransactionSession(Session):
    """See the module docstring."""

    isolation: slate.Isolation = "serializable"

    def __init__(self, database: SimulatedDatabase, node: Node, ledger: Ledger) -> None:
        super().__init__(database, node)
        self.ledger = ledger

    def check_work(self) -> None:
        """No transaction is open any more."""
        for name in ("retries", "alone", "evicted"):
            self.database.count(name, int(self.db.metrics()[f"transactions.{name}"]))
        if self.db.metrics()["transactions.open"]:
            raise Violation("leak", f"{self.node.name} has open transactions")

    async def _opened(self) -> slate.Db:
        database, node, rng = self.database, self.node, self.rng
        settings = database.params.settings(rng, self._poll_ms).replace(
            transaction_lifetime_ms=rng.choice((150, 60_000, 60_000)), on_outage=rng.choice(("reopen", "close"))
        )
        return await on(node.runtime).open(
            database.store(node), name=database.name, metastore=database.factory(node), settings=settings
        )

    async def work(self, rounds: int) -> None:
        """Random operations, one after another, until the database is closed or the rounds are up."""
        steps: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (0.40, self.append),
            (0.12, self.append_by_update),
            (0.12, self.append_if),
            (0.10, self.audit),
            (0.10, self.transfer),
            (0.08, self.write),
            (0.04, self.flush),
            (0.06, self.flush_l0),
        )
        weights, calls = [weight for weight, _ in steps], [call for _, call in steps]
        for _ in range(rounds):
            call = self.rng.choices(calls, weights)[0]
            try:
                with self._reading():
                    await call()
            except EXPECTED:
                if self.has_ended:
                    return
            if self.rng.random() < 0.4:
                await self._pause()

    async def _pause(self) -> None:
        if self.rng.random() < 0.7:
            await self.node.runtime.clock.sleep(self.rng.uniform(0, PAUSE_S))

    # ---- lists

    async def append(self) -> None:
        """Read some lists in one transaction, and append to some of them, or none."""
        txn = self._begin_txn()
        keys = self.rng.sample(LIST_KEYS, self.rng.choice((1, 2, 2, 3)))
        chosen = keys[: self.rng.choice((0, 1, 1, 1, len(keys)))]
        keys += self.ledger.ingested[-2:]
        way, durable = self.rng.choice(READS), self.rng.random() < 0.8

        async def run(tx: slate.Transaction) -> None:
            txn.reads = await self._read(tx, keys, way)
            await self._pause()
            there = [key for key in self.ledger.ingested if txn.reads.get(key)]
            appended = [*chosen, *there[-1:]] if chosen else []
            for key in appended:
                tx.put(key, encoded((*txn.reads[key], txn.id)))
            txn.appends = set(appended)
            if way == "get" and appended and await tx.get(appended[0]) != encoded((*txn.reads[appended[0]], txn.id)):
                raise Violation("own-write", f"{txn} did not see its own write")

        async def once() -> None:
            async with self.db.transaction(isolation=self.isolation, await_durable=durable) as tx:
                await run(tx)
                if txn.id % 2:
                    txn.seq = (await tx.commit()).seq

        async def repeated() -> None:
            await self.db.transact(
                run, retries=self.rng.choice((2, 20)), isolation=self.isolation, await_durable=durable
            )

        await self._settle_txn(txn, once if self.rng.random() < 0.6 else repeated, durable)

    async def _read(self, tx: slate.Transaction, keys: list[bytes], way: str) -> dict[bytes, ListOfIds]:
        if way == "get":
            return {key: decoded(await tx.get(key)) for key in keys}
        if way == "get_many":
            return dict(zip(keys, map(decoded, await tx.get_many(keys)), strict=True))
        if way == "get_row":
            rows = {key: await tx.get_row(key) for key in keys}
            return {key: decoded(None if row is None else row.value) for key, row in rows.items()}
        found = {key: value async for key, value in tx.scan(prefix=LISTS, reverse=way == "scan_reverse")}
        return {key: decoded(found.get(key)) for key in (*LIST_KEYS, *self.ledger.ingested)}

    async def append_by_update(self) -> None:
        """As an update of one key."""
        txn, key = self._begin_txn(), self.rng.choice(LIST_KEYS)
        txn.appends = {key}

        def appended(value: bytes | None) -> bytes:
            txn.reads = {key: decoded(value)}
            return encoded((*txn.reads[key], txn.id))

        async def update() -> None:
            txn.seq = (await self.db.update(key, appended)).seq

        await self._settle_txn(txn, update, True)

    async def append_if(self) -> None:
        """As a read outside of any transaction, and a conditional write."""
        txn, key = self._begin_txn(), self.rng.choice(LIST_KEYS)
        txn.appends = {key}

        async def write() -> None:
            row = await self.db.get_row(key)
            txn.reads = {key: decoded(None if row is None else row.value)}
            await self._pause()
            value = encoded((*txn.reads[key], txn.id))
            if row is None:
                handle = await self.db.put(key, value, if_absent=True)
            elif self.rng.random() < 0.5:
                handle = await self.db.put(key, value, if_seq=row.seq)
            else:
                handle = await self.db.put(key, value, if_value=row.value)
            txn.seq = handle.seq

        await self._settle_txn(txn, write, True)

    def _begin_txn(self) -> Txn:
        return self.ledger.begin(self.node.name, self.history.now())

    async def _settle_txn(self, txn: Txn, call: Callable[[], Awaitable[None]], durable: bool) -> None:
        """``call`` is made, perhaps not to its end; note what came of it."""
        limit = self.rng.choice((0.01, 0.1)) if self.rng.random() < 0.1 else None
        try:
            async with asyncio.timeout(limit):
                await call()
        except TimeoutError:
            self.database.count("cancelled")
        except SlateError as error:
            if error.outcome == "not_applied":
                txn.outcome = "refused"
            if isinstance(error, ConflictError):
                self.database.count(f"conflict-{error.reason or 'other'}")
                if error.reason is None:
                    raise
                return
            raise
        else:
            if durable:
                txn.outcome, txn.ended = "ok", self.history.now()
                self.database.count("committed" if txn.appends else "read-only")

    # ---- accounts

    async def transfer(self) -> None:
        """Move money from one account to another; the first one to come opens them."""
        source, target = self.rng.sample(ACCOUNT_KEYS, 2)

        async def run(tx: slate.Transaction) -> None:
            balances = await self._balances(tx)
            await self._pause()
            if not balances:
                for key in ACCOUNT_KEYS:
                    tx.put(key, b"%d" % EACH)
                return
            tx.put(source, b"%d" % (balances[source] - 1))
            tx.put(target, b"%d" % (balances[target] + 1))

        try:
            await self.db.transact(run, retries=5, isolation=self.isolation)
        except ConflictError as error:
            if error.reason is None:
                raise

    async def audit(self) -> None:
        """The sum of all accounts, in a transaction that only reads."""
        try:
            async with self.db.transaction(isolation=self.isolation) as tx:
                await self._balances(tx)
        except ConflictError as error:
            if error.reason is None:
                raise

    async def _balances(self, tx: slate.Transaction) -> dict[bytes, int]:
        if self.rng.random() < 0.5:
            found = {key: int(value) async for key, value in tx.scan(prefix=ACCOUNTS)}
        else:
            values = [await tx.get(key) for key in ACCOUNT_KEYS]
            found = {key: int(value) for key, value in zip(ACCOUNT_KEYS, values, strict=True) if value is not None}
        check_balances(found)
        return found


def check_balances(found: dict[bytes, int]) -> None:
    """All of the money is there, if there is any."""
    if found and (len(found) < len(ACCOUNT_KEYS) or sum(found.values()) != EACH * len(ACCOUNT_KEYS)):
        raise Violation("bank", f"the accounts are {found}")


async def live_with(ledger: Ledger, database: SimulatedDatabase, node: Node) -> None:
    """The whole life of a writer."""
    await live_in(TransactionSession(database, node, ledger))
