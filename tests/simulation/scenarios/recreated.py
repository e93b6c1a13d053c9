"""Rule 5: a version of the manifest that is deleted and comes back between a reader's listing and its reading."""

from __future__ import annotations

from tests.simulation.checkers import check_history
from tests.simulation.faults import NO_FAULTS
from tests.simulation.history import History, Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tiny import Entries, TinyDb, manifest_of, note_view, put_if_absent, tiny_world
from tests.simulation.world import World

OPEN = manifest_of(put_if_absent)
FOLDER = "manifest/"


async def _append(world: World, history: History, db: TinyDb) -> None:
    key = b"key%d" % world.rng.randrange(3)
    write = history.begin(db.node.name, 1, {key: b"%d" % len(history.writes)})
    await db.node.run(db.append(write))
    history.ack(write)


def _db(world: World, name: str) -> TinyDb:
    node: Node = world.node(name)
    return TinyDb(OPEN(world, node), node)


async def play(world: World) -> Stats:
    """The sleeper's version lands where that of the owner was listed, and deleted since."""
    history = History(world.loop.time)
    owner, sleeper, reader = (_db(world, name) for name in ("owner", "sleeper", "reader"))
    for _ in range(world.rng.randint(1, 3)):
        await _append(world, history, owner)
    put = Hold(world, sleeper.node, "put-create", FOLDER)
    late = world.loop.create_task(_append(world, history, sleeper), name="late append")
    await put.caught()
    await _append(world, history, owner)
    get = Hold(world, reader.node, "get", FOLDER)
    look = reader.node.spawn(reader.load())
    await get.caught()
    for _ in range(world.rng.randint(1, 3)):
        await _append(world, history, owner)
    collector = world.node("collector")
    await collector.run(OPEN(world, collector).collect())
    put.release()
    get.release()
    entries: Entries = (await reader.node.join(look))[0]
    note_view(history, reader.node.name, Kind.DURABLE, entries)
    await late
    await world.network.quiet()
    observer = _db(world, "observer")
    note_view(history, observer.node.name, Kind.FINAL, (await observer.node.run(observer.load()))[0])
    check_history(history)
    return {"writes": len(history.writes), "acknowledged": len(history.writes)}


RECREATED = Scenario(
    "script-recreated-version",
    "a deleted manifest version comes back under a reader",
    lambda seed, keep: tiny_world(seed, keep, NO_FAULTS),
    play,
)
