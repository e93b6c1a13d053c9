"""Whether a manifest and the objects it names are of one database.

A manifest copied from another database's path would be opened like this path's own: its log positions may lie past
what is there, and the SSTs it names would be missed at the first read only. One SST's header tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from uuid import UUID

from slate_async.errors import CorruptionError, InvalidError
from slate_async.format.header import HEADER_BYTES, decode_header, peek_header
from slate_async.manifest.state import ManifestState, SstRef
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span

LOOKS = 3
"""So many SSTs may be compacted and collected under the look before it is given up."""
FOLDERS = ("sst/", "log/")


async def check_belonging(
    store: ObjectStore, state: ManifestState, load_head: Callable[[], Awaitable[ManifestState | None]]
) -> None:
    """Read the header of one SST that ``state`` names, if it names any of its own: one request.

    Raises `CorruptionError` if that is another database's, naming both ids, or is missing while the head still names
    it; and what the store raises."""
    newest: ManifestState | None = state
    for _ in range(LOOKS):
        sst = None if newest is None else _newest_sst(newest)
        if sst is None:
            return
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
        return


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
