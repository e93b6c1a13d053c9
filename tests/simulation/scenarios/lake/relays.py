"""Relays: the changes of a database go into collections, and one of these into another database, by processes that die,
sleep and take over from each other (`slate_async.bridges`).

Two collections have the same changes: a log, and the rows that are there. The log says what the rows were at each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import slate_async as slate
from slate_async.bridges.envelopes import Envelope, relay_schema
from slate_async.bridges.relay import relay
from slate_async.bridges.to_database import relay_to_database
from slate_async.collections.core.times import TimeKind
from slate_async.collections.lake import Lake
from slate_async.objectstore.prefixed import PrefixedStore
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.engine.params import small_settings
from tests.simulation.scenarios.lake.lives import EXPECTED, LivesPlay, Step
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.play import make_world
from tests.simulation.scenarios.protocol import Scenario, Stats

ENVELOPES: Sequence[Envelope] = ("log", "upsert")
UPPER_KEY = b"relay/copy"
Values = dict[bytes, bytes]


class RelaysPlay(LivesPlay):
    """One seed's run. A collection is called as its envelope.

    batches: that a writer writes before it ends; ``longest_s``: that other relays run"""

    batches: Sequence[int] = (3, 10)
    longest_s = 2.0

    async def run(self) -> Stats:
        """All of it."""
        plan, self.world.plan = self.world.plan, NO_FAULTS
        creator = self.world.node("creator")
        await creator.run(self._create_all(creator))
        self.world.plan = plan
        self.people()
        await asyncio.sleep(self.params.active_seconds)
        await self._calm()
        last = self.world.node("last")
        await last.run(self._last(last))
        return self.estate.counts

    def people(self) -> None:
        """Who uses databases and collections."""
        casts: tuple[tuple[str, Step], ...] = (
            ("owner", self.own),
            ("rival", self.own),
            ("standby", self.stand_by),
            ("copier", self.copy),
            ("controller", self._control),
        )
        for name, step in casts:
            self.start(name, functools.partial(self._forever, step))

    # ---- what they use

    @contextlib.asynccontextmanager
    async def _environment(self, node: Node) -> AsyncIterator[slate.Environment]:
        async with slate.Environment(runtime=node.runtime) as environment:
            yield environment

    def _place(self, node: Node, name: str) -> tuple[Any, dict[str, Any]]:
        """The database ``name``: where it is, and what it is opened with."""
        rng = node.rng
        settings = small_settings(
            flush_interval_ms=rng.choice((1, 10)),
            manifest_poll_interval_ms=rng.choice((50, 400)),
            l0_sst_bytes=600,
            flush_bytes=100_000,
            max_unflushed_bytes=200_000,
            skip_memtable_bytes=1_000,
        )
        store = PrefixedStore(self.world.cloud.objects(node), name)
        return store, {"name": f"memory://{name}", "metastore": self.world.cloud.metastore(node), "settings": settings}

    async def _create_all(self, node: Node) -> None:
        async with self._lake(node) as lake, self._environment(node) as environment:
            for envelope in ENVELOPES:
                async with await lake.create(envelope, data=relay_schema(envelope), appends="compare"):
                    pass
            for name in ("source", "copy"):
                store, options = self._place(node, name)
                async with environment.open(store, **options):
                    pass

    # ---- what they do

    async def own(self, lake: Lake, node: Node) -> None:
        """Be the writer of the database, and relay beside that."""
        await node.runtime.clock.sleep(node.rng.uniform(0, 0.5))
        store, options = self._place(node, "source")
        async with self._environment(node) as environment, environment.open(store, **options) as db:
            async with self._relaying(lake, db, node, "owner"):
                for _ in range(node.rng.choice(self.batches)):
                    await self._write_rows(db, node)
                    await node.runtime.clock.sleep(node.rng.choice((0, 0.05, 0.2)))

    async def _write_rows(self, db: slate.Db, node: Node) -> None:
        batch, rng = slate.WriteBatch(), node.rng
        for _ in range(rng.choice((1, 1, 3))):
            key = rng.choice((b"a", b"b", b"c"))
            if rng.random() < 0.3:
                batch.delete(key)
            else:
                batch.put(key, self.estate.mark(node.name))
        await db.write(batch)
        self.estate.count("writes")

    async def stand_by(self, lake: Lake, node: Node) -> None:
        """Relay beside a reader."""
        store, options = self._place(node, "source")
        async with self._environment(node) as environment, environment.open_reader(store, **options) as reader:
            async with self._relaying(lake, reader, node, "standby"):
                await node.runtime.clock.sleep(node.rng.uniform(0.2, self.longest_s))

    @contextlib.asynccontextmanager
    async def _relaying(
        self, lake: Lake, database: slate.Db | slate.DbReader, node: Node, name: str
    ) -> AsyncIterator[None]:
        """Both relays run within; what ends one of them is raised at the end."""
        async with contextlib.AsyncExitStack() as stack:
            running = []
            for envelope in ENVELOPES:
                made = relay(database, f"{name}-{envelope}", lake.collection(envelope), envelope=envelope)
                running.append(asyncio.ensure_future((await stack.enter_async_context(made)).run()))
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                ended = await asyncio.gather(*running, return_exceptions=True)
        for error in ended:
            if isinstance(error, EXPECTED):
                self.estate.count(f"relay: {type(error).__name__}")
            elif isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def copy(self, lake: Lake, node: Node) -> None:
        """Keep the other database."""
        store, options = self._place(node, "copy")
        async with self._environment(node) as environment, environment.open(store, **options) as db:
            async with relay_to_database(lake.collection("upsert"), db, "copy") as made:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(node.rng.uniform(0.2, self.longest_s)):
                        await made.run()

    async def _control(self, lake: Lake, node: Node) -> None:
        async with lake.collection(node.rng.choice(ENVELOPES)).controller() as controller:
            for _ in range(node.rng.choice((2, 10))):
                await controller.round()
                await controller.merge(everything=node.rng.random() < 0.3)
                await node.runtime.clock.sleep(0.02)

    # ---- the end

    async def _last(self, node: Node) -> None:
        """All is relayed; then the log, the rows, and both databases say the same."""
        store, options = self._place(node, "source")
        async with (
            self._lake(node) as lake,
            self._environment(node) as environment,
            environment.open(store, **options) as db,
        ):
            await db.put(b"last", b"last")
            await db.flush()
            until = db.status().durable_seq + 1
            for envelope in ENVELOPES:
                async with relay(db, f"owner-{envelope}", lake.collection(envelope), envelope=envelope) as made:
                    await made.run(until=until)
            there = await _values_of(db)
            log = await self._logged(lake, until)
            await self._judge_rows(lake, until, log, there)
        store, options = self._place(node, "copy")
        async with (
            self._lake(node) as lake,
            self._environment(node) as environment,
            environment.open(store, **options) as db,
            relay_to_database(lake.collection("upsert"), db, "copy") as made,
        ):
            await made.run(until=until)
            copied = await _values_of(db)
            copied.pop(UPPER_KEY, None)
            if copied != there:
                raise Violation("copy", f"the copy has {copied}, the source {there}")

    async def _logged(self, lake: Lake, until: int) -> list[tuple[int, str, bytes, bytes | None]]:
        """Time, operation, key and value of each change."""
        found: list[tuple[int, str, bytes, bytes | None]] = []
        async with lake.collection("log").reader() as reader:
            first = reader.since.elements[0][0]
            async with reader.subscribe(first) as listener:
                while listener.upper.less_equal((until - 1,)):
                    for row in (await anext(listener)).updates.to_pylist():
                        if row["_diff"] != 1:
                            raise Violation("repeated", f"the log has {row}")
                        found.append((row["_time"], row["op"], row["key"], row["value"]))
        return sorted(found)

    async def _judge_rows(
        self, lake: Lake, until: int, log: list[tuple[int, str, bytes, bytes | None]], there: Values
    ) -> None:
        """At each time that can be asked about: what the log says."""
        async with lake.collection("upsert").reader() as reader:
            first = reader.since.elements[0][0]
            begun = max(first, until - 8)
            for at in range(begun, until):
                async with await reader.snapshot(at) as snapshot:
                    rows = [row async for row in snapshot.rows()]
                values = {data[0]: data[1] for data, _ in rows}
                if len(values) != len(rows) or any(diff != 1 for _, diff in rows):
                    raise Violation("repeated", f"at {at} there is {rows}")
                expected: Values = {}
                for time, op, key, value in log:
                    if time <= at:
                        expected.pop(key, None)
                        if op == "put" and value is not None:
                            expected[key] = value
                if values != expected:
                    raise Violation("rows", f"at {at} there is {values}, and the log says {expected}")
                self.estate.count("times compared")
        if values != there:
            raise Violation("rows", f"at the end there is {values}, and the database has {there}")


async def _values_of(db: slate.Db) -> Values:
    async with db.snapshot() as snapshot:
        return {row.key: row.value async for row in snapshot.scan().rows()}


def _params(seed: int) -> LakeParams:
    fixed = {"kind": TimeKind.U64, "metastore": "server", "closed": 0.0, "active_seconds": 3.0, "lives": 3}
    return draw(derived_rng(seed, "params"), fixed)


RELAYS = Scenario(
    "collections-relays",
    "changes of a database go into collections, and from there into another database: all faults",
    lambda seed, keep_trace: make_world(seed, keep_trace, _params(seed)),
    lambda world: RelaysPlay(world, _params(world.seed)).run(),
)
