"""Destroying a database, softly or for good.

Order: claim the writer's epoch and fence the log -> mark the database destroyed -> (for good, when no checkpoint holds
it:) commit a version that names nothing -> delete log objects and SSTs -> give the parent's checkpoint back -> delete
the older versions.

What stays is the last version, the tombstone, and what keeps late writers out: the fences of a contiguous log, the
writer's register of an epoch-prefixed one. Everything deleted lies below what the tombstone says: names of SSTs begun
before it, lower log positions or epochs. So a remover that sleeps while a database is recreated on the path never
deletes that one's objects (rule 29); and each step may be repeated.

Rule 29: docs/design/protocol-rules.md
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from metastores.protocol import VersionRef
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.clone.detach import release_parents
from slate_async.engine.stored_database import OpenStored, StoredDatabase, ensure_register
from slate_async.errors import CorruptionError, FencedError, UnavailableError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.log import names
from slate_async.storage.log.choose import log_of
from slate_async.storage.manifest.edits.lifecycle import ClaimToDestroy, MarkDestroyed, RemoveContents, refuse_held
from slate_async.storage.manifest.edits.protocol import check_database
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key

logger = logging.getLogger(__name__)
ATTEMPTS = 8
"""How often a writer that claims the database meanwhile is fenced, too."""
DELETED_AT_ONCE = 1_000
NOTES = "gc/"
"""What collectors note and probes leave; no safety depends on it."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal deleted, by kind."""

    versions: int = 0
    log_objects: int = 0
    ssts: int = 0


async def destroy(database: StoredDatabase, open_stored: OpenStored, *, soft: bool = False) -> ManifestState:
    """Destroy ``database``; the state it is left in. Called again it goes on where it stopped.

    soft: only fence the writer and mark it: a collector removes it once its grace is over and no checkpoint holds it

    Raises `InvalidError` (no database; checkpoints hold it, unless ``soft``), `UnavailableError`, `CorruptionError`."""
    state = await database.settled_head()
    database_id = state.database_id
    for _ in range(ATTEMPTS):
        check_database(state, database_id)
        if state.destroyed_at_ms is not None:
            break
        if not soft:
            refuse_held(state, database.runtime.clock.now_ms())  # before a writer is fenced for nothing
        try:
            state = await (_mark(database, state, soft) if state.initialized else _mark_unfinished(database, state))
        except FencedError as error:
            logger.info("%s: another attempt to destroy it, because a commit failed: %s", database.name, error)
            state = await database.head()
    else:
        raise UnavailableError(
            f"{database.name}: another writer took over during each of {ATTEMPTS} attempts; stop the writers, then"
            " try again"
        )
    if not soft:
        await remove_all(database, open_stored, database_id)
        state = await database.head()
    return state


async def remove_unfinished(database: StoredDatabase, open_stored: OpenStored, database_id: UUID) -> None:
    """Destroy a clone that was never finished. Raises `FencedError` if it was meanwhile."""
    state = await database.settled_head()
    check_database(state, database_id)
    await _mark_unfinished(database, state)
    await remove_all(database, open_stored, database_id)


async def remove_all(database: StoredDatabase, open_stored: OpenStored, database_id: UUID) -> Removed:
    """Remove the contents of a destroyed database, which no living checkpoint holds. Called again it goes on. The
    place's marker stays: a database recreated there takes it over.

    Raises `InvalidError` if it is not destroyed, or held, or another database was made in its place, or this is not its
    place."""
    check_database(await database.proved_head(), database_id)
    tombstone = await database.driver.commit(RemoveContents(database_id, database.runtime.clock.now_ms()))
    # An unfinished clone has no register, and a damaged database may have lost its own.
    await ensure_register(database, tombstone)
    log_objects = await _delete(database, _dead_log_objects(database, tombstone))
    ssts = await _delete(database, _dead_ssts(database, tombstone))
    await _delete(database, _all_of(database, NOTES))
    await database.store.delete([ALIVE_KEY])
    tombstone = await release_parents(database, open_stored, tombstone)
    versions = await _remove_versions(database, tombstone)
    logger.info("%s: removed %d versions, %d log objects, %d SSTs", database.name, versions, log_objects, ssts)
    return Removed(versions, log_objects, ssts)


async def _remove_versions(database: StoredDatabase, tombstone: ManifestState) -> int:
    """Remove all versions that the tombstone does not need, however young: a reader that follows the database finds the
    tombstone."""
    metastore, bases = database.driver.metastore, await _bases(database, tombstone)
    stored = await translated(metastore.versions())
    doomed = [ref for ref in stored if ref.version < tombstone.version and ref not in bases]
    await translated(metastore.delete(doomed))
    return len(doomed) + await translated(metastore.collect(bases, as_of=tombstone.ref))


# ---- marking


async def _mark(database: StoredDatabase, state: ManifestState, soft: bool) -> ManifestState:
    """Fence every writer, then mark."""
    token = database.runtime.ids.token()
    claimed = await database.driver.commit(ClaimToDestroy(state.database_id, token, state.store_id))
    fenced_to = await _fence(database, claimed)
    now = database.runtime.clock.now_ms()
    return await database.driver.commit(MarkDestroyed(state.database_id, token, now, fenced_to, refuse_held=not soft))


async def _fence(database: StoredDatabase, claimed: ManifestState) -> int:
    """Fence the log; the last position that a writer may have written.

    A log that is damaged does not stand against destroying. Its last writer then ends with its next look at the
    manifest, as after any claim, and what it puts until then is nobody's."""
    async with database.register(claimed.log_protocol) as register:
        log = log_of(
            claimed,
            database.store,
            register,
            database.driver.load,
            database.runtime,
            database.settings,
            whole=False,
            check_place=partial(database.ground.check_again, load_head=database.driver.load),
        )
        try:
            return (await log.take_over(claimed)).next_id - 1
        except CorruptionError as error:
            logger.warning("%s: the log is damaged, and is destroyed nevertheless: %s", database.name, error)
    positions = [position async for position in _positions(database, claimed)]
    return max(positions, default=claimed.log_start) + claimed.fence_width


async def _positions(database: StoredDatabase, state: ManifestState) -> AsyncIterator[int]:
    """Of all log objects there are."""
    async for info in database.store.list(names.PREFIX):
        with contextlib.suppress(CorruptionError):  # not a log object's name
            if state.log_protocol == "contiguous":
                yield names.parse_contiguous(info.key)
            else:
                yield names.parse_epoch_prefixed(info.key)[1]


async def _mark_unfinished(database: StoredDatabase, state: ManifestState) -> ManifestState:
    """A clone that was never finished had no writer; its copiers go no further than its manifest says."""
    edit = MarkDestroyed(
        state.database_id, None, database.runtime.clock.now_ms(), state.log_last_seen, refuse_held=False
    )
    return await database.driver.commit(edit)


# ---- removing


async def _bases(database: StoredDatabase, tombstone: ManifestState) -> list[VersionRef]:
    """What the tombstone needs besides itself: nothing, unless another process committed it as a change of a
    version."""
    stored = await database.driver.read_stored(tombstone.ref)
    return [] if stored is None or stored.base is None else [stored.base]


async def _dead_ssts(database: StoredDatabase, tombstone: ManifestState) -> AsyncIterator[str]:
    """Those begun before the tombstone: names of a database recreated here begin with later versions."""
    async for info in database.store.list(SST_PREFIX):
        name = parse_sst_key(info.key)
        if name is not None and name.base_version <= tombstone.version:
            yield info.key


async def _dead_log_objects(database: StoredDatabase, tombstone: ManifestState) -> AsyncIterator[str]:
    async for info in database.store.list(names.PREFIX):
        if _is_dead(info, tombstone):
            yield info.key


def _is_dead(info: ObjectInfo, tombstone: ManifestState) -> bool:
    """Whether a log object is the removed database's, and no fence: a fence is a header and nothing more."""
    try:
        if tombstone.log_protocol == "contiguous":
            return names.parse_contiguous(info.key) < tombstone.log_start and info.size != HEADER_BYTES
        return names.parse_epoch_prefixed(info.key)[0] <= tombstone.writer_epoch
    except CorruptionError:
        return False  # not a log object's name: a database that nests below, say


async def _all_of(database: StoredDatabase, prefix: str) -> AsyncIterator[str]:
    async for info in database.store.list(prefix):
        yield info.key


async def _delete(database: StoredDatabase, keys: AsyncIterator[str]) -> int:
    """Delete in portions; how many."""
    deleted, portion = 0, list[str]()
    async for key in keys:
        portion.append(key)
        if len(portion) == DELETED_AT_ONCE:
            await database.store.delete(portion)
            deleted, portion = deleted + len(portion), []
    if portion:
        await database.store.delete(portion)
    return deleted + len(portion)
