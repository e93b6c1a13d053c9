"""The log of a clone: its parent's log objects at the same positions, made the clone's own.

Positions, epochs and rows stay; fences and dead objects are copied like the others, so the log has no gap and is judged
as the parent's is. Two copiers put the same bytes, and none puts a position behind the last one the clone's manifest
names: so one that sleeps and wakes late changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from slate_async.codec.header import HEADER_BYTES, decode_header
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import CorruptionError, UnavailableError
from slate_async.objectstore.protocol import CREATE, OVERWRITE, ObjectExistsError, Span
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.concurrent import map_bounded
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.format.rehome import rehome
from slate_async.storage.log.extent import log_keys
from slate_async.storage.log.protocol import copied_metadata
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Buffer

IN_PARALLEL = 4
"""Objects in memory at once; one is as large as a flush of the parent was."""
INLINE_BYTES = 256 << 10
"""Checksums of more bytes than this are made in a worker thread."""


async def copy_log(
    source: StoredDatabase,
    source_id: UUID,
    target: StoredDatabase,
    state: ManifestState,
    ranges: Sequence[tuple[int, int]],
) -> None:
    """Copy the positions ``state`` (the clone's) names from the database ``source_id``; ``ranges`` own them there.

    Raises `ObjectNotFoundError` for an object that is not there, `CorruptionError` for one that is not sound, or
    another one in its place, `UnavailableError`."""
    wanted = log_keys(state.log_protocol, ranges, state.log_start, state.log_last_seen)

    async def copy(position: tuple[int, str]) -> None:
        log_id, key = position
        data = (await source.store.get(key)).data
        move = partial(
            rehome,
            data,
            object_name=key,
            owner=source_id,
            object_id=log_object_id(log_id),
            database_id=state.database_id,
        )
        buffers = move() if len(data) < INLINE_BYTES else await source.runtime.offload.run(move)
        await _put(target, state, key, buffers)

    if wanted:
        await map_bounded(copy, wanted, IN_PARALLEL)


async def _put(target: StoredDatabase, state: ManifestState, key: str, buffers: Sequence[Buffer]) -> None:
    """Put the object for good. What is there already must be the same."""
    header = bytes(buffers[0])
    metadata = copied_metadata(decode_header(header, object_name=key).writer_epoch, header)
    mode = CREATE if state.log_protocol == "contiguous" else OVERWRITE
    backoff = Backoff(target.runtime, target.settings.retry_deadline_ms, f"copying {key}")
    while True:
        try:
            await target.store.put(key, buffers, mode=mode, metadata=metadata)
        except ObjectExistsError as error:
            if (await target.store.get(key, Span(0, HEADER_BYTES))).data != header:
                raise CorruptionError(
                    f"{target.name} holds another object under the name of a copied one", object_name=key
                ) from error
        except UnavailableError as error:
            await backoff.wait(error)
            continue
        return
