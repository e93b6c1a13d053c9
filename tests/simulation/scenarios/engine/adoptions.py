"""Adoptions: a database's place was copied, and operators adopt the copy while writers go on in the old place.

Invariants: what the manifest knew as durable is never lost, whichever place is adopted; in the end one place is right,
or every refusal names ``slate adopt-place``, which then goes on; the right place is whole. What a writer acknowledged
and the manifest does not know of yet, and nobody copied, is no part of them: an operator closes the writer first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import slate_async as slate
from slate_async.errors import ClosedError, ConflictError, CorruptionError, FencedError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import OVERWRITE
from slate_async.storage.log.names import PREFIX
from slate_async.storage.manifest.marker import MARKER
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.history import History
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.play import drawn_params, make_world
from tests.simulation.scenarios.engine.stage import CALM, NO_POLLS_MS
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

Act: TypeAlias = Callable[[str, Node], Coroutine[Any, Any, object]]
"""What a process does at a place."""
OLD, COPY, OTHER_COPY = "old", "copy", "other-copy"
REFUSED = (FencedError, ClosedError, ConflictError, UnavailableError, InvalidError)
"""The errors that an opening or an adoption may get in a world like this."""
STEPS = 150
"""An adoption takes about so many."""
NAP_SECONDS = 10


@dataclass(slots=True)
class Adoption:
    """One database, the places it may be in, and what must be there.

    noted: keys that the manifest knew as durable
    adopted: places whose adoption an operator saw confirmed
    """

    world: World
    database: SimulatedDatabase
    noted: set[bytes] = field(default_factory=set)
    adopted: list[str] = field(default_factory=list)
    keys: int = 0

    # ---- what processes do

    def at(self, place: str) -> SimulatedDatabase:
        """The database, looked for in ``place``."""
        return replace(self.database, folder=place)

    @contextlib.asynccontextmanager
    async def admin(self, place: str, node: Node) -> AsyncIterator[slate.Admin]:
        """An operator's handle."""
        database = self.at(place)
        async with on(node.runtime).open_admin(
            database.store(node),
            name=database.name,
            metastore=database.factory(node),
            settings=database.params.settings(node.rng, None),
        ) as admin:
            yield admin

    async def adopt(self, place: str, node: Node) -> bool:
        """Adopt ``place``; whether that was confirmed."""
        try:
            async with self.admin(place, node) as admin:
                await admin.adopt_place()
        except CorruptionError as error:
            if "is missing" not in str(error):
                raise
            return False
        except REFUSED:
            return False
        self.adopted.append(place)
        return True

    async def write(self, place: str, node: Node) -> None:
        """A life of a writer that looks at the head only when it must, or now and then."""
        with contextlib.suppress(*REFUSED):
            db = await self.at(place).open(node, node.rng.choice((None, NO_POLLS_MS)))
            epoch, mine = db.status().epoch, set[bytes]()
            for _ in range(node.rng.randint(1, 3)):
                self.keys += 1
                key = b"%05d" % self.keys
                await db.put(key, b"v")
                mine.add(key)
                if node.rng.random() < 0.4:
                    # without a WAL the log's objects are SSTs themselves: flushing commits nothing
                    by_flush = self.database.params.wal and node.rng.random() < 0.5
                    await (db.flush(l0=True) if by_flush else db.checkpoints.create())
                    self.noted |= mine
            await db.close()
            head = await self.database.handle(node).driver.load()
            assert head is not None
            pinned = any(checkpoint.owner == "writer" for checkpoint in head.checkpoints)
            if head.writer_epoch == epoch and not pinned:  # its last commit is in, and nobody came after it
                self.noted |= mine

    def copy(self, place: str, prefix: str = "") -> None:
        """Objects of the old place as they are now, but for the marker and those that are there."""
        store = self.world.cloud.store
        for key, found in list(store.objects.items()):
            folder, _, name = key.partition("/")
            copied = f"{place}/{name}"
            if folder == OLD and name != MARKER and name.startswith(prefix) and copied not in store.objects:
                store.put(copied, found.data, OVERWRITE, {})

    # ---- the end

    async def check(self) -> None:
        """One place is right, or becomes so once it is adopted; it is whole."""
        right = await self.right()
        if self.adopted and right == OLD:
            raise Violation("place", f"{self.adopted} was adopted, and the old place is right")
        if right is None:
            for place in self.world.rng.sample((COPY, OTHER_COPY, OLD), 3):
                if await self._run("operator-again", self.adopt, place):
                    break
            else:
                raise Violation("place", "no place is right, and none can be adopted")
            right = await self.right()
        if right is None:
            raise Violation("place", "no place is right after an adoption that nobody disturbed")
        if self.database.params.protocol == "epoch_prefixed":  # its register knows, and misses, what was not noted, too
            self.copy(right, PREFIX)
        await self._run("last", self._whole, right)

    async def right(self) -> str | None:
        """The place that is the database's; all others are refused by an error that says what to do."""
        found = [place for place in (OLD, COPY, OTHER_COPY) if await self._run("looker", self._is_right, place)]
        if len(found) > 1:
            raise Violation("place", f"{found} are both right")
        return found[0] if found else None

    async def _is_right(self, place: str, node: Node) -> bool:
        try:
            async with self.admin(place, node) as admin:
                await admin.checkpoints.create()
        except slate.ConfigError as error:
            if "slate adopt-place" not in str(error):
                raise Violation("place", f"{place} is refused without a word of what to do: {error}") from error
            return False
        return True

    async def _whole(self, place: str, node: Node) -> None:
        async with self.admin(place, node) as admin:
            report = await admin.verify()
        if report.findings:
            raise Violation("lost", f"{place} is the place, and not whole: {report.findings}")
        for _ in range(2):
            db = await self.at(place).open(node, NO_POLLS_MS)
            rows = {key async for key, _ in db.scan()}
            if not rows >= self.noted:
                raise Violation("lost", f"{place} is the place, and lacks {sorted(self.noted - rows)}")
            await db.put(b"last", b"v")
            await db.flush(l0=True)
            await db.close()

    async def _run(self, name: str, act: Act, place: str) -> bool:
        node = self.world.node(name)
        return bool(await node.run(act(place, node)))


async def _play(world: World, fixed: Mapping[str, Any]) -> Stats:
    rng, plan = world.rng, world.plan
    world.plan = NO_FAULTS
    database = SimulatedDatabase(world, drawn_params(world.seed, fixed), History(world.loop.time), folder=OLD)
    adoption = Adoption(world, database)
    await database.create()
    first = world.node("first")
    await first.run(adoption.write(OLD, first))
    adoption.copy(COPY)
    adoption.copy(OTHER_COPY)
    world.plan = plan
    held: list[Hold] = []
    lives = [_life(adoption.write, OLD, _fated(world, f"writer{n}"), rng.uniform(0, 0.5)) for n in range(1, 3)]
    for number in range(rng.randint(1, 2)):
        node, place = _fated(world, f"operator{number}"), COPY if number == 0 else rng.choice((COPY, OTHER_COPY))
        if rng.random() < 0.5:  # until the writers are done: it has looked, and has not committed
            held.append(Hold(world, node, "put", f"{place}/{MARKER}"))
        lives.append(_life(adoption.adopt, place, node, rng.uniform(0, 0.5)))
    tasks = [world.loop.create_task(life) for life in lives]
    await asyncio.sleep(rng.uniform(0.2, 2))
    for hold in held:
        hold.release()
    await asyncio.sleep(NAP_SECONDS)
    world.plan = NO_FAULTS
    for node in list(world.nodes.values()):
        node.thaw()
    for task in tasks:
        await task
    await world.network.quiet()
    await adoption.check()
    return {"noted": len(adoption.noted), "adopted": len(adoption.adopted), **database.counts}


async def _life(act: Act, place: str, node: Node, start: float) -> None:
    await asyncio.sleep(start)
    with contextlib.suppress(NodeCrashedError):
        await node.run(act(place, node))


def _fated(world: World, name: str) -> Node:
    """A process that may be killed, or frozen, after any of its steps."""
    rng, node = world.rng, world.node(name)
    fate = rng.random()
    if fate < 0.3:
        node.crash_after(rng.randrange(1, STEPS))
    elif fate < 0.6:
        node.freeze_after(rng.randrange(1, STEPS), rng.choice((None, rng.uniform(0.05, 4))))
    return node


FIXED = {**CALM, "faults": 0.5, "metadata": "server"}
"""Metadata of which nothing is in the place: a copy that lacks the head's body could not even be looked at."""
ADOPTIONS = (
    Scenario(
        "script-adopted-place",
        "operators adopt copies of a place, killed or frozen anywhere, while writers go on in the old one",
        lambda seed, keep: make_world(seed, keep, FIXED),
        lambda world: _play(world, FIXED),
    ),
)
