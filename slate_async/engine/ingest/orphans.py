"""Which objects in the store were made for which job, and what they are to the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from slate_async.engine.ingest.sst_writer import JOB
from slate_async.objectstore.protocol import ObjectInfo, ObjectNotFoundError, ObjectStore
from slate_async.runtime.concurrent import map_bounded
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key

READS_IN_PARALLEL = 16


@dataclass(frozen=True, slots=True)
class IngestObject:
    """An SST that a task uploaded for ``job_id``, of ``size`` bytes.

    named: the head names it, as pending or as part of the database; else it is of an attempt that failed or lost, of a
    job that goes on, or was compacted: a collector deletes it once nothing may name it any more"""

    key: str
    size: int
    job_id: str
    named: bool


async def ingest_objects(
    store: ObjectStore, state: ManifestState, job_id: str | None = None
) -> AsyncIterator[IngestObject]:
    """Those of one job, or of all, that are still there. Asks the store about each SST that the head names as an
    ingest's, or does not name at all."""
    pending = {sst.location for job in state.ingests for sst in job.ssts}
    named = {sst.location: sst.global_seq is not None for sst in state.ssts() if sst.database_id is None}
    asked: list[ObjectInfo] = []

    async def found() -> AsyncIterator[IngestObject]:
        heads = await map_bounded(lambda info: _head(store, info.key), asked, READS_IN_PARALLEL)
        for info in heads:
            job = None if info is None else info.metadata.get(JOB)
            if info is not None and job is not None and job_id in (None, job):
                yield IngestObject(info.key, info.size, job, info.key in named or info.key in pending)

    async for info in store.list(SST_PREFIX):
        if parse_sst_key(info.key) is None or not named.get(info.key, True):
            continue
        asked.append(info)
        if len(asked) == READS_IN_PARALLEL:
            async for stored in found():
                yield stored
            asked = []
    if asked:
        async for stored in found():
            yield stored


async def _head(store: ObjectStore, key: str) -> ObjectInfo | None:
    try:
        return await store.head(key)
    except ObjectNotFoundError:
        return None
