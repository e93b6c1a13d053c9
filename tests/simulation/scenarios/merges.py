"""Operands while everything else goes on: two writers that fence each other, a compactor, a reader, with every fault.

The operator appends. An operand is its own number, so a value is the list of all operands of its key in their order. No
key is put, so at every read point the list is a beginning of the last one, and at the number of an operand it ends
with that. Operands that expire are in a list until they do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import slate_async as slate
from slate_async.errors import InvalidError, SlateError
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.scenarios.cast import Cast, scenario, small_settings
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

KEYS = [b"a", b"b", b"c"]
LIFE_S = (0.3, 1.0)
MARGIN_MS = 50


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


class MergePlay(Cast):
    """One seed's run."""

    name = "memory://merges"

    def __init__(self, world: World) -> None:
        settings = small_settings(world.rng, (0, 400, 100_000), (400, 100_000))
        super().__init__(world, {"merge_operator": "append", **settings})
        self.ledger = Ledger()
        self.recent: dict[slate.Db, list[Operand]] = {}

    def stats(self) -> Stats:
        """How many operands there were, and views of them."""
        return {"operands": len(self.ledger.operands), "views": len(self.ledger.views)}

    async def write_once(self, node: Node, db: slate.Db) -> None:
        """Merge an operand, and maybe look back at it."""
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
        self.count("acknowledged")
        if ttl is None:
            recent = self.recent.setdefault(db, [])
            recent.append(operand)
            if node.rng.random() < 0.7:
                await self.pause(node)
                await self._as_of(db, node.rng.choice(recent[-4:]))

    async def _as_of(self, db: slate.Db, operand: Operand) -> None:
        """At its number the list of its key ends with it."""
        assert operand.seq is not None
        try:
            async with db.as_of(seq=operand.seq) as snapshot:
                value = await snapshot.get(operand.key)
        except InvalidError:
            self.count("no-history")
            return
        ids = self.ledger.lasting(decoded(value))
        if ids[-1:] != [operand.id]:
            raise Violation("as-of", f"at {operand} {operand.key!r} is {ids}")
        self.ledger.views.append(("as-of", ids, operand.key))
        self.count("moments")

    async def look(self, node: Node, db: slate.Readable) -> None:
        """In a snapshot all stays as it was."""
        began_ms = node.runtime.clock.now_ms()
        async with db.snapshot() as snapshot:
            found = dict([pair async for pair in snapshot.scan(reverse=node.rng.random() < 0.5)])
            lists = self.ledger.seen(node.name, found, began_ms)
            await self.pause(node)
            for key in KEYS:
                again = self.ledger.lasting(decoded(await snapshot.get(key)))
                if again != self.ledger.lasting(lists[key]):
                    raise Violation("snapshot", f"{key!r} was {lists[key]}, then {again}")
        self.count("looks")

    async def finish(self, node: Node) -> None:
        """A compaction changes nothing, and a feed makes the same."""
        async with self.opened(node) as db:
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
            self.ledger.check(final)


MERGES: Sequence[Scenario] = (
    scenario("merges", "operands of writers, beside compactors and readers; all faults", MergePlay, None),
    scenario("merges-calm", "the same without faults", MergePlay, NO_FAULTS),
)
