"""Range deletes while everything else goes on: two writers that fence each other, a compactor, a collector, a reader, a
feed, a subscription, checkpoints and ingests, with every fault.

Each write has a row of a *journal*, whose keys no range delete lies over. What it puts and deletes is in the ledger. So
whatever is read says by itself what it must be: what the writes of the journal that is read make, in the order of
their numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa

import slate_async as slate
from slate_async.errors import InvalidError, SlateError
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS, FaultPlan
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.engine.workload import EXPECTED
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tiny import tiny_world
from tests.simulation.world import World

NAME = "memory://ranges"
KEYS = [b"%c" % letter for letter in b"abcdefghijkl"]
JOURNAL = b"~"
ROUNDS = 40
LIVES = 3
FOREVER_MS = 100_000_000
PAUSE_S = 0.15

Found = tuple[bytes, bytes, int]
"""Key, value and number of a row."""


@dataclass(slots=True)
class Batch:
    """steps: keys that it puts, and ranges that it deletes, after its row of the journal
    seq: of the row of the journal, if it was acknowledged; refused: certainly not written; whole: an ingest, all of
    whose rows have one number"""

    id: int
    steps: Sequence[bytes | tuple[bytes, bytes]]
    whole: bool = False
    seq: int | None = None
    refused: bool = False

    @property
    def key(self) -> bytes:
        """Of its row of the journal."""
        return JOURNAL + b"%06d" % self.id


@dataclass(slots=True)
class Ledger:
    """All batches of a run, and what reads saw: who, and the journal, each batch with its number.

    feeds: who, the number that it came to, up to where it began with what compaction had left (0: nowhere), its rows"""

    batches: dict[int, Batch] = field(default_factory=dict)
    views: list[tuple[str, list[tuple[int, int]]]] = field(default_factory=list)
    feeds: list[tuple[str, int, int, dict[bytes, bytes]]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, number: int = 1) -> None:
        """So many more of ``name``."""
        self.counts[name] = self.counts.get(name, 0) + number

    def new(self, steps: Sequence[bytes | tuple[bytes, bytes]], *, whole: bool = False) -> Batch:
        """The next one."""
        batch = Batch(len(self.batches) + 1, steps, whole)
        self.batches[batch.id] = batch
        return batch

    def made(self, journal: Sequence[tuple[int, int]], up_to: int | None = None) -> dict[bytes, bytes]:
        """What these batches, each with the number of its first row, make of the keys, with rows up to a number."""
        rows: dict[bytes, bytes] = {}
        for seq, number in journal:
            batch = self.batches[number]
            for place, step in enumerate(batch.steps, 1):
                if up_to is not None and seq + (0 if batch.whole else place) > up_to:
                    break
                if isinstance(step, bytes):
                    rows[step] = b"%d" % number
                    continue
                for key in [key for key in rows if step[0] <= key < step[1]]:
                    del rows[key]
        return rows

    def seen(self, who: str, found: Sequence[Found]) -> list[tuple[int, int]]:
        """Note what a read found, and return its journal. Raises `Violation` unless that makes the rest."""
        journal = sorted((seq, int(value)) for key, value, seq in found if key.startswith(JOURNAL))
        rows = {key: value for key, value, _ in found if not key.startswith(JOURNAL)}
        made = self.made(journal)
        if rows != made:
            raise Violation("value", f"{who} saw {rows}, its journal makes {made}")
        self.views.append((who, journal))
        return journal

    def check(self, final: Sequence[tuple[int, int]]) -> None:
        """Raises `Violation` unless all that was seen is a beginning of ``final``, and that has all it is to have."""
        for who, journal in self.views:
            if list(final[: len(journal)]) != journal:
                raise Violation("order", f"{who} saw {journal}, in the end it is {final}")
        there = {number: seq for seq, number in final}
        for batch in self.batches.values():
            if batch.refused and batch.id in there:
                raise Violation("refused", f"{batch} is there")
            if batch.seq is not None and there.get(batch.id) != batch.seq:
                raise Violation("lost", f"{batch} has the number {there.get(batch.id)}")
        for who, up_to, snapshot_seq, rows in self.feeds:
            seen = max(up_to, snapshot_seq)
            made = self.made(final, seen)
            if up_to < snapshot_seq:  # it ended amid what compaction had left
                made = {key: value for key, value in made.items() if self.number(there, key, value, seen) <= up_to}
            if rows != made:
                raise Violation("feed", f"{who} has made {rows} up to {up_to}, that is {made}")

    def number(self, there: Mapping[int, int], key: bytes, value: bytes, seen: int) -> int:
        """Of the newest row up to ``seen`` with that key and value. ``there``: of the first row of each batch."""
        batch = self.batches[int(value)]
        first = there[batch.id]
        if batch.whole:
            return first
        return max(first + at for at, step in enumerate(batch.steps, 1) if step == key and first + at <= seen)


class RangePlay:
    """One seed's run.

    kept: checkpoints that are to stay, each with what was read of it first
    copies: what the changes of the subscription made, by number, wherever it may go on; snapshot_seq: up to where it
    began with what compaction had left"""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger()
        self.over = False
        self.kept: dict[UUID, list[Found] | None] = {}
        self.copies: dict[int, dict[bytes, bytes]] = {0: {}}
        self.snapshot_seq = 0
        rng = world.rng
        self.settings: dict[str, Any] = {
            "retention_ms": rng.choice((0, 400, FOREVER_MS)),
            "compaction_style": rng.choice(("size_tiered", "leveled")),
            "min_merge_width": 2,
            "level_base_bytes": 2_000,
            "level_size_multiplier": 2,
            "l0_compact_ssts": rng.choice((1, 2)),
            "sst_bytes": rng.choice((400, 400, 100_000)),
            "block_bytes": 64,
            "manifest_poll_interval_ms": 60,
            "gc_min_age_ms": 0,
            "retry_deadline_ms": 2_000,
        }

    def _opened(self, node: Node, call: str = "open", **more: Any) -> Any:
        settings = slate.Settings(**{**self.settings, **more.pop("settings", {})})
        opening = getattr(on(node.runtime), call)
        store, factory = self.world.cloud.objects(node), self.world.cloud.put_if_absent(node)
        return opening(store, name=NAME, metastore=factory, settings=settings, **more)

    async def run(self) -> Stats:
        """All of it."""
        world = self.world
        plan, world.plan = world.plan, NO_FAULTS
        creator = world.node("creator")
        await creator.run(self._create(creator))
        world.plan = plan
        roles = [("writer0", self.write), ("writer1", self.write), ("compactor", self.compact), ("reader", self.read)]
        roles += [("consumer", self.consume), ("ingester", self.ingest), ("collector", self.collect)]
        roles += [("keeper", self.keep), ("subscriber", self.subscribe)]
        tasks = [world.loop.create_task(self._live(name, role), name=name) for name, role in roles]
        for task in tasks[:2]:
            await task
        self.over = True
        for task in tasks[2:]:
            await task
        world.plan = NO_FAULTS
        await world.network.quiet()
        observer = world.node("observer")
        self.ledger.check(await observer.run(self._finish(observer)))
        return {"batches": len(self.ledger.batches), "views": len(self.ledger.views), **self.ledger.counts}

    async def _create(self, node: Node) -> None:
        async with self._opened(node):
            pass

    async def _live(self, name: str, role: Any) -> None:
        """A process, and the next one when it ends, crashes or is fenced."""
        for life in itertools.count():
            if (life >= LIVES if name.startswith("writer") else self.over) or life > 20:
                return
            node = self.world.node(name)
            if self.world.rng.random() < 0.3:
                node.crash_after(self.world.rng.randrange(50, 2_000))
            try:
                await node.run(role(node), name)
            except NodeCrashedError:
                self.ledger.count("crashes")
            except EXPECTED:
                self.ledger.count("ended")

    async def _pause(self, node: Node) -> None:
        await node.runtime.clock.sleep(node.rng.uniform(0, PAUSE_S))

    # ---- writers

    async def write(self, node: Node) -> None:
        """Put, delete ranges, and look at what that makes."""
        rng = node.rng
        async with self._opened(node, settings={"auto_compaction": rng.random() < 0.7}) as db:
            for _ in range(rng.randrange(5, ROUNDS)):
                match rng.choices(("write", "flush", "compact", "look"), (6, 2, 1, 1))[0]:
                    case "write":
                        await self._write(node, db)
                    case "flush":
                        await db.flush(l0=True)
                    case "compact":
                        await db.compact(full=rng.random() < 0.3)
                    case _:
                        await self._look(node, db)
                await self._pause(node)

    async def _write(self, node: Node, db: slate.Db) -> None:
        rng = node.rng
        steps: list[bytes | tuple[bytes, bytes]] = []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.3:
                start, last = sorted(rng.choices(KEYS, k=2))
                steps.append((start, last + b"\0") if rng.random() < 0.7 else (b"\0", JOURNAL))
            else:
                steps.append(rng.choice(KEYS))
        batch = self.ledger.new(steps)
        rows = slate.WriteBatch()
        rows.put(batch.key, b"%d" % batch.id)
        for step in steps:
            if isinstance(step, bytes):
                rows.put(step, b"%d" % batch.id)
            else:
                rows.delete_range(*step)
                self.ledger.count("ranges")
        try:
            handle = await db.write(rows)
        except SlateError as error:
            batch.refused = error.outcome == "not_applied"
            raise
        batch.seq = handle.seq - len(steps)
        self.ledger.count("acknowledged")
        if rng.random() < 0.5:
            for _ in range(rng.randint(1, 3)):
                await self._pause(node)
            await self._as_of(db, batch, handle.seq)

    async def _as_of(self, db: slate.Db, batch: Batch, seq: int) -> None:
        """At its last number it is the last one of the journal."""
        try:
            async with db.as_of(seq=seq) as snapshot:
                found = await rows_of(snapshot, False)
        except InvalidError as error:
            if self.settings["retention_ms"] == FOREVER_MS:
                raise Violation("as-of", f"{batch} may be looked back to: {error}") from error
            self.ledger.count("no-history")
            return
        journal = self.ledger.seen("as-of", found)
        if journal[-1:] != [(batch.seq, batch.id)]:
            raise Violation("as-of", f"at {batch} the journal is {journal}")
        self.ledger.count("moments")

    async def _look(self, node: Node, db: slate.Readable) -> None:
        async with db.snapshot() as snapshot:
            found = await rows_of(snapshot, node.rng.random() < 0.5)
            self.ledger.seen(node.name, found)
            await self._pause(node)
            rows: Mapping[bytes, bytes] = {key: value for key, value, _ in found}
            again = dict(zip(KEYS, await snapshot.get_many(KEYS), strict=True))
            for key in KEYS:
                if rows.get(key) != again[key] or rows.get(key) != await snapshot.get(key):
                    raise Violation("snapshot", f"{key!r} was {rows.get(key)!r}, then {again[key]!r}")
        self.ledger.count("looks")

    # ---- others

    async def compact(self, node: Node) -> None:
        """Compact until another process takes over."""
        async with self._opened(node, "open_compactor") as compactor:
            while not self.over:
                await self._pause(node)
                if node.rng.random() < 0.3:
                    await compactor.compact(full=node.rng.random() < 0.3)

    async def read(self, node: Node) -> None:
        """Follow."""
        async with self._opened(node, "open_reader") as reader:
            while not self.over:
                await self._pause(node)
                await self._look(node, reader)

    async def ingest(self, node: Node) -> None:
        """Load some rows beside the writers, each time under a name of its own."""
        while not self.over:
            for _ in range(5):
                await self._pause(node)
            keys = sorted(node.rng.sample(KEYS, node.rng.randint(1, 6)))
            batch = self.ledger.new(keys, whole=True)
            async with self._opened(node, "open_ingest", job_id=f"load-{batch.id}") as job:
                table = pa.table({"key": [*keys, batch.key], "value": [b"%d" % batch.id] * (len(keys) + 1)})
                await job.write([table])
                await job.commit(wait=False)
            self.ledger.count("ingests")

    async def consume(self, node: Node) -> None:
        """Make the rows of a feed from its beginning."""
        async with self._opened(node, "open_reader") as reader:
            while not self.over:
                await self._pause(node)
                await self._follow(reader, node.name)

    async def collect(self, node: Node) -> None:
        """Collect garbage."""
        async with self._opened(node, "open_gc", periodic=False, settings={"retry_deadline_ms": 30_000}) as collector:
            while not self.over:
                await self._pause(node)
                self.ledger.count("collected", len((await collector.collect()).objects))

    async def keep(self, node: Node) -> None:
        """Make checkpoints that stay, look at them again and again, and delete some."""
        rng = node.rng
        async with self._opened(node, "open_admin") as admin:
            while not self.over:
                await self._pause(node)
                kept = rng.choice(list(self.kept)) if self.kept else None
                if kept is None or rng.random() < 0.3:
                    self.kept[(await admin.checkpoints.create()).id] = None
                elif rng.random() < 0.2:
                    del self.kept[kept]
                    await admin.checkpoints.delete(kept)
                else:
                    await self._look_at(node, kept)

    async def _look_at(self, node: Node, kept: UUID) -> None:
        """At a checkpoint, which shows what it showed."""
        try:
            async with self._opened(node, "open_reader", checkpoint=kept) as reader:
                found = await rows_of(reader, node.rng.random() < 0.5)
        except InvalidError as error:
            raise Violation("checkpoint", f"{kept} cannot be read: {error}") from error
        self.ledger.seen(node.name, found)
        found.sort()
        before = self.kept[kept]
        if before is not None and before != found:
            raise Violation("checkpoint", f"{kept} held {before}, and holds {found}")
        self.kept[kept] = found
        self.ledger.count("checkpoints")

    async def subscribe(self, node: Node) -> None:
        """Follow by a subscription, from where it was left."""
        async with self._opened(node, "open_reader") as reader:
            while not self.over:
                await self._pause(node)
                await self._go_on(reader, node)

    async def _go_on(self, source: slate.Reader | slate.Db, node: Node, *, to_the_end: bool = False) -> None:
        async with source.changes(subscription="copy", follow=False) as feed:
            begun = feed.seq
            if begun not in self.copies:
                raise Violation("subscription", f"it goes on behind {begun}, and was left at {sorted(self.copies)}")
            rows = dict(self.copies[begun])
            left = None if to_the_end else node.rng.choice((None, 5, 30))
            async for change in feed:
                apply_change(rows, change)
                left = None if left is None else left - 1
                if left == 0:
                    break
            self.snapshot_seq = max(self.snapshot_seq, feed.snapshot_seq if not begun else 0)
            if feed.snapshot_seq > self.snapshot_seq:
                raise Violation("subscription", f"changes behind {begun} are gone up to {feed.snapshot_seq}")
            if left != 0 and feed.seq:
                self.ledger.feeds.append((node.name, feed.seq, feed.snapshot_seq, dict(rows)))
            self.copies[feed.seq] = rows
            await feed.acknowledge(feed.seq, now=node.rng.random() < 0.5)
        self.ledger.count("subscribed")

    async def _follow(self, source: slate.Reader | slate.Db, who: str) -> None:
        rows: dict[bytes, bytes] = {}
        async with source.changes(from_seq=0, follow=False) as feed:
            async for change in feed:
                apply_change(rows, change)
            if feed.seq:
                self.ledger.feeds.append((who, feed.seq, feed.snapshot_seq, rows))
        self.ledger.count("feeds")

    async def _finish(self, node: Node) -> list[tuple[int, int]]:
        async with self._opened(node) as db:
            while db.status().pending_ingests:
                await db.confirm()
            final = self.ledger.seen("final", await rows_of(db, False))
            await db.flush(l0=True)
            await db.compact(full=True)
            if self.ledger.seen("compacted", await rows_of(db, True)) != final:
                raise Violation("value", f"the journal was {final} before a compaction")
            await self._follow(db, "final")
            await self._go_on(db, node, to_the_end=True)
        for kept in list(self.kept):
            await self._look_at(node, kept)
        return final


def apply_change(rows: dict[bytes, bytes], change: slate.Change) -> None:
    """To the rows that the changes before it have made."""
    if change.op == "delete_range":
        assert change.value is not None
        for key in [key for key in rows if change.key <= key < change.value]:
            del rows[key]
    elif not change.key.startswith(JOURNAL):
        assert change.value is not None
        rows[change.key] = change.value


async def rows_of(source: slate.Readable, reverse: bool) -> list[Found]:
    """All rows."""
    return [(row.key, row.value, row.seq) async for row in source.scan(reverse=reverse).rows()]


def scenario(name: str, summary: str, plan: FaultPlan | None) -> Scenario:
    """With these faults; ``None``: the usual ones."""
    return Scenario(
        name, summary, lambda seed, keep: tiny_world(seed, keep, plan), lambda world: RangePlay(world).run()
    )


RANGES: Sequence[Scenario] = (
    scenario(
        "ranges",
        "range deletes beside compactors, collectors, readers, feeds, checkpoints and ingests; all faults",
        None,
    ),
    scenario("ranges-calm", "the same without faults", NO_FAULTS),
    scenario("ranges-few", "the same with few faults, so that collectors come to an end", FaultPlan().scaled(0.2)),
)
