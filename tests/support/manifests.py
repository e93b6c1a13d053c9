"""A compactor and a collector by hand, in one step each, for tests of readers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.codec.columns import Columns, concat
from slate_async.codec.header import ObjectKind, peek_header
from slate_async.engine.read.live import newest_visible
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.format.ordering import order_of, repeated_keys
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.log.names import position_of
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.names import SST_PREFIX, sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.types import MAX_SEQ, PUT
from tests.engine import runtime


def driver_of(store: ObjectStore) -> ManifestDriver:
    """Another process's view of the manifest, kept beside the data."""
    supervisor = Supervisor("by hand", lambda cause: None)
    metastore = PutIfAbsentMetaStore(MetaObjects(store))
    return ManifestDriver(metastore, runtime(), supervisor, name="test", full_every=4, deadline_ms=30_000)


async def head(store: ObjectStore) -> ManifestState:
    """The newest state."""
    found = await driver_of(store).load()
    assert found is not None
    return found


async def commit(store: ObjectStore, edit: Edit) -> ManifestState:
    """Commit ``edit`` as another process would."""
    driver = driver_of(store)
    assert await driver.load() is not None
    return await driver.commit(edit)


@dataclass(frozen=True)
class ReplaceAll:
    """All SSTs of ``state``, and the log below ``log_start``, become one run, or none if no row is left."""

    state: ManifestState
    run_id: int
    sst: SstRef | None
    log_start: int
    log_floor: int
    last_seq: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.last_run_id >= self.run_id:
            return None
        assert state.runs == self.state.runs, "somebody else was faster"
        return replace(
            state,
            l0=tuple(sst for sst in state.l0 if sst not in self.state.l0),
            runs=() if self.sst is None else (SortedRun(self.run_id, (self.sst,)),),
            last_run_id=self.run_id,
            log_start=max(state.log_start, self.log_start),
            log_floor=max(state.log_floor, self.log_floor),
            last_seq=max(state.last_seq, self.last_seq),
        )


async def compact(store: ObjectStore) -> ManifestState:
    """Merge everything, tombstones dropped, into one SST; without a WAL the whole log, too."""
    state = await head(store)
    positions: list[int] = []
    sources: list[tuple[str, int, bytes]] = []
    floor = 0
    if not state.wal_enabled:
        async for info in store.list("log/"):
            if position_of(info.key) >= state.log_start:
                header = peek_header((await store.get(info.key)).data, object_name=info.key)
                positions.append(position_of(info.key))
                floor = max(floor, header.writer_epoch)
                if header.kind is ObjectKind.SST:
                    sources.insert(0, (info.key, info.size, header.object_id))
    sources += [(sst.location, sst.size, sst.object_id) for sst in state.ssts()]
    if not sources:
        return state
    rows, last_seq = await _merged(store, state, sources)
    run_id = state.last_run_id + 1
    sst = await _put(store, state, rows, run_id) if len(rows) else None
    edit = ReplaceAll(state, run_id, sst, max([*positions, 0]) + 1, floor, max(state.last_seq, last_seq))
    return await commit(store, edit)


async def _merged(
    store: ObjectStore, state: ManifestState, sources: Sequence[tuple[str, int, bytes]]
) -> tuple[Columns, int]:
    """The newest rows that are no tombstones, and the highest sequence number there was."""
    parts: list[Columns] = []
    for key, size, object_id in sources:
        reader = SstReader(
            store,
            key,
            size=size,
            database_id=state.database_id,
            object_id=object_id,
            cache=BlockCache(1 << 20),
            offload=runtime().offload,
        )
        parts += [part async for part in reader.scan(None, None)]
    rows = concat(parts)
    rows = rows.take(order_of(rows)[0])
    newest = rows.take(newest_visible(rows.seqs, repeated_keys(rows.keys), MAX_SEQ))
    return newest.take((newest.kinds == PUT).nonzero()[0]), int(rows.seqs.max())


async def _put(store: ObjectStore, state: ManifestState, rows: Columns, run_id: int) -> SstRef:
    object_id = run_id.to_bytes(16, "big")
    builder = SstBuilder(
        database_id=state.database_id,
        object_id=object_id,
        writer_epoch=state.writer_epoch,
        manifest_version=state.version,
        block_bytes=256,
    )
    builder.add(rows)
    encoded = builder.finish()
    key = sst_key(state.version, object_id)
    await store.put(key, encoded.buffers)
    stats = encoded.stats
    return SstRef(
        key,
        object_id,
        encoded.size,
        stats.rows,
        0,
        stats.first_key,
        stats.last_key,
        stats.min_seq,
        stats.max_seq,
        state.writer_epoch,
        stats.min_expire_ms,
        stats.max_expire_ms,
    )


async def collect(store: ObjectStore, now_ms: int) -> None:
    """Delete SSTs that neither the head nor a living checkpoint names, and the log below all their starts, but for the
    fences. What has expired at ``now_ms`` holds nothing."""
    driver = driver_of(store)
    state = await driver.load()
    assert state is not None
    living = [checkpoint for checkpoint in state.checkpoints if not checkpoint.expired(now_ms)]
    kept = [found for checkpoint in living if (found := await driver.read(checkpoint.ref)) is not None]
    named = {sst.location for found in (state, *kept) for sst in found.ssts()}
    await store.delete([info.key async for info in store.list(SST_PREFIX) if info.key not in named])
    start = min([state.log_start, *(checkpoint.log_start for checkpoint in living)])
    async for info in store.list("log/"):
        if position_of(info.key) < start:
            header = peek_header((await store.get(info.key)).data, object_name=info.key)
            if header.kind is not ObjectKind.FENCE:
                await store.delete([info.key])
