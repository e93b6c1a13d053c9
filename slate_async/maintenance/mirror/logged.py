"""The part of a checkpoint that is in the log, as the SSTs that a mirror has instead.

With a WAL its rows are sorted into new L0 SSTs; without, its log objects are SSTs, and are copied like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slate_async.codec.header import ObjectKind
from slate_async.engine.stored_database import StoredDatabase
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.replay import Replayer, replay
from slate_async.runtime.protocol import Offload
from slate_async.settings import Settings
from slate_async.storage.log.protocol import Inherited, LogObject
from slate_async.storage.log.recovery import ContiguousWalk
from slate_async.storage.log.rows import check_kind
from slate_async.storage.manifest.history import sampled
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.storage.sst.reference import sst_ref, stored_sst_ref


@dataclass(frozen=True, slots=True)
class Logged:
    """What a checkpoint's log holds, newest first: rows in ``tables``, or objects that are SSTs, as ``ssts``.

    state: the checkpoint's, the log taken out, so that it starts behind the checkpoint"""

    state: ManifestState
    tables: tuple[Memtable, ...]
    ssts: tuple[SstRef, ...]


async def take_out(kept: Inherited, settings: Settings, offload: Offload, opener: SstOpener) -> Logged:
    """Read the log of ``kept``. Raises `CorruptionError`, `UnavailableError`."""
    state, last = kept.state, kept.next_id - 1

    def open_sst(logged: LogObject) -> SstReader:
        return opener.open_log(logged.key, logged.size, logged.header.object_id)

    replayer = Replayer(
        epoch=state.writer_epoch,
        table_bytes=settings.l0_sst_bytes,
        segment_bytes=settings.flush_bytes,
        offload=offload,
        open_sst=open_sst,
        decoding=opener.cache.decoding,
        most_bytes=settings.replay_memory_bytes,
    )
    replayed = await replay(kept, replayer)
    replayed.memtables.freeze()
    ssts: list[SstRef] = []
    for logged in reversed(() if state.wal_enabled else kept.objects):
        check_kind(logged, ObjectKind.SST)
        stats = (await open_sst(logged).load()).stats
        ssts.append(stored_sst_ref(logged.key, logged.header.object_id, logged.size, stats, logged.header.writer_epoch))
    without_log = replace(
        state,
        log_start=last + 1,
        log_last_seen=last,
        log_floor=_floor(state, kept.objects),
        last_seq=replayed.last_seq,
        last_tick_ms=replayed.last_tick_ms,
        seq_times=sampled(state, replayed.last_seq, replayed.last_tick_ms) if kept.objects else state.seq_times,
    )
    return Logged(without_log, tuple(entry.table for entry in reversed(replayed.memtables.frozen)), tuple(ssts))


def _floor(state: ManifestState, objects: Sequence[LogObject]) -> int:
    walk = ContiguousWalk(state.log_start, state.log_floor)
    return max([walk.floor, *(logged.header.writer_epoch for logged in objects)])


async def write_tables(logged: Logged, target: StoredDatabase, base: int) -> list[SstRef]:
    """Put the rows of ``logged.tables`` as SSTs of the mirror, named by version ``base``; newest first."""
    settings, ids, clock = target.settings, target.runtime.ids, target.runtime.clock
    state = logged.state
    encoder = Encoder(
        state.database_id,
        state.writer_epoch,
        settings.block_bytes,
        settings.compression,
        settings.filter_bits_per_key,
        target.runtime.offload,
    )
    refs: list[SstRef] = []
    for table in logged.tables:
        object_id = ids.ulid(clock.now_ms())
        location = sst_key(base, object_id)
        encoded = await encoder.sst(table, object_id=object_id, manifest_version=base)
        await target.store.put(location, encoded.buffers, metadata={"slate-epoch": str(state.writer_epoch)})
        refs.append(sst_ref(location, object_id, encoded, state.writer_epoch))
    return refs
