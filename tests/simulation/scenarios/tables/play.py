"""Several processes append to one table, delete from it and scan it, with every fault.

``tables``: all faults; processes crash, freeze and start again; some appends have an ``append_id``, and are repeated
until they are acknowledged, or by another process; some wait together. Upserts of few keys go to a table of their own.
``tables-marks``: so few marks are kept that those of slow writers are forgotten, and every delete is a file.
``tables-calm``: no faults. Some commits give up old versions, raise the floor, or keep versions.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any
from unittest import mock

import pyarrow as pa

from slate_async.errors import ClosedError, ConflictError, CorruptionError, NotFoundError, SlateError, UnavailableError
from slate_async.settings import Settings
from slate_async.tables import draft
from slate_async.tables.core import marks
from slate_async.tables.core.edits import Expire, Keep
from slate_async.tables.core.head import Kept
from slate_async.tables.core.predicate import col
from slate_async.tables.open import open_catalog
from slate_async.tables.store import committer
from slate_async.tables.table import Table
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tables.ledger import Append, Ledger
from tests.simulation.scenarios.tiny import tiny_world
from tests.simulation.world import World

SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False)])
KEYED = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])
SHOP = "shop"
EXPECTED = (ClosedError, UnavailableError, ConflictError)
"""What a table may raise in a world like this."""
PROCESSES = 3
LIVES = 3
ROUNDS = 14
PAUSE_S = 0.1
KINDS = ("append", "load", "delete", "look", "keep", "upsert", "together")
WEIGHTS = (4, 3, 2, 3, 2, 4, 2)
KEYS = 2
FEW_MARKS = 1
"""Beside those of applications, which are kept."""


class TablesPlay:
    """One seed's run. ``lives``: of each process."""

    lives = LIVES

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger()
        self.settings = Settings(retry_deadline_ms=3_000, request_timeout_ms=1_000)
        self.metastore = world.rng.choice(("put_if_absent", "if_match"))
        self.keyed: dict[str, Callable[[], Awaitable[Table]]] = {}
        self.named: list[tuple[Append, str | tuple[str, int]]] = []
        self.loads: dict[str, int] = {}  # the last number of each application

    def opened(self, node: Node) -> Any:
        """The catalog, as a process has it."""
        factory = getattr(self.world.cloud, self.metastore)(node)
        store = self.world.cloud.objects(node)
        return open_catalog(
            store, name="memory://lake", metastore=factory, settings=self.settings, runtime=node.runtime
        )

    async def run(self) -> Stats:
        """All of it."""
        world = self.world
        plan, world.plan = world.plan, NO_FAULTS
        creator = world.node("creator")
        await creator.run(self._create(creator))
        world.plan = plan
        tasks = [world.loop.create_task(self._live(name), name=name) for name in self.names()]
        for task in tasks:
            await task
        world.plan = NO_FAULTS
        await world.network.quiet()
        observer = world.node("observer")
        await observer.run(self._finish(observer))
        return {"appends": len(self.ledger.appends), **self.ledger.counts}

    def names(self) -> list[str]:
        """Of the processes."""
        return [f"process{number}" for number in range(PROCESSES)]

    async def _create(self, node: Node) -> None:
        async with self.opened(node) as catalog:
            await catalog.create_database(SHOP)
            await catalog.create_table(SHOP, "rows", SCHEMA)
            await catalog.create_table(SHOP, "keyed", KEYED, key=["key"])

    async def _live(self, name: str) -> None:
        """A process, and the next one when it ends or crashes."""
        for _ in range(self.lives):
            node = self.world.node(name)
            if self.world.plan is not NO_FAULTS:
                if self.world.rng.random() < 0.3:
                    node.crash_after(self.world.rng.randrange(50, 1_000))
                if self.world.rng.random() < 0.3:
                    node.freeze_after(self.world.rng.randrange(50, 1_000), self.world.rng.uniform(0.5, 20.0))
            try:
                await node.run(self._work(node, name), name)
            except NodeCrashedError:
                self.ledger.count("crashes")
            except EXPECTED:
                self.ledger.count("ended")

    async def _work(self, node: Node, name: str) -> None:
        rng = node.rng
        async with self.opened(node) as catalog:
            table = await catalog.table(SHOP, "rows")
            self.keyed[node.name] = lambda: catalog.table(SHOP, "keyed")
            for _ in range(rng.randrange(3, ROUNDS)):
                kind = rng.choices(KINDS, WEIGHTS)[0]
                try:
                    await getattr(self, f"_{kind}")(node, table, name)
                except EXPECTED:
                    self.ledger.count(f"failed {kind}")
                await node.runtime.clock.sleep(rng.uniform(0, PAUSE_S))

    async def _together(self, node: Node, table: Table, name: str) -> None:
        """Appends that wait at the same time, some of them loads."""
        kinds = [self._append, node.rng.choice((self._append, self._repeat)), self._load][: node.rng.randint(2, 3)]
        ended = await asyncio.gather(*(kind(node, table, name) for kind in kinds), return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure
        self.ledger.count("together")

    async def _repeat(self, node: Node, table: Table, name: str) -> None:
        """What another process has in is sent once more."""
        if not self.named:
            return
        append, named = node.rng.choice(self.named)
        result = await table.append(rows_of(append), append_id=named)
        if not result.duplicate or (result.version is not None and result.rows != len(append.rows)):
            raise Violation("twice", f"{node.name} repeated {named!r} and got {result}")
        self.ledger.count("repeated")

    async def _upsert(self, node: Node, table: Table, name: str) -> None:
        """A row with one of few keys; now and then the upsert before is looked for."""
        keyed = await self.keyed[node.name]()
        upsert = self.ledger.new_upsert(node.rng.randrange(KEYS))
        try:
            await keyed.upsert(pa.table({"row": [upsert.row], "key": [upsert.key]}, KEYED))
        except SlateError as error:
            upsert.refused = error.outcome == "not_applied"
            raise
        upsert.acknowledged = True
        self.ledger.count("upserted")
        if node.rng.random() < 0.5:
            before = set(self.ledger.upserted())
            self.ledger.keys_seen(node.name, await pairs_in(keyed), before)

    async def _append(self, node: Node, table: Table, name: str) -> None:
        append = self.ledger.new(node.rng.randint(1, 3))
        try:
            await table.append(rows_of(append))
        except SlateError as error:
            append.refused = error.outcome == "not_applied"
            raise
        append.acknowledged = True
        self.ledger.count("acknowledged")

    async def _load(self, node: Node, table: Table, name: str) -> None:
        """An append with a name of its own, repeated until it is known to be in."""
        number = self.loads[name] = self.loads.get(name, 0) + 1
        named = (name, number) if node.rng.random() < 0.5 else f"{name} {number}"
        append = self.ledger.new(node.rng.randint(1, 3))
        for _ in itertools.count():
            try:
                result = await table.append(rows_of(append), append_id=named)
            except UnavailableError:
                self.ledger.count("repeated")
                await node.runtime.clock.sleep(node.rng.uniform(0, PAUSE_S))
                continue
            append.acknowledged = True
            self.named.append((append, named))
            self.ledger.count("duplicates" if result.duplicate else "acknowledged")
            return

    async def _delete(self, node: Node, table: Table, name: str) -> None:
        known = [row for append in self.ledger.appends for row in append.rows]
        if not known:
            return
        row = node.rng.choice(known)
        before = {row for append in self.ledger.acknowledged() for row in append.rows}
        self.ledger.deleting.add(row)
        await table.delete(col("row") == row)
        if row in before:
            self.ledger.deleted.add(row)
            self.ledger.count("deleted")

    async def _look(self, node: Node, table: Table, name: str) -> None:
        before, deleted = self.ledger.acknowledged(), set(self.ledger.deleted)
        found: list[int] = []
        async with aclosing(aiter(table.scan())) as batches:  # type: ignore[type-var]
            async for batch in batches:
                found.extend(batch.column("row").to_pylist())
                await node.runtime.clock.sleep(node.rng.uniform(0, PAUSE_S))
        self.ledger.seen(node.name, found, before, deleted)
        self.ledger.count("looks")

    async def _keep(self, node: Node, table: Table, name: str) -> None:
        """Commits that change no rows."""
        context, rng = table._context, node.rng
        head = await context.newest()
        now_ms = node.runtime.clock.now_ms()
        if rng.random() < 0.5:
            await context.committer.commit(Expire(head.version - 2, head.version - rng.randrange(3), now_ms))
            self.ledger.count("expired")
        else:
            kept = Kept(head.version, head.token, now_ms + 1_000)
            try:
                await context.committer.commit(Keep(name, kept))
            except NotFoundError:  # it was given up meanwhile
                self.ledger.count("not kept")
            else:
                self.ledger.count("kept")

    async def _finish(self, node: Node) -> None:
        async with self.opened(node) as catalog:
            table = await catalog.table(SHOP, "rows")
            keyed = await pairs_in(await catalog.table(SHOP, "keyed"))
            self.ledger.keys_seen("final", keyed, set(self.ledger.upserted()))
            found = (await table.scan().read()).column("row").to_pylist()
            self.ledger.seen("final", found, self.ledger.acknowledged(), self.ledger.deleted, final=True)
            head = await table._context.newest()
            contents = await table._context.contents(head)
            self.ledger.counts["versions"] = head.version
            if (head.totals.blocks, head.totals.rows) != (contents.blocks.num_rows, contents.rows):
                raise CorruptionError(f"{head.totals} of {contents.blocks.num_rows} blocks", object_name="head")


async def pairs_in(table: Table) -> list[tuple[int, int]]:
    """Rows and keys."""
    found = await table.scan().read()
    return list(zip(found.column("row").to_pylist(), found.column("key").to_pylist(), strict=True))


def rows_of(append: Append) -> pa.Table:
    """As Arrow has them."""
    return pa.table({"row": list(append.rows)}, SCHEMA)


async def with_few_marks(world: World) -> Stats:
    """A run in which marks are forgotten early, and every delete is a file."""
    with (
        mock.patch.object(marks, "MAX_MARKS", PROCESSES + FEW_MARKS),
        mock.patch.object(draft, "INLINE_DELETED", 0),
    ):
        return await TablesPlay(world).run()


async def with_whole_links(world: World) -> Stats:
    """A run in which whole links are put early."""
    with mock.patch.object(committer, "COVER_LINKS", 4):
        return await TablesPlay(world).run()


TABLES: Sequence[Scenario] = (
    Scenario("tables", "appends, deletes and scans of a table; all faults", tiny_world, with_whole_links),
    Scenario("tables-marks", "the same, where few marks are kept", tiny_world, with_few_marks),
    Scenario(
        "tables-calm",
        "the same without faults",
        lambda seed, keep: tiny_world(seed, keep, NO_FAULTS),
        with_whole_links,
    ),
)
