"""A reader that polls by asking for the next version only, beside a writer and collectors with clocks of their own.

Whatever it does between two polls, a poll that nothing disturbs shows what was the head when it began.
"""

from __future__ import annotations

from metastores.factories import PutIfAbsentFactory
from metastores.protocol import Probed, VersionRef
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.runtime import MetaRuntime
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tiny import objects_of, tiny_world
from tests.simulation.world import World

KEEP_MS = 8_000
SKEW_MS = 1_000
ROUNDS = 12


def _metastore(world: World, name: str) -> tuple[Node, PutIfAbsentMetaStore]:
    node = world.node(name, skew_ms=world.rng.randrange(-SKEW_MS, SKEW_MS))
    runtime = MetaRuntime(
        sleep=node.clock.sleep,
        rng=derived_rng(world.seed, name, "metadata"),
        version_keep_ms=KEEP_MS,
        monotonic=node.clock.monotonic,
        now_ms=node.clock.now_ms,
    )
    metastore = PutIfAbsentFactory(runtime).manifest(objects_of(world, node), "memory://probed")
    assert isinstance(metastore, PutIfAbsentMetaStore)
    return node, metastore


async def _poll(metastore: PutIfAbsentMetaStore, known: VersionRef) -> VersionRef:
    assert isinstance(metastore, Probed)
    if await metastore.unchanged(known):
        return known
    record = await metastore.latest()
    assert record is not None
    return record.ref


async def _commit(node: Node, metastore: PutIfAbsentMetaStore) -> None:
    head = await metastore.latest()
    version = 1 if head is None else head.ref.version + 1
    await metastore.commit(VersionRef(version, node.runtime.ids.token()), b"x")


async def play(world: World) -> Stats:
    """Bursts of versions, collected at once or later; the reader polls, or stands still for longer than they stay."""
    owner, writing = _metastore(world, "owner")
    collector, collecting = _metastore(world, "collector")
    reader, reading = _metastore(world, "reader")
    await owner.run(_commit(owner, writing))
    first = await reader.run(reading.latest())
    assert first is not None
    known = first.ref
    seen = probes = 0
    for _ in range(ROUNDS):
        for _ in range(world.rng.randrange(0, 5)):
            await owner.run(_commit(owner, writing))
        if world.rng.random() < 0.3:
            await owner.runtime.clock.sleep(world.rng.uniform(0.5, 3) * KEEP_MS / 1000)
        if world.rng.random() < 0.7:
            await collector.run(collecting.collect([]))
        head = await owner.run(writing.latest())
        assert head is not None
        before = known
        known = await reader.run(_poll(reading, known))
        if known != head.ref:
            raise Violation("stale", f"a poll found version {known.version}, the head was {head.ref.version}")
        seen += known != before
        probes += 1
        await owner.runtime.clock.sleep(world.rng.uniform(0, 1))
    return {"polls": probes, "news": seen}


PROBED = Scenario(
    "script-probed-versions",
    "a reader asks for the next version only, while versions come and are collected",
    lambda seed, keep: tiny_world(seed, keep, NO_FAULTS),
    play,
)
