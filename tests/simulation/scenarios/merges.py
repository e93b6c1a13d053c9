"""Operands while everything else goes on: two writers that fence each other, a compactor, a reader, with every fault.

The operator appends. An operand is its own number, so a value is the list of all operands of its key in their order. No
key is put, so at every read point the list is a beginning of the last one, and at the number of an operand it ends
with that. Operands that expire are in a list until they do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

NAME = "memory://merges"
KEYS = [b"a", b"b", b"c"]
ROUNDS = 40
LIVES = 3
LIFE_S = (0.3, 1.0)
MARGIN_MS = 50
PAUSE_S = 0.15


@dataclass(slots=True)
class Operand:
    """seq: of an acknowledged one; refused: certainly not written
    expire_ms: before that it counts, from a margin later on it does not"""

    id: int
    key: bytes
    expire_ms: float = math.inf
    seq: int | None = None
    refused: bool = False


@dataclass(slots=True)
class Ledger:
    """All operands of a run, and what reads saw: who, the list, and the key."""

    operands: dict[int, Operand] = field(default_factory=dict)
    views: list[tuple[str, list[int], bytes]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> None:
        """One more of ``name``."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def new(self, key: bytes) -> Operand:
        """The next one."""
        operand = Operand(len(self.operands) + 1, key)
        self.operands[operand.id] = operand
        return operand

    def lasting(self, ids: Sequence[int]) -> list[int]:
        """Those that do not expire."""
        return [number for number in ids if self.operands[number].expire_ms == math.inf]

    def seen(self, who: str, found: Mapping[bytes, bytes], began_ms: int) -> dict[bytes, list[int]]:
        """Note the lists that a read found which began then. Raises `Violation`."""
        lists = {key: decoded(found.get(key)) for key in KEYS}
        for key, ids in lists.items():
            if len(set(ids)) < len(ids):
                raise Violation("twice", f"{who}: {key!r} is {ids}")
            late = [number for number in ids if self.operands[number].expire_ms + MARGIN_MS < began_ms]
            if late:
                raise Violation("outlived", f"{who}: {key!r} is {ids}, but {late} have expired")
            self.views.append((who, self.lasting(ids), key))
        return lists

    def check(self, final: Mapping[bytes, list[int]]) -> None:
        """Raises `Violation` unless all that was seen is a beginning of ``final``, and that has all it is to have."""
        order = {key: self.lasting(ids) for key, ids in final.items()}
        for who, ids, key in self.views:
            if order[key][: len(ids)] != ids:
                raise Violation("order", f"{who} saw {key!r} as {ids}, in the end it is {order[key]}")
        for operand in self.operands.values():
            there = operand.id in final[operand.key]
            if operand.refused and there:
                raise Violation("refused", f"{operand} is there")
            if operand.seq is not None and operand.expire_ms == math.inf and not there:
                raise Violation("lost", f"{operand} is not in {final[operand.key]}")
        for ids in order.values():
            known = [seq for number in ids if (seq := self.operands[number].seq) is not None]
            if known != sorted(known):
                raise Violation("order", f"{ids} have the numbers {known}")


def decoded(value: bytes | None) -> list[int]:
    """The list that ``value`` is."""
    return [int(number) for number in (value or b"").split(b",") if number]


class MergePlay:
    """One seed's run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger()
        self.over = False
        rng = world.rng
        self.settings: dict[str, Any] = {
            "merge_operator": "append",
            "retention_ms": rng.choice((0, 400, 100_000)),
            "compaction_style": rng.choice(("size_tiered", "leveled")),
            "min_merge_width": 2,
            "level_base_bytes": 2_000,
            "level_size_multiplier": 2,
            "l0_compact_ssts": rng.choice((1, 2)),
            "sst_bytes": rng.choice((400, 100_000)),
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
        tasks = [world.loop.create_task(self._live(name, role), name=name) for name, role in roles]
        for task in tasks[:2]:
            await task
        self.over = True
        for task in tasks[2:]:
            await task
        world.plan = NO_FAULTS
        await world.network.quiet()
        observer = world.node("observer")
        final = await observer.run(self._finish(observer))
        self.ledger.check(final)
        return {"operands": len(self.ledger.operands), "views": len(self.ledger.views), **self.ledger.counts}

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
        """Merge, and look at what that makes."""
        rng = node.rng
        async with self._opened(node, settings={"auto_compaction": rng.random() < 0.7}) as db:
            for _ in range(rng.randrange(5, ROUNDS)):
                match rng.choices(("merge", "flush", "compact", "look"), (6, 2, 1, 1))[0]:
                    case "merge":
                        await self._merge(node, db)
                    case "flush":
                        await db.flush(l0=True)
                    case "compact":
                        await db.compact(full=rng.random() < 0.3)
                    case _:
                        await self._look(node, db)
                await self._pause(node)

    async def _merge(self, node: Node, db: slate.Db) -> None:
        operand = self.ledger.new(node.rng.choice(KEYS))
        ttl = node.rng.choice((None, None, *LIFE_S))
        operand.expire_ms = math.inf if ttl is None else node.runtime.clock.now_ms() + 1000 * ttl + 60_000
        try:
            handle = await db.merge(operand.key, b"%d," % operand.id, ttl=ttl)
        except SlateError as error:
            operand.refused = error.outcome == "not_applied"
            raise
        operand.seq = handle.seq
        if ttl is not None:
            operand.expire_ms = 1000 * (handle.create_time + ttl)
        self.ledger.count("acknowledged")
        if ttl is None and node.rng.random() < 0.7:
            await self._pause(node)
            await self._as_of(db, operand)

    async def _as_of(self, db: slate.Db, operand: Operand) -> None:
        """At its number the list of its key ends with it."""
        assert operand.seq is not None
        try:
            async with db.as_of(seq=operand.seq) as snapshot:
                value = await snapshot.get(operand.key)
        except InvalidError:
            self.ledger.count("no-history")
            return
        ids = self.ledger.lasting(decoded(value))
        if ids[-1:] != [operand.id]:
            raise Violation("as-of", f"at {operand} {operand.key!r} is {ids}")
        self.ledger.views.append(("as-of", ids, operand.key))
        self.ledger.count("moments")

    async def _look(self, node: Node, db: slate.Readable) -> None:
        began_ms = node.runtime.clock.now_ms()
        async with db.snapshot() as snapshot:
            found = dict([pair async for pair in snapshot.scan(reverse=node.rng.random() < 0.5)])
            lists = self.ledger.seen(node.name, found, began_ms)
            await self._pause(node)
            for key in KEYS:
                again = self.ledger.lasting(decoded(await snapshot.get(key)))
                if again != self.ledger.lasting(lists[key]):
                    raise Violation("snapshot", f"{key!r} was {lists[key]}, then {again}")
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

    async def _finish(self, node: Node) -> dict[bytes, list[int]]:
        async with self._opened(node) as db:
            began_ms = node.runtime.clock.now_ms()
            final = self.ledger.seen("final", dict([pair async for pair in db.scan()]), began_ms)
            await db.compact(full=True)
            for key in KEYS:
                again = decoded(await db.get(key))
                if self.ledger.lasting(again) != self.ledger.lasting(final[key]):
                    raise Violation("value", f"{key!r} was {final[key]}, compacted {again}")
            told: dict[bytes, list[int]] = {key: [] for key in KEYS}
            async for change in db.changes(from_seq=0, follow=False):
                ids = decoded(change.value)
                told[change.key] = [*told[change.key], *ids] if change.op == "merge" else ids
            for key in KEYS:
                if self.ledger.lasting(told[key]) != self.ledger.lasting(final[key]):
                    raise Violation("feed", f"{key!r} is {final[key]}, a feed makes {told[key]}")
            return final


def scenario(name: str, summary: str, plan: FaultPlan | None) -> Scenario:
    """With these faults; ``None``: the usual ones."""
    return Scenario(
        name, summary, lambda seed, keep: tiny_world(seed, keep, plan), lambda world: MergePlay(world).run()
    )


MERGES: Sequence[Scenario] = (
    scenario("merges", "operands of writers, beside compactors and readers; all faults", None),
    scenario("merges-calm", "the same without faults", NO_FAULTS),
)
