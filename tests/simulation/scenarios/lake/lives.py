"""Lives: a collection that is created, deleted and created again under those who use it, through a `Lake` (C28).

Whoever opens something belongs to the life that was there then. What it reads is of that life, whole, or an error; what
it appends is in that life or nowhere. Deleters and writers sleep, and go on in the folder of a life that is over.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from slate_async.collections.core.errors import LeaseLostError, UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.collections.reader.handle import ReadHandle
from slate_async.collections.writer.writer import Writer
from slate_async.errors import ClosedError, ConflictError, FencedError, NotFoundError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.estate import NAME
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.play import LakePlay, make_world
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

EXPECTED = (
    ClosedError,
    ConflictError,
    FencedError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
    UpperMismatchError,
)
"""What anybody may be told whose collection others delete."""
Step = Callable[[Lake, Node], Awaitable[None]]


@dataclass(slots=True)
class Lived:
    """What is known of one life. ``marks``: what was appended; ``acks``: its time, once it was acknowledged."""

    marks: set[bytes] = field(default_factory=set)
    acks: dict[bytes, int] = field(default_factory=dict)


class LivesPlay(LakePlay):
    """One seed's run."""

    def __init__(self, world: World, params: LakeParams) -> None:
        super().__init__(world, params)
        world.network.observers.remove(self.eye)  # which sees one life only
        self.lives: dict[UUID, Lived] = {}

    async def run(self) -> Stats:
        """All of it."""
        casts: tuple[tuple[str, Step, int], ...] = (
            ("creator", self._create, 2),
            ("deleter", self._delete, 2),
            ("writer", self._write, 2),
            ("reader", self._read, self.params.readers),
            ("controller", self._control, self.params.controllers),
        )
        for name, step, count in casts:
            for number in range(count):
                self.start(f"{name}{number}", functools.partial(self._forever, step))
        await asyncio.sleep(self.params.active_seconds)
        await self._calm()
        await self._judge()
        self.estate.count("lives", len(self.lives))
        return self.estate.counts

    def _lake(self, node: Node) -> Any:
        store = self.world.cloud.objects(node, page_keys=self.params.page_keys)
        return open_collections(
            store,
            metastore=self.estate.factory(node),
            name="memory://lake",
            settings=self.estate.settings,
            runtime=node.runtime,
            controller=False,
        )

    async def _forever(self, step: Step, node: Node) -> None:
        """One step after another, until the calm."""
        while not self.estate.over:
            async with self._lake(node) as lake:
                for _ in range(node.rng.choice((1, 3, 10))):
                    if self.estate.over:
                        break
                    try:
                        await step(lake, node)
                    except EXPECTED as error:
                        self.estate.count(type(error).__name__)
                    await node.runtime.clock.sleep(node.rng.choice((0, 0.01, 0.1)))

    # ---- what they do

    async def _create(self, lake: Lake, node: Node) -> None:
        async with await lake.create(NAME, appends="compare") as reader:
            self._life_of(reader)
            self.estate.count("created")
            await node.runtime.clock.sleep(node.rng.choice((0, 0.05)))

    async def _delete(self, lake: Lake, node: Node) -> None:
        await node.runtime.clock.sleep(node.rng.uniform(0, 1))
        await lake.delete(NAME, force=node.rng.random() < 0.8)
        self.estate.count("deleted")

    async def _write(self, lake: Lake, node: Node) -> None:
        async with lake.collection(NAME).writer() as writer:
            for _ in range(node.rng.choice((1, 4))):
                await self._append(writer, node)

    async def _append(self, writer: Writer, node: Node) -> None:
        lived, mark = self._life_of(writer), self.estate.mark(node.name)
        lived.marks.add(mark)
        lower = writer.upper
        at = lower.elements[0][0]
        await writer.append([(mark, at, 1)], lower=lower, upper=Frontier([(at + node.rng.randint(1, 2),)]))
        lived.acks[mark] = at
        self.estate.count("acknowledged")

    async def _read(self, lake: Lake, node: Node) -> None:
        async with lake.collection(NAME).reader() as reader:
            for _ in range(node.rng.choice((1, 3))):
                await self._look(reader, node.rng)
                await node.runtime.clock.sleep(node.rng.choice((0, 0.02, 0.2)))

    async def _look(self, reader: ReadHandle, rng: random.Random) -> None:
        """One snapshot, at a time that was acknowledged."""
        lived = self._life_of(reader)
        since = reader.since.elements[0][0]
        known = {mark: at for mark, at in lived.acks.items() if at >= since}
        if not known:
            return
        as_of = rng.choice(sorted(known.values()))
        expected = {mark for mark, at in lived.acks.items() if at <= as_of}
        try:
            async with asyncio.timeout(0.3), await reader.snapshot(as_of) as snapshot:
                rows = [row async for row in snapshot.rows()]
        except TimeoutError:
            self.estate.count("waited in vain")
            return
        self.estate.count("snapshots")
        found = {data for data, _ in rows}
        if any(diff != 1 for _, diff in rows):
            raise Violation("repeated", f"a snapshot at {as_of} has {rows}")
        if found - lived.marks:
            raise Violation("invented", f"a snapshot shows {found - lived.marks}, which its life never had")
        if expected - found:
            raise Violation("lost", f"a snapshot at {as_of} misses {expected - found}, which were acknowledged")

    async def _control(self, lake: Lake, node: Node) -> None:
        async with lake.collection(NAME).controller() as controller:
            for _ in range(node.rng.choice((2, 10))):
                await controller.round()
                await controller.merge(everything=node.rng.random() < 0.3)
                await node.runtime.clock.sleep(0.02)

    def _life_of(self, handle: Writer | ReadHandle) -> Lived:
        """What is known of the life that a handle belongs to."""
        return self.lives.setdefault(handle._context.pending._collection, Lived())

    # ---- the end

    async def _judge(self) -> None:
        """One more life is used by nobody else. Then it is deleted, and nothing is left but tombstones (P9)."""
        node = self.world.node("last")
        await node.run(self._last(node))
        keys = list(self.world.cloud.store.objects)
        left = [key for key in keys if key != f"{NAME}/collection" and "/merged_areas/" not in key]
        if left:
            raise Violation("garbage", f"left of what was deleted: {left[:3]}")

    async def _last(self, node: Node) -> None:
        async with self._lake(node) as lake:
            async with await lake.create(NAME, appends="compare") as reader:
                async with lake.collection(NAME).writer() as writer:
                    await self._append(writer, node)
                await self._look(reader, node.rng)
            for _ in range(2):
                await lake.delete(NAME, force=True)


def _params(seed: int) -> LakeParams:
    fixed = {"kind": TimeKind.U64, "closed": 0.0, "pinners": 0, "listeners": 0, "readers": 2, "active_seconds": 3.0}
    return draw(derived_rng(seed, "params"), fixed)


LIVES = Scenario(
    "collections-lives",
    "a collection is created, deleted and created again under writers, readers and controllers: all faults",
    lambda seed, keep_trace: make_world(seed, keep_trace, _params(seed)),
    lambda world: LivesPlay(world, _params(world.seed)).run(),
)
