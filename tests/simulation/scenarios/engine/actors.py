"""Actors that clean up meanwhile: collectors of manifest versions and of log objects, as small as they can be.

They obey rules 6, 8 and 11; a rule's switch replaces one of the functions here.
"""

from __future__ import annotations

from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import SlateError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.storage.log.names import PREFIX, parse_contiguous, parse_epoch_prefixed
from slate_async.storage.log.register import EMPTY, WriterRegister, decode
from slate_async.storage.manifest import codec
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import Handle, SimulatedDatabase


async def collect_manifests(database: SimulatedDatabase, node: Node) -> None:
    """Delete versions that nothing needs: all but the head and the full version it is a delta to."""
    handle = database.handle(node)
    for _ in database.turns():
        await handle.nap(0.25)
        try:
            record = await translated(handle.metastore.latest())
            if record is None:
                continue
            decoded = codec.decode(record.payload, object_name="head")
            retained = [decoded.base] if isinstance(decoded, codec.Delta) else []
            await handle.nap(node.rng.choice((0, 0.1, 2)))
            deleted = await translated(handle.metastore.collect(retained, as_of=record.ref))
            database.count("manifests-collected", deleted)
        except SlateError:
            database.count("collector-errors")


async def collect_log(database: SimulatedDatabase, node: Node) -> None:
    """Delete log objects whose rows are in SSTs. May fall asleep between looking and deleting."""
    handle = database.handle(node)
    for _ in database.turns():
        await handle.nap(0.25)
        try:
            state = await handle.driver.load()
            if state is None:
                continue
            register = await read_register(handle) if state.log_protocol == "epoch_prefixed" else EMPTY
            named = {sst.location for sst in state.ssts()}  # without a WAL log objects may stand in L0 as they are
            listed = [info async for info in handle.store.list(PREFIX)]
            doomed = [info.key for info in listed if collectable(info, state, register) and info.key not in named]
            database.collected.update(dict.fromkeys(doomed))
            node.rng.shuffle(doomed)
            await handle.nap(node.rng.choice((0, 0.1, 3)))
            for key in doomed[: node.rng.randint(1, 8)]:
                await handle.store.delete([key])
                database.count("log-objects-collected")
        except SlateError:
            database.count("collector-errors")


async def read_register(handle: Handle) -> WriterRegister:
    """The writer's register now."""
    cell = await translated(handle.register.read())
    return EMPTY if cell is None else decode(cell.value)


def collectable(info: ObjectInfo, state: ManifestState, register: WriterRegister) -> bool:
    """Whether a log object may go."""
    if state.log_protocol == "contiguous":
        return parse_contiguous(info.key) < state.log_start and not is_fence(info)
    epoch, log_id = parse_epoch_prefixed(info.key)
    if log_id < state.log_start:
        return True
    return epoch < register.epoch and register.owner(log_id) not in (
        None,
        epoch,
    )  # as `slate_async.engine.gc.log` judges


def is_fence(info: ObjectInfo) -> bool:
    """Rule 11: fences are headers alone, and stay for ever."""
    return info.size == HEADER_BYTES
