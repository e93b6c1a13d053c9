"""Adopting a place: an operator says that what lies here is the database, whatever its marker says.

For a database that was moved, or that was made before places had markers. All checks come before the first write: the
place must be no other database's, the SSTs that the manifest names must be here, and the log must have no gap up to its
last known object.
"""

from __future__ import annotations

import logging

from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import ConfigError, ConflictError, CorruptionError, InvalidError, UnavailableError
from slate_async.storage.log.extent import find_extent, read_register
from slate_async.storage.log.listing import has_log
from slate_async.storage.log.missing import judge_missing, look_at_log
from slate_async.storage.manifest.marking import adopt_place, settle_place
from slate_async.storage.manifest.ownership import FOLDERS, LOOKS, check_ownership
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)


async def adopt(database: StoredDatabase) -> ManifestState:
    """Mark the place of ``database`` as its own.

    Writers and compactors, here or elsewhere, are fenced, and ingests that are not committed end. Changes nothing if
    the place is the database's already. A repeated call resumes.

    Raises `InvalidError` (no database; metadata in the same store; another database's place; nothing of it is here),
    `ConflictError` if another place is adopted at the same time, or the database keeps changing, `CorruptionError` for
    an SST or a log object that is not here, though others are, `UnavailableError`."""
    ground, driver, new_id = database.ground, database.driver, database.runtime.ids.uuid
    state = await database.head()
    if not ground.must_be_proved(state):
        raise InvalidError(
            f"{database.name} keeps its metadata in the same store: that proves the place, without a marker"
        )
    if state.has_marker and not state.marked:
        return await settle_place(ground, driver, state, await ground.look(), new_id)
    adopted = await _adopt(database, state)
    logger.warning("%s was adopted as the place of database %s", database.name, adopted.database_id)
    return adopted


async def _adopt(database: StoredDatabase, state: ManifestState) -> ManifestState:
    """Look for the database's objects, and adopt the place as of what was looked at; anew if that changed meanwhile."""
    looks = 0
    while True:
        if not state.removed:
            await _check_objects(database, state)
        looks += 1
        try:
            now_ms = database.runtime.clock.now_ms()
            return await adopt_place(
                database.ground, database.driver, state, database.runtime.ids.uuid, ended_ms=now_ms
            )
        except ConflictError:
            newest = await database.head()
            if newest.store_id != state.store_id or looks == LOOKS:
                raise
            state = newest


async def _check_objects(database: StoredDatabase, state: ManifestState) -> None:
    """Check that what the database needs is here: the log up to its last known object, and the SSTs."""
    try:
        await _check_log(database, state)
        await check_ownership(database.store, state, database.driver.load)
        await _check_ssts(database, state)
    except CorruptionError as error:
        if await _has_objects(database):
            raise
        raise _nothing_here(database, state, str(error)) from error
    if state.log_protocol == "contiguous" and state.writer_token and not await has_log(database.store, 0):
        raise _nothing_here(database, state, "not even a fence of its log, and those stay for ever")


async def _check_ssts(database: StoredDatabase, state: ManifestState) -> None:
    """Every SST that the head reads from, but those of a clone's parents, is listed here."""
    for _ in range(LOOKS):
        there = {info.key for folder in FOLDERS async for info in database.store.list(folder)}
        missing = [key for key in _own_keys(state) if key not in there]
        if not missing:
            return
        state = await database.head()
        named = set(_own_keys(state))
        if lost := [key for key in missing if key in named]:
            others = f", and so are {len(lost) - 1} others" if len(lost) > 1 else ""
            raise CorruptionError(f"is missing, though the manifest names it{others}", object_name=lost[0])
    raise UnavailableError(
        f"{database.name}: its manifest changed during each of {LOOKS} looks at its objects; try again"
    )


def _own_keys(state: ManifestState) -> list[str]:
    return [sst.location for sst in state.ssts() if sst.database_id is None]


async def _check_log(database: StoredDatabase, state: ManifestState) -> None:
    """No log object is missing that the manifest, the register, or a later one tells of."""
    async with database.register(state.log_protocol) as register:
        if register is None:
            await find_extent(database.store, database.driver.load, None)
            return
        for _ in range(LOOKS):
            held = await read_register(database.store, register, state.log_start)
            missing = (await look_at_log(database.store, state, held)).missing
            if missing is None:
                return
            state = await judge_missing(missing, state, database.driver.load)
    raise UnavailableError(f"{database.name}: the log's start moved during each of {LOOKS} looks at it; try again")


async def _has_objects(database: StoredDatabase) -> bool:
    """Whether any log object or SST is here."""
    for folder in FOLDERS:
        async for _ in database.store.list(folder):
            return True
    return False


def _nothing_here(database: StoredDatabase, state: ManifestState, why: str) -> ConfigError:
    return ConfigError(
        f"{database.name}: nothing of database {state.database_id} is here ({why}). Check the URL, its endpoint, and"
        " that the disk is mounted. If the database was moved, copy all of its objects here, then adopt the place;"
        " nothing was changed",
        outcome="not_applied",
    )
