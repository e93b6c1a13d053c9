"""Marking a place: how a database whose metadata is elsewhere gets the marker that proves its place from then on.

Order: manifest with ``marked = false`` -> marker -> read back -> commit ``marked = true`` with the store id that was
read (one opening wins) -> only then is anything claimed, acknowledged or put. Until then nothing of the database is
anywhere, so any opening may go on, in whatever place it takes for the right one, with a store id of its own; once it is
marked, one place is right. A marker is put only where none is, so openings of one place that race agree on the first
one's. Only a recreated database takes its predecessor's over, and only an operator (`AdoptPlace`) puts one aside.

Rule R21: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from slate_async.errors import ConflictError, CorruptionError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import (
    CREATE,
    OVERWRITE,
    Match,
    ObjectNotFoundError,
    ObjectStore,
    PutMode,
)
from slate_async.storage.format.marker import Marker, decode_marker, encode_marker
from slate_async.storage.manifest.creation import refuse_foreign
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.places import AdoptPlace, MarkPlace
from slate_async.storage.manifest.marker import MARKER, FoundMarker, Ground, is_of, read_marker
from slate_async.storage.manifest.ownership import check_ownership, prove_place
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
ATTEMPTS = 8
"""How often a marker is put whose put had no answer, or that others put meanwhile."""


async def settle_place(
    ground: Ground, driver: ManifestDriver, state: ManifestState, found: FoundMarker | None, new_id: Callable[[], UUID]
) -> ManifestState:
    """The head, with a place that is proved to be this one; marked now if it is not yet. For callers that will put
    objects there. ``found``: the marker as it was read beside ``state``; ``new_id`` draws store ids.

    Raises `InvalidError` if it is another place, `CorruptionError`, `UnavailableError`."""
    for _ in range(ATTEMPTS):
        if state.marked or state.destroyed_at_ms is not None or not ground.must_be_proved(state):
            return await prove_place(ground, state, driver.load, found)
        if not state.has_marker:  # of before there were markers: an SST that it names, and that is here, is proof
            state = await prove_place(ground, state, driver.load, found)
            return await adopt_place(ground, driver, state, new_id)
        found = await _put_marker(ground, driver, state, found, new_id)
        if found is not None:
            state = await driver.commit(MarkPlace(state.database_id, found.marker.store_id))
            continue
        newest = await driver.load()
        if newest is None:
            break
        state, found = newest, await read_marker(ground.store)
    raise UnavailableError(
        f"{ground.name}: its marker could not be put, because others kept changing it; open it again"
    )


async def _put_marker(
    ground: Ground,
    driver: ManifestDriver,
    state: ManifestState,
    found: FoundMarker | None,
    new_id: Callable[[], UUID],
) -> FoundMarker | None:
    """The marker of ``state``, which is not marked yet, in its place, read back; ``None`` if that must be tried again.
    Raises `InvalidError` if the place is another database's, or holds other things."""
    if found is not None and found.marker.database_id == state.database_id:
        return found  # of an opening that stopped, or is about to commit it
    if (found is None) != (state.store_id is None) or (found and found.marker.store_id != state.store_id):
        newest = await driver.load()
        if newest is not None and newest.ref == state.ref:
            raise ground.wrong_place(state, found)
        return None
    if found is None:
        try:
            await refuse_foreign(ground)
        except InvalidError:
            newest = await driver.load()
            if newest is not None and newest.ref == state.ref and await _marker_of(ground, state) is None:
                raise
            return None  # what was found is of an opening that was quicker
    marker = Marker(state.database_id, new_id())
    await _put(ground.store, marker, CREATE if found is None else Match(found.etag))
    return await _marker_of(ground, state)


async def _marker_of(ground: Ground, state: ManifestState) -> FoundMarker | None:
    """The marker in the place if it is of the database, of whatever store id."""
    found = await read_marker(ground.store)
    return found if found is not None and found.marker.database_id == state.database_id else None


async def _put(store: ObjectStore, marker: Marker, mode: PutMode) -> None:
    """Put it under its condition. What became of that, reading it back tells: no answer says nothing of it."""
    data = encode_marker(marker)
    try:
        await store.put(MARKER, data, mode=mode)
    except (ConflictError, UnavailableError) as error:
        logger.info("%s: the marker may not have been put: %s", MARKER, error)
    except InvalidError:  # a store without conditional puts; its database needs none but this
        await store.put(MARKER, data, mode=OVERWRITE)


async def adopt_place(
    ground: Ground,
    driver: ManifestDriver,
    state: ManifestState,
    new_id: Callable[[], UUID],
    *,
    ended_ms: int | None = None,
) -> ManifestState:
    """Make this place that of ``state``, whatever was its place before; the state that says so. ``ended_ms`` as of
    `AdoptPlace`. Called again it goes on. Others may adopt this very place at the same time: all agree on one marker.

    Raises `InvalidError` if it is another database's, or an object that the database needs is not here: an SST that
    its manifest names. `ConflictError` if another place was adopted meanwhile, or the database changed.
    `CorruptionError`, `UnavailableError`."""
    await check_ownership(ground.store, state, driver.load)
    met: set[UUID] = set()  # store ids of the markers that were here
    for _ in range(ATTEMPTS):
        found, etag = await _marker_or_damaged(ground)
        ground.refuse_other(state, found)
        if is_of(found, state):
            return state
        if found is not None and is_of(found, newest := await driver.existing()):
            return newest
        if found is None or ended_ms is not None:
            before = found
            await _put(ground.store, Marker(state.database_id, new_id()), CREATE if etag is None else Match(etag))
            found, etag_now = await _marker_or_damaged(ground)
            if found is None or etag_now == etag:
                continue
            ground.refuse_other(state, found)
            met.update(seen.marker.store_id for seen in (before, found) if seen is not None)
        # any process's: all that adopt this place at once agree on the last marker
        try:
            return await driver.commit(AdoptPlace(found.marker.store_id, state, ended_ms))
        except ConflictError:
            newest = await driver.existing()
            if newest.store_id not in met and not is_of((await _marker_or_damaged(ground))[0], newest):
                raise
            state, ended_ms = newest, None  # another process adopted this place, and fenced the others
    raise UnavailableError(f"{ground.name}: its marker could not be put; adopt it again")


async def _marker_or_damaged(ground: Ground) -> tuple[FoundMarker | None, str | None]:
    """The marker that is here, if it can be read, and what names to the store whatever is there."""
    try:
        result = await ground.store.get(MARKER)
    except ObjectNotFoundError:
        return None, None
    etag = result.info.etag
    try:
        return FoundMarker(decode_marker(result.data, object_name=MARKER), etag), etag
    except CorruptionError as damaged:
        logger.warning("%s: a damaged marker is replaced: %s", ground.name, damaged)
        return None, etag
