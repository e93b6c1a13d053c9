"""A database as small as can be, to try the simulator itself: one cell that holds the list of all writes.

A writer reads the cell, appends its write and puts the list back under the condition that nobody came between; what
it cannot know it finds out by reading again and looking for its own write. Three ways to keep the cell (an object, a
register, a manifest), and one way to be wrong for each kind of mistake, which a checker must notice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from metastores.errors import MetaStoreUnavailableError
from metastores.protocol import Committed, MetaStore, MetaStoreFactory, Register, Unknown, VersionRef
from slate_async.errors import ConflictError, UnavailableError
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import CREATE, OVERWRITE, Match, ObjectNotFoundError, ObjectStore
from slate_async.objectstore.retry import RetryingStore
from tests.simulation.checkers import check_history, check_no_leaks
from tests.simulation.faults import NO_FAULTS, FaultPlan
from tests.simulation.history import History, Kind, Write
from tests.simulation.loop import Interleaving
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

KEY = "tiny/cell"
ATTEMPTS = 200
Entries = list[Any]


class Lost(Exception):
    """The cell was not written, for certain."""


class Unsure(Exception):
    """The cell may have been written."""


class CellProtocol(Protocol):
    """Where the list is kept."""

    async def read(self) -> tuple[Entries, Any]:
        """The list and what to give `write`. Raises `Unsure` if there was no answer."""

    async def write(self, entries: Entries, seen: Any) -> None:
        """Replace the list unless it changed. Raises `Lost` or `Unsure`."""


class ObjectCell:
    """The list as an object, written with If-Match; ``exact`` off: overwritten, whatever is there."""

    def __init__(self, store: ObjectStore, *, exact: bool = True) -> None:
        self._store = store
        self._exact = exact

    async def read(self) -> tuple[Entries, Any]:
        """The list and its etag."""
        try:
            found = await self._store.get(KEY)
        except ObjectNotFoundError:
            return [], CREATE
        except UnavailableError as error:
            raise Unsure from error
        return json.loads(found.data), Match(found.info.etag)

    async def write(self, entries: Entries, seen: Any) -> None:
        """Put if unchanged."""
        try:
            await self._store.put(KEY, json.dumps(entries).encode(), mode=seen if self._exact else OVERWRITE)
        except ConflictError as error:
            raise Lost from error
        except UnavailableError as error:
            raise (Lost if error.outcome == "not_applied" else Unsure) from error


class RegisterCell:
    """The list in a register."""

    def __init__(self, register: Register) -> None:
        self._register = register

    async def read(self) -> tuple[Entries, Any]:
        """The list and its tag."""
        try:
            cell = await self._register.read()
        except MetaStoreUnavailableError as error:
            raise Unsure from error
        return ([], None) if cell is None else (json.loads(cell.value), cell.tag)

    async def write(self, entries: Entries, seen: Any) -> None:
        """Compare and set."""
        await judged(self._register.compare_and_set(seen, json.dumps(entries).encode()))


class ManifestCell:
    """The list as the head of a manifest."""

    def __init__(self, metastore: MetaStore, token: Callable[[], str]) -> None:
        self._metastore = metastore
        self._token = token

    async def read(self) -> tuple[Entries, Any]:
        """The list and its version."""
        try:
            record = await self._metastore.latest()
        except MetaStoreUnavailableError as error:
            raise Unsure from error
        return ([], 0) if record is None else (json.loads(record.payload), record.ref.version)

    async def collect(self) -> None:
        """Delete all versions but the head."""
        record = await self._metastore.latest()
        if record is not None:
            await self._metastore.collect([], as_of=record.ref)

    async def write(self, entries: Entries, seen: Any) -> None:
        """Commit the next version."""
        await judged(self._metastore.commit(VersionRef(seen + 1, self._token()), json.dumps(entries).encode()))


async def judged(conditional_write: Awaitable[object]) -> None:
    """Raise `Lost` or `Unsure` unless it was committed."""
    try:
        outcome = await conditional_write
    except MetaStoreUnavailableError as error:
        raise Lost from error
    if isinstance(outcome, Unknown):
        raise Unsure
    if not isinstance(outcome, Committed):
        raise Lost


@dataclass(slots=True)
class TinyDb:
    """The database of one process. ``looks`` off: after an outcome it cannot know it writes again without looking."""

    cell: CellProtocol
    node: Node
    looks: bool = True

    async def load(self) -> tuple[Entries, Any]:
        """The list, however often it takes."""
        for _ in range(ATTEMPTS):
            try:
                return await self.cell.read()
            except Unsure:
                await self.node.runtime.clock.sleep(0.05)
        raise UnavailableError("the cell cannot be read")

    async def append(self, write: Write) -> None:
        """Return once the write is in the list."""
        changes = {key.decode(): None if value is None else value.decode() for key, value in write.changes.items()}
        for _ in range(ATTEMPTS):
            entries, seen = await self.load()
            ids = [entry[0] for entry in entries]
            if self.looks and write.id in ids:
                write.seq = ids.index(write.id) + 1
                return
            try:
                await self.cell.write([*entries, [write.id, changes]], seen)
            except (Lost, Unsure):
                await self.node.runtime.clock.sleep(self.node.runtime.rng.uniform(0, 0.2))
            else:
                write.seq = len(entries) + 1
                return
        raise UnavailableError("the cell cannot be written", outcome="unknown")


def _values(entries: Entries) -> dict[bytes, bytes]:
    values: dict[str, str] = {}
    for _, changes in entries:
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return {key.encode(): value.encode() for key, value in values.items()}


async def _write_and_read(db: TinyDb, history: History, rounds: int) -> None:
    rng = db.node.rng
    for number in range(rounds):
        key = b"key%d" % rng.randrange(3)
        if rng.random() < 0.6:
            value = None if rng.random() < 0.25 else f"{db.node.name}-{number}".encode()
            write = history.begin(db.node.name, 1, {key: value})
            await db.append(write)
            history.ack(write)
        else:
            start = history.now()
            entries, _ = await db.load()
            history.read(db.node.name, key, _values(entries).get(key), start)
        await db.node.runtime.clock.sleep(rng.uniform(0, 0.3))


async def _collect(cell: ManifestCell, node: Node) -> None:
    for _ in range(40):
        await node.runtime.clock.sleep(node.rng.uniform(0, 0.3))
        with contextlib.suppress(MetaStoreUnavailableError):
            await cell.collect()


def note_view(history: History, observer: str, kind: Kind, entries: Entries) -> None:
    """What a process found in the cell."""
    history.view(observer, kind, [(entry[0], seq) for seq, entry in enumerate(entries, 1)], _values(entries))


def play_of(
    open_cell: Callable[[World, Node], CellProtocol], *, looks: bool = True, collectors: int = 0
) -> Callable[[World], Any]:
    """Three processes write to the cell and read it, crash and freeze; everything they saw is judged."""

    async def collector(world: World, name: str) -> None:
        node = world.node(name)
        node.freeze_after(world.rng.randrange(1, 200), world.rng.uniform(0.1, 5))
        cell = open_cell(world, node)
        assert isinstance(cell, ManifestCell)
        await node.run(_collect(cell, node))

    async def life(world: World, history: History, name: str) -> int:
        """A process, and the next one after it when it crashes. Returns the number of crashes."""
        crashes = 0
        while True:
            node = world.node(name, skew_ms=world.rng.randrange(-60_000, 60_000))
            if crashes < 2 and world.rng.random() < 0.5:
                node.crash_after(world.rng.randrange(1, 120))
            if world.rng.random() < 0.3:
                node.freeze_after(world.rng.randrange(1, 60), world.rng.uniform(0.1, 20))
            try:
                db = TinyDb(open_cell(world, node), node, looks)
                await node.run(_write_and_read(db, history, 8), "workload")
            except NodeCrashedError:
                crashes += 1
            else:
                check_no_leaks(node)
                return crashes

    async def play(world: World) -> Stats:
        history = History(world.loop.time)
        lives = [world.loop.create_task(life(world, history, name), name=f"life of {name}") for name in ("a", "b", "c")]
        others = [
            world.loop.create_task(collector(world, f"collector{number}"), name="collector")
            for number in range(collectors)
        ]
        crashes = 0
        for task in lives:
            crashes += await task
        for other in others:
            await other
        world.plan = NO_FAULTS
        await world.network.quiet()
        observer = world.node("observer")
        entries, _ = await observer.run(TinyDb(open_cell(world, observer), observer).load())
        note_view(history, observer.name, Kind.FINAL, entries)
        check_history(history)
        acked = sum(write.is_acked for write in history.writes.values())
        return {"writes": len(history.writes), "acknowledged": acked, "crashes": crashes}

    return play


def tiny_world(seed: int, keep_trace: bool, plan: FaultPlan | None = None) -> World:
    """A world for one seed, with the usual faults if no ``plan`` is given."""
    return World(
        seed,
        plan=FaultPlan() if plan is None else plan,
        interleaving=(Interleaving.DOMAINS, Interleaving.SHUFFLED)[seed % 2],
        keep_trace=keep_trace,
    )


def _object(world: World, node: Node) -> CellProtocol:
    return ObjectCell(world.cloud.objects(node))


def _unconditional(world: World, node: Node) -> CellProtocol:
    return ObjectCell(world.cloud.objects(node), exact=False)


def objects_of(world: World, node: Node) -> MetaObjects:
    """The object store of a process, as metastores see it."""
    return MetaObjects(RetryingStore(world.cloud.objects(node), node.runtime.clock, node.runtime.rng))


def _register_of(factory: Callable[[World, Node], MetaStoreFactory]) -> Callable[[World, Node], CellProtocol]:
    def open_cell(world: World, node: Node) -> CellProtocol:
        return RegisterCell(factory(world, node).register(objects_of(world, node), "memory://tiny"))

    return open_cell


def manifest_of(factory: Callable[[World, Node], MetaStoreFactory]) -> Callable[[World, Node], ManifestCell]:
    """The list as the head of such a manifest."""

    def open_cell(world: World, node: Node) -> ManifestCell:
        metastore = factory(world, node).manifest(objects_of(world, node), "memory://tiny")
        return ManifestCell(metastore, node.runtime.ids.token)

    return open_cell


def _server(world: World, node: Node) -> MetaStoreFactory:
    return world.cloud.metastore(node)


def put_if_absent(world: World, node: Node) -> MetaStoreFactory:
    """The product's default."""
    return world.cloud.put_if_absent(node)


def _if_match(world: World, node: Node) -> MetaStoreFactory:
    return world.cloud.if_match(node)


def _slow_world(seed: int, keep_trace: bool) -> World:
    """Many requests take so long that much happens while they are under way."""
    return tiny_world(seed, keep_trace, FaultPlan(delayed=0.2, delay=(0.05, 1.0), late=0.15, lateness=(0.02, 3.0)))


def _scenario(name: str, summary: str, open_cell: Callable[[World, Node], CellProtocol], **how: Any) -> Scenario:
    make = _slow_world if how.get("collectors") else tiny_world
    return Scenario(f"tiny-{name}", summary, make, play_of(open_cell, **how), broken=summary.startswith("wrong"))


TINY: Sequence[Scenario] = (
    _scenario("object", "a list of writes in one object, by If-Match", _object),
    _scenario("register", "in a register of a server", _register_of(_server)),
    _scenario("manifest", "as the head of a manifest of a server", manifest_of(_server)),
    _scenario("object-register", "in the product's register over objects", _register_of(put_if_absent)),
    _scenario("put-if-absent", "as the head of the product's manifest by put-if-absent", manifest_of(put_if_absent)),
    _scenario("if-match", "as the head of the product's manifest by If-Match", manifest_of(_if_match)),
    _scenario(
        "put-if-absent-collected",
        "the same while old versions are collected",
        manifest_of(put_if_absent),
        collectors=2,
    ),
    _scenario("if-match-collected", "the same by If-Match", manifest_of(_if_match), collectors=2),
    _scenario("overwrite", "wrong: writes without a condition", _unconditional),
    _scenario("blind", "wrong: repeats without looking", _object, looks=False),
)
