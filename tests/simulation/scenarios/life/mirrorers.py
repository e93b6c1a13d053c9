"""Mirrorers: mirror checkpoints of the source, of whatever age and several at once, and read the mirror. Each is a
process that may die, or sleep, between any two steps; the next one goes on with whatever checkpoint it likes."""

from __future__ import annotations

from slate_async.errors import InvalidError, NotFoundError
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import record_view
from tests.simulation.scenarios.life.beside import CALM, nap
from tests.simulation.scenarios.life.estate import EXPECTED, Estate, Kept, Rows, lasting, rows_of


async def mirror(estate: Estate, database: SimulatedDatabase, node: Node) -> None:
    """Mirror a checkpoint, or look at what is there."""
    for _ in database.turns(CALM):
        await nap(node, 0.2)
        step = node.rng.choices((_mirror_any, look, _collect), (0.55, 0.3, 0.15))[0]
        try:
            await step(estate, node)
        except EXPECTED:
            estate.count("mirrorers-failed")


async def _mirror_any(estate: Estate, node: Node) -> None:
    kept = [promise for promise in estate.kept.values() if promise.rows is not None and promise.promised(node)]
    if kept and await mirror_one(estate, node, node.rng.choice(kept)) and node.rng.random() < 0.5:
        await look(estate, node)


async def mirror_one(estate: Estate, node: Node, kept: Kept) -> bool:
    """Mirror that checkpoint. Whether the mirror shows it then, or something later."""
    target = estate.mirrors[0]
    estate.mirrored[kept.id] = kept
    end = kept.expire_ms
    try:
        async with estate.admin(node, estate.source) as admin:
            await admin.mirror(kept.id, target.name, metastore=target.factory(node), prune=node.rng.random() < 0.3)
    except InvalidError as error:
        head = estate.eye(target).head
        if head is not None and head.initialized and "later state" in str(error):
            estate.count("mirrorings-too-late")
            return True
        if kept.promised(node, end):
            raise
        return False
    estate.count("mirrorings")
    return True


async def look(estate: Estate, node: Node) -> Rows | None:
    """What the mirror holds: what one of the checkpoints held that were mirrored. ``None``: none is whole yet."""
    target = estate.mirrors[0]
    before = estate.eye(target).head
    if before is None or not before.initialized:
        return None
    async with estate.reader(node, target, pin=node.rng.random() < 0.5) as reader:
        rows = await rows_of(reader)
    record_view(estate.source.history, node.name, Kind.DURABLE, rows)
    if all(lasting(rows) != lasting(kept.rows or []) for kept in estate.mirrored.values()):
        held = [kept.rows for kept in estate.mirrored.values()]
        raise Violation("mirror", f"{target.name} holds {rows}, and none of the checkpoints mirrored does: {held}")
    shown = next((kept for kept in estate.mirrored.values() if _shows(before, kept)), None)
    if shown is not None and shown.rows is not None and _last(rows) < _last(shown.rows):
        raise Violation("backwards", f"{target.name} showed {shown.rows}, and then {rows}")
    estate.count("mirror-views")
    return rows


async def _collect(estate: Estate, node: Node) -> None:
    """Collect the mirror's garbage, finished or not."""
    target = estate.mirrors[0]
    head = estate.eye(target).head
    if head is None:
        return
    try:
        async with estate.collector(node, target) as collector:
            for _ in range(node.rng.randint(1, 4)):
                estate.count("mirror-objects-collected", len((await collector.collect()).objects))
                await nap(node, 0.2)
    except NotFoundError:
        if head.marked or not head.has_marker:
            raise
        estate.count("mirrors-without-a-place")  # nothing of it is anywhere yet


def _shows(state: ManifestState, kept: Kept) -> bool:
    return state.mirrored is not None and state.mirrored.checkpoint_id == kept.id


def _last(rows: Rows) -> int:
    return max((seq for _, _, seq in lasting(rows)), default=0)
