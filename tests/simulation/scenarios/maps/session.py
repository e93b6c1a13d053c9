"""`MapSession`: one life of a writer whose tasks change a map in every way, build its indexes and drop them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

import slate_async as slate
from slate_async.database.maps.layout import layout_of
from slate_async.errors import ConflictError, InvalidError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.workload import EXPECTED, Session, live_in

KEYS = range(10)
SKUS = ("a", "b", "c", "d", "e", "f", None)
COLORS = ("red", "green", "blue")
LAYOUT = layout_of(b"\xfdm\0")
PAUSE_S = 0.05


class Product(msgspec.Struct):
    sku: str | None
    color: str


INDEXES = (slate.Index[Product]("sku", unique=True), slate.Index[Product]("color"))
Products = slate.Map[int, Product]


def products(db: slate.Db, *indexes: slate.Index[Product]) -> Products:
    """The map, as it is declared with ``indexes``."""
    return db.map("m", key=int, value=Product, indexes=indexes)


def entries_of(rows: Mapping[bytes, Product]) -> dict[bytes, bytes]:
    """What the indexes have to have."""
    found: dict[bytes, bytes] = {}
    for row, product in rows.items():
        found[LAYOUT.entries(b"color") + slate.keys.pack(product.color) + row] = row
        if product.sku is not None:
            entry = LAYOUT.entries(b"sku") + slate.keys.pack(product.sku)
            if found.setdefault(entry, row) != row:
                raise Violation("unique", f"{product.sku!r} is that of {row!r} and of {found[entry]!r}")
    return found


class MapSession(Session):
    """See the module docstring."""

    def __init__(self, database: SimulatedDatabase, node: Node) -> None:
        super().__init__(database, node)
        self.plain_first = self.rng.random() < 0.5

    @property
    def map(self) -> Products:
        """A handle as this process declares it, now."""
        return products(self.db) if self.plain_first else products(self.db, *INDEXES)

    def check_work(self) -> None:
        """No transaction is open any more."""
        if self.db.metrics()["transactions.open"]:
            raise Violation("leak", f"{self.node.name} has open transactions")

    async def work(self, rounds: int) -> None:
        """Random operations, one after another, until the database is closed or the rounds are up."""
        steps: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (0.30, self.put),
            (0.10, self.delete),
            (0.12, self.update),
            (0.12, self.transact),
            (0.08, self.batch),
            (0.14, self.compare),
            (0.06, self.build),
            (0.02, self.drop),
            (0.03, self.flush),
            (0.05, self.flush_l0),
            (0.06, self.write),
        )
        weights, calls = [weight for weight, _ in steps], [call for _, call in steps]
        for at in range(rounds):
            if at == rounds // 4:
                self.plain_first = False
            call = self.rng.choices(calls, weights)[0]
            try:
                with self._reading():
                    await self._attempt_of(call)
            except EXPECTED:
                if self.has_ended:
                    return
            if self.rng.random() < 0.4:
                await self.pause()

    async def _attempt_of(self, call: Callable[[], Awaitable[None]]) -> None:
        """A change that may be refused, or cancelled."""
        try:
            if self.rng.random() < 0.06:
                async with asyncio.timeout(self.rng.uniform(0, 0.03)):
                    await call()
            else:
                await call()
        except TimeoutError:
            self.database.count("cancelled")
        except slate.UniqueError:
            self.database.count("refused")
        except ConflictError as error:
            if error.reason is None:
                raise
            self.database.count("conflicts")
        except InvalidError as error:
            if not any(text in str(error) for text in ("has an index", "is being dropped", "has no index")):
                raise
            self.database.count("other-indexes")

    async def pause(self) -> None:
        """A little while, or none."""
        if self.rng.random() < 0.7:
            await self.node.runtime.clock.sleep(self.rng.uniform(0, PAUSE_S))

    def _product(self) -> Product:
        return Product(self.rng.choice(SKUS), self.rng.choice(COLORS))

    def _how(self) -> dict[str, Any]:
        ttl = self.rng.uniform(0.05, 1) if self.rng.random() < 0.15 else None
        return {"ttl": ttl, "await_durable": self.rng.random() < 0.7}

    async def put(self) -> None:
        """One row, now and then only if it is not there."""
        await self.map.put(self.rng.choice(KEYS), self._product(), if_absent=self.rng.random() < 0.2, **self._how())
        self.database.count("puts")

    async def delete(self) -> None:
        """One row."""
        await self.map.delete(self.rng.choice(KEYS), await_durable=self.rng.random() < 0.7)

    async def update(self) -> None:
        """One row, by what it is."""

        def changed(product: Product | None) -> Product | None:
            if product is None or self.rng.random() < 0.5:
                return self._product()
            return None if self.rng.random() < 0.2 else Product(product.sku, self.rng.choice(COLORS))

        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.2:
            await self.map.touch(key, ttl=self.rng.uniform(0.1, 2))
        else:
            await self.map.update(key, changed, **self._how())

    async def transact(self) -> None:
        """Some rows in one transaction, which goes on after a row that is refused, and while indexes change."""
        found = self.map
        async with self.db.transaction(await_durable=self.rng.random() < 0.7) as tx:
            rows = found.within(tx)
            for key in self.rng.sample(KEYS, self.rng.choice((1, 2, 3))):
                with contextlib.suppress(slate.UniqueError):
                    if self.rng.random() < 0.3:
                        await rows.delete(key)
                    else:
                        await rows.put(key, self._product())
                if self.rng.random() < 0.15:
                    await self.rng.choice((self.build, self.build, self.drop))()
                await self.pause()

    async def batch(self) -> None:
        """Some rows in one batch."""
        batch = slate.WriteBatch()
        for key in self.rng.sample(KEYS, 3):
            if self.rng.random() < 0.3:
                self.map.within(batch).delete(key)
            else:
                self.map.within(batch).put(key, self._product())
        await self.db.write(batch, await_durable=self.rng.random() < 0.7)

    async def build(self) -> None:
        """Both indexes, whatever is left to do."""

        def stops(_: slate.BuildProgress) -> None:
            if self.rng.random() < 0.1:
                raise ConflictError("stopped", reason="stopped")

        await products(self.db, *INDEXES).build(progress=stops)
        self.database.count("builds")

    async def drop(self) -> None:
        """One of them."""
        await products(self.db, *INDEXES).drop_index(self.rng.choice(("sku", "color")))
        self.database.count("drops")

    async def compare(self) -> None:
        """In one snapshot the indexes show what the rows say, if they are there."""
        found = products(self.db, *INDEXES)
        async with self.db.snapshot(durable=self.rng.random() < 0.3) as snapshot:
            view = found.within(snapshot)
            rows = dict((await view.page()).items)
            name = self.rng.choice(("sku", "color"))
            try:
                shown = [key for key, _ in (await view.by(name).page()).items]
            except InvalidError:
                self.database.count("not-built")
                return
            outlived = await self._outlived(snapshot, rows) if name == "sku" else set[int]()
        value_of = (lambda product: product.sku) if name == "sku" else (lambda product: product.color)
        wanted = sorted((value_of(product), key) for key, product in rows.items() if value_of(product) is not None)
        if [key for key in shown if key not in outlived] != [key for _, key in wanted if key not in outlived]:
            raise Violation("index", f"{self.node.name}: {name} shows {shown} of {rows}")
        self.database.count("compared")

    async def _outlived(self, snapshot: slate.Snapshot, rows: Mapping[int, Product]) -> set[int]:
        """Rows that have expired by the clock of any process: such a one gave away what they hold in a unique index."""
        latest_s = max(node.runtime.clock.now_ms() for node in self.database.world.nodes.values()) / 1000
        found = set[int]()
        for key in rows:
            row = await snapshot.get_row(LAYOUT.rows + slate.keys.pack(key))
            if row is not None and row.expire_time is not None and row.expire_time <= latest_s:
                found.add(key)
        return found


async def judge(session: Session) -> None:
    """Once built, the stored entries are those that the rows make."""
    db = session.db
    found = products(db, *INDEXES)
    for name in ("sku", "color"):  # a drop that was begun
        with contextlib.suppress(InvalidError):
            await found.put(99, Product(None, "red"))
            break
        with contextlib.suppress(InvalidError):
            await found.drop_index(name)
    while True:
        try:
            await found.build()
            break
        except slate.UniqueError as error:
            await found.delete(cast("int", error.holder))
    stored = {key: value async for key, value in db.scan(prefix=LAYOUT.prefix, durable=True)}
    rows = {
        key[len(LAYOUT.rows) :]: msgspec.json.decode(value, type=Product)
        for key, value in stored.items()
        if key.startswith(LAYOUT.rows)
    }
    names = (LAYOUT.entries(b"sku"), LAYOUT.entries(b"color"))
    entries = {key: value for key, value in stored.items() if key.startswith(names)}
    if entries != (wanted := entries_of(rows)):
        raise Violation("index", f"at the end {entries} are stored; the rows make {wanted}")


async def live_with_maps(database: SimulatedDatabase, node: Node) -> None:
    """The whole life of a writer."""
    await live_in(MapSession(database, node))
