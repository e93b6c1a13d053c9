"""What the store of a database must hold, and what else it holds, found out without the collector's own code.

Lives: the head, checkpoints, compactions, pending ingests and those that feeds are to deliver, each version's base; the
log from its start on and as far as checkpoints need it; every fence; registers, pointers, boundaries. With DynamoDB the
manifest is in a table, so its stored versions are asked of the metastore, and the place has a marker.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastores.names import MANIFEST, WRITER
from metastores.protocol import MetaStoreFactory, VersionRef
from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectInfo, ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.log import register as registers
from slate_async.storage.log.names import parse_contiguous, parse_epoch_prefixed
from slate_async.storage.log.recovery import EpochRange, owner_of
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.state import Checkpoint, ManifestState

STAYS = (MANIFEST.current, MANIFEST.elsewhere, WRITER, ALIVE_KEY)


@dataclass(frozen=True)
class LiveSet:
    """missing: what something names and is not there; left: there, and named by nothing."""

    missing: list[str]
    left: list[str]


async def live_set(store: ObjectStore, metadata: MetaStoreFactory, name: str, runtime: Runtime) -> LiveSet:
    """Compare what there is with what lives. The database must be at rest."""
    objects = MetaObjects(store)
    metastore = metadata.manifest(objects, name)
    driver = ManifestDriver(
        metastore, runtime, Supervisor("live set", lambda cause: None), name="live set", full_every=1, deadline_ms=1_000
    )
    try:
        head = await driver.load()
        assert head is not None
        ssts, versions, missing = await _named(driver, head)
        stored = set(await metastore.versions())
    finally:
        await driver.close()
    register = EMPTY
    if head.log_protocol == "epoch_prefixed":
        reading = metadata.register(objects, name)
        cell = await reading.read()
        register = EMPTY if cell is None else registers.decode(cell.value)
        await reading.close()
    left = [f"version {ref.version}" for ref in sorted(stored - versions)]
    infos = {info.key: info async for info in store.list()}
    marker = [MARKER] if head.has_marker else []
    missing += sorted({*ssts, *marker} - infos.keys())
    stays = {
        *ssts,
        *marker,
        *STAYS,
        *(MANIFEST.version_key(ref.version) for ref in versions),
        *(MANIFEST.body_key(ref) for ref in versions),
    }
    for key, info in infos.items():
        body = MANIFEST.body_ref(key)
        if body is not None and body.version > head.version:
            continue  # of a commit that may be under way: garbage once the head is past it
        if key not in stays and MANIFEST.boundary_of(key) is None and not is_live_log(info, head, register):
            left.append(key)
    return LiveSet(missing, left)


async def _named(driver: ManifestDriver, head: ManifestState) -> tuple[set[str], set[VersionRef], list[str]]:
    """Own SSTs, versions, and versions that cannot be read."""
    ssts = {sst.location for compaction in head.compactions for part in compaction.finished for sst in part.ssts}
    ssts |= {sst.location for ingest in head.ingests for sst in ingest.ssts}
    ssts |= {
        sst.location
        for checkpoint in head.checkpoints
        if checkpoint.feed is not None
        for sst in checkpoint.feed.ingests
    }
    versions, missing = set[VersionRef](), list[str]()
    for ref in dict.fromkeys([head.ref, *(checkpoint.ref for checkpoint in head.checkpoints)]):
        stored = await driver.read_stored(ref)
        if stored is None:
            missing.append(f"version {ref.version} or its base")
            continue
        versions |= {version for version in (ref, stored.base) if version is not None}
        ssts |= {sst.location for sst in stored.state.ssts() if sst.database_id is None}
    return ssts, versions, missing


def is_live_log(info: ObjectInfo, head: ManifestState, register: WriterRegister) -> bool:
    """Whether a log object lives: by the head, its checkpoints and, of an epoch-prefixed log, the writer's register."""
    try:
        if head.log_protocol == "contiguous":
            log_id = parse_contiguous(info.key)
            needed = any(_spans(checkpoint, log_id) for checkpoint in head.checkpoints)
            return needed or log_id >= head.log_start or info.size == HEADER_BYTES
        epoch, log_id = parse_epoch_prefixed(info.key)
    except CorruptionError:
        return False
    if any(
        _spans(checkpoint, log_id) and _owner(checkpoint, log_id) in (None, epoch) for checkpoint in head.checkpoints
    ):
        return True
    return log_id >= head.log_start and register.owner(log_id) in (None, epoch)


def _spans(checkpoint: Checkpoint, log_id: int) -> bool:
    return log_id >= checkpoint.log_start and (checkpoint.log_end is None or log_id <= checkpoint.log_end)


def _owner(checkpoint: Checkpoint, log_id: int) -> int | None:
    return owner_of(log_id, [EpochRange(epoch, first) for epoch, first in checkpoint.log_ranges])
