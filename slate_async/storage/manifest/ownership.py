"""Whether a manifest and the objects it names are of one database.

A manifest copied from another database's path would be opened like this path's own: its log positions may lie past
what is there, and the SSTs it names would be missed at the first read only. One SST's header tells, and a marker does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from uuid import UUID

from slate_async.codec.header import HEADER_BYTES, decode_header, peek_header
from slate_async.errors import ConfigError, CorruptionError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span
from slate_async.runtime.concurrent import gather_pair
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import FoundMarker, Ground, LoadHead, read_marker
from slate_async.storage.manifest.state import ManifestState, SstRef

LOOKS = 3
"""So many SSTs may be compacted and collected under the look before it is given up."""
FOLDERS = ("sst/", "log/")


async def head_and_marker(ground: Ground, driver: ManifestDriver) -> tuple[ManifestState | None, FoundMarker | None]:
    """The newest state, if there is a database, and the marker, read at once; nothing is proved yet.

    Raises `ConfigError` if a part of the manifest that lies in the place is missing, and the marker as well;
    `CorruptionError`, `UnavailableError`."""
    try:
        return await gather_pair(driver.load(), ground.look())
    except CorruptionError as error:
        if not ground.elsewhere or await read_marker(ground.store) is not None:
            raise
        raise ConfigError(
            f"{ground.name} is not the place of the database of that name: there is no marker, and what its manifest"
            f" has there is missing ({error}). Check the URL, its endpoint, and that the disk is mounted",
            outcome="not_applied",
        ) from error


async def existing_head(ground: Ground, driver: ManifestDriver, found: FoundMarker | None = None) -> ManifestState:
    """The newest state; nothing is proved. ``found``: the marker, if it was read already.

    Raises `ConfigError` if there is no database of that name but the marker of one, else `NotFoundError`."""
    state = await driver.load()
    if state is not None:
        return state
    if found is None:
        found = await ground.look()
    if found is not None:
        raise ground.unknown(found)
    return await driver.existing()


async def proved_head(ground: Ground, driver: ManifestDriver) -> ManifestState:
    """The newest state, found to be of this place: head and marker are read at once. For callers that put no object
    there that the manifest will name; see `slate_async.storage.manifest.marking.settle_place` for the others.

    Raises `InvalidError` if there is no database; and as `prove_place`."""
    state, found = await head_and_marker(ground, driver)
    if state is None:
        state = await existing_head(ground, driver, found)
    return await prove_place(ground, state, driver.load, found)


async def prove_place(
    ground: Ground, state: ManifestState, load_head: LoadHead, found: FoundMarker | None = None
) -> ManifestState:
    """``state``, or the head that came after it, found to be of this place by its marker, read before as ``found`` or
    now. A database that was made before there were markers is recognised by an SST that it names.

    Raises `InvalidError` for another place, or one that nothing proves; `CorruptionError`, `UnavailableError`."""
    if state.has_marker or not ground.elsewhere:
        return await ground.check(state, load_head, found)
    if not await check_ownership(ground.store, state, load_head):
        raise ground.wrong_place(state, found)
    return state


async def check_ownership(store: ObjectStore, state: ManifestState, load_head: LoadHead) -> bool:
    """Read the header of one SST that ``state`` names, if it names any of its own: one request. Whether there was one.

    Raises `CorruptionError` if that is another database's, naming both ids, or is missing while the head still names
    it; and what the store raises."""
    newest: ManifestState | None = state
    for _ in range(LOOKS):
        sst = None if newest is None else _newest_sst(newest)
        if sst is None:
            return False
        try:
            header = await _header_bytes(store, sst.location)
        except ObjectNotFoundError as error:
            newest = await load_head()
            if newest is not None and sst.object_id in _object_ids(newest):
                said = await _foreign_neighbour(store, state.database_id)
                raise CorruptionError(
                    f"is missing, though the manifest names it{said}", object_name=sst.location
                ) from error
            continue
        decode_header(header, object_name=sst.location, database_id=state.database_id, object_id=sst.object_id)
        return True
    return False


def _own_ssts(state: ManifestState) -> Iterator[SstRef]:
    """The SSTs of the database itself, newest first; those of a clone's parents lie elsewhere."""
    named = chain(state.l0, chain.from_iterable(run.ssts for run in state.runs))
    return (sst for sst in named if sst.database_id is None)


def _newest_sst(state: ManifestState) -> SstRef | None:
    return next(_own_ssts(state), None)


def _object_ids(state: ManifestState) -> dict[bytes, None]:
    return dict.fromkeys(sst.object_id for sst in _own_ssts(state))


async def _header_bytes(store: ObjectStore, key: str) -> bytes:
    """The first bytes of an object, as many as a header has or fewer."""
    try:
        return (await store.get(key, Span(0, HEADER_BYTES))).data
    except InvalidError:
        if (await store.head(key)).size:
            raise  # about the store, not about the object
        return b""


async def _foreign_neighbour(store: ObjectStore, database_id: UUID) -> str:
    """What the objects that do lie here say of their database, in words to add, if it is another one."""
    for folder in FOLDERS:
        async for info in store.list(folder):
            try:
                found = peek_header(await _header_bytes(store, info.key), object_name=info.key).database_id
            except (ObjectNotFoundError, CorruptionError, InvalidError):
                break
            if found != database_id:
                return (
                    f": the manifest is of database {database_id}, but {info.key} here is of database {found};"
                    " put that one's manifest back"
                )
            break
    return ""
