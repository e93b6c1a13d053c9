"""Destroying a database, softly or for good.

Order: claim the writer's epoch and fence the log -> mark the database destroyed -> (for good, when no checkpoint holds
it:) commit a version that names nothing -> delete log objects and SSTs -> give the parent's checkpoint back -> delete
the older versions.

What stays is the last version, the tombstone, and what keeps late writers out: the fences of a contiguous log, the
writer's register of an epoch-prefixed one. Everything deleted lies below what the tombstone says: names of SSTs begun
before it, lower log positions or epochs. So a remover that sleeps while a database is made again on the path never
deletes that one's objects (rule 29); and each step may be repeated.
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
from slate_async.engine.clone.register import ensure_register
from slate_async.engine.clone.site import OpenSite, Site
from slate_async.errors import CorruptionError, FencedError, UnavailableError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.log import names
from slate_async.storage.log.choose import log_of
from slate_async.storage.manifest.edits.lifecycle import (
    ClaimToDestroy,
    MarkDestroyed,
    RemoveContents,
    check_database,
    refuse_held,
)
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key

logger = logging.getLogger(__name__)
ATTEMPTS = 8
"""How often a writer that claims the database meanwhile is fenced, too."""
DELETED_AT_ONCE = 1_000
NOTES = "gc/"
"""What collectors note and probes leave; nobody's safety depends on it."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal deleted, by kind."""

    versions: int = 0
    log_objects: int = 0
    ssts: int = 0


async def destroy(site: Site, open_site: OpenSite, *, soft: bool = False) -> ManifestState:
    """Destroy the database at ``site``; the state it is left in. Called again it goes on where it stopped.

    soft: only fence the writer and mark it: a collector removes it once its grace is over and no checkpoint holds it

    Raises `InvalidError` (no database; checkpoints hold it, unless ``soft``), `UnavailableError`, `CorruptionError`."""
    state = await site.settled_head()
    database_id = state.database_id
    for _ in range(ATTEMPTS):
        check_database(state, database_id)
        if state.destroyed_at_ms is not None:
            break
        if not soft:
            refuse_held(state, site.runtime.clock.now_ms())  # before a writer is fenced for nothing
        try:
            state = await (_mark(site, state, soft) if state.initialized else _mark_unfinished(site, state))
        except FencedError as error:
            logger.info("%s: destroying it again: %s", site.name, error)
            state = await site.head()
    else:
        raise UnavailableError(f"{site.name}: each of {ATTEMPTS} times another writer took over; try again")
    if not soft:
        await remove_all(site, open_site, database_id)
        state = await site.head()
    return state


async def remove_unfinished(site: Site, open_site: OpenSite, database_id: UUID) -> None:
    """Destroy a clone that was never finished. Raises `FencedError` if it was meanwhile."""
    state = await site.settled_head()
    check_database(state, database_id)
    await _mark_unfinished(site, state)
    await remove_all(site, open_site, database_id)


async def remove_all(site: Site, open_site: OpenSite, database_id: UUID) -> Removed:
    """Remove the contents of a destroyed database, which no living checkpoint holds. Called again it goes on. The
    place's marker stays: a database made again there takes it over.

    Raises `InvalidError` if it is not destroyed, or held, or another database was made in its place, or this is not its
    place."""
    check_database(await site.proved_head(), database_id)
    tombstone = await site.driver.commit(RemoveContents(database_id, site.runtime.clock.now_ms()))
    await ensure_register(site, tombstone)  # an unfinished clone has none, and a damaged database may have lost its own
    log_objects = await _delete(site, _dead_log_objects(site, tombstone))
    ssts = await _delete(site, _dead_ssts(site, tombstone))
    await _delete(site, _all_of(site, NOTES))
    await site.store.delete([ALIVE_KEY])
    tombstone = await release_parents(site, open_site, tombstone)
    versions = await _remove_versions(site, tombstone)
    logger.info("%s: removed %d versions, %d log objects, %d SSTs", site.name, versions, log_objects, ssts)
    return Removed(versions, log_objects, ssts)


async def _remove_versions(site: Site, tombstone: ManifestState) -> int:
    """Remove all versions that the tombstone does not need, however young: whoever follows finds that all is gone."""
    metastore, bases = site.driver.metastore, await _bases(site, tombstone)
    stored = await translated(metastore.versions())
    doomed = [ref for ref in stored if ref.version < tombstone.version and ref not in bases]
    await translated(metastore.delete(doomed))
    return len(doomed) + await translated(metastore.collect(bases, as_of=tombstone.ref))


# ---- marking


async def _mark(site: Site, state: ManifestState, soft: bool) -> ManifestState:
    """Fence every writer, then mark."""
    token = site.runtime.ids.token()
    claimed = await site.driver.commit(ClaimToDestroy(state.database_id, token, state.store_id))
    fenced_to = await _fence(site, claimed)
    now = site.runtime.clock.now_ms()
    return await site.driver.commit(MarkDestroyed(state.database_id, token, now, fenced_to, refuse_held=not soft))


async def _fence(site: Site, claimed: ManifestState) -> int:
    """Fence the log; the last position that may be anybody's.

    A log that is damaged does not stand against destroying. Its last writer then ends with its next look at the
    manifest, as after any claim, and what it puts until then is nobody's."""
    async with site.register(claimed.log_protocol) as register:
        log = log_of(
            claimed,
            site.store,
            register,
            site.driver.load,
            site.runtime,
            site.settings,
            whole=False,
            check_place=partial(site.ground.check_again, load_head=site.driver.load),
        )
        try:
            return (await log.take_over(claimed)).next_id - 1
        except CorruptionError as error:
            logger.warning("%s: its log is damaged, and is destroyed like that: %s", site.name, error)
    positions = [position async for position in _positions(site, claimed)]
    return max(positions, default=claimed.log_start) + claimed.fence_width


async def _positions(site: Site, state: ManifestState) -> AsyncIterator[int]:
    """Of all log objects there are."""
    async for info in site.store.list(names.PREFIX):
        with contextlib.suppress(CorruptionError):  # not a log object's name
            if state.log_protocol == "contiguous":
                yield names.parse_contiguous(info.key)
            else:
                yield names.parse_epoch_prefixed(info.key)[1]


async def _mark_unfinished(site: Site, state: ManifestState) -> ManifestState:
    """A clone that was never finished had no writer; its copiers go no further than its manifest says."""
    edit = MarkDestroyed(state.database_id, None, site.runtime.clock.now_ms(), state.log_last_seen, refuse_held=False)
    return await site.driver.commit(edit)


# ---- removing


async def _bases(site: Site, tombstone: ManifestState) -> list[VersionRef]:
    """What the tombstone needs besides itself: nothing, unless somebody else committed it as a change of a version."""
    stored = await site.driver.read_stored(tombstone.ref)
    return [] if stored is None or stored.base is None else [stored.base]


async def _dead_ssts(site: Site, tombstone: ManifestState) -> AsyncIterator[str]:
    """Those begun before the tombstone: names of a database made again here begin with later versions."""
    async for info in site.store.list(SST_PREFIX):
        name = parse_sst_key(info.key)
        if name is not None and name.base_version <= tombstone.version:
            yield info.key


async def _dead_log_objects(site: Site, tombstone: ManifestState) -> AsyncIterator[str]:
    async for info in site.store.list(names.PREFIX):
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


async def _all_of(site: Site, prefix: str) -> AsyncIterator[str]:
    async for info in site.store.list(prefix):
        yield info.key


async def _delete(site: Site, keys: AsyncIterator[str]) -> int:
    """Delete in portions; how many."""
    deleted, portion = 0, list[str]()
    async for key in keys:
        portion.append(key)
        if len(portion) == DELETED_AT_ONCE:
            await site.store.delete(portion)
            deleted, portion = deleted + len(portion), []
    if portion:
        await site.store.delete(portion)
    return deleted + len(portion)
