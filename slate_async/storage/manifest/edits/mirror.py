"""Edits that make a mirror: a copy of another database's checkpoint, with the same database id (see
`slate_async.storage.manifest.edits.protocol` for what an edit is).

A mirror never has a log: what the log of its source held lies in SSTs, so that each version it shows is whole, and only
the commit of the next one changes what it shows.

Of each field of the state somebody decided whether a mirror has its source's, its own, or none: `ShowMirrored` says so,
and a test knows all of them (`tests/unit/storage/manifest/test_every_field.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.errors import ConflictError, InvalidError
from slate_async.storage.manifest.edits.ingests import MAX_RECORDS
from slate_async.storage.manifest.edits.places import at_the_place_of
from slate_async.storage.manifest.edits.protocol import check_looked_at
from slate_async.storage.manifest.state import APPLIED, DUPLICATE, IngestRecord, ManifestState, Mirrored
from slate_async.storage.manifest.successor import MONOTONE


def unfinished_mirror(source: ManifestState, path: str) -> ManifestState:
    """The first version of a mirror of ``source``, the database at ``path``: whose it is to be, and no contents."""
    return ManifestState(
        database_id=source.database_id,
        log_protocol=source.log_protocol,
        wal_enabled=source.wal_enabled,
        created_ms=source.created_ms,
        properties=source.properties,
        merge_operator=source.merge_operator,
        initialized=False,
        mirrored=Mirrored(path),
    )


def check_mirror(state: ManifestState, database_id: UUID) -> Mirrored:
    """What ``state`` says it mirrors. Raises `InvalidError` unless it is an untouched mirror of that database."""
    mirrored = state.mirrored
    if state.destroyed_at_ms is not None:
        raise InvalidError("the path holds the tombstone of a destroyed database; choose another path for the mirror")
    if state.database_id != database_id:
        raise InvalidError(f"the path holds another database ({state.database_id}); choose another path for the mirror")
    if mirrored is None:
        raise InvalidError(
            "the path holds the database itself, and no mirror of it; choose another path for the mirror"
        )
    if (state.writer_epoch, state.compactor_epoch) != (mirrored.writer_epoch, mirrored.compactor_epoch):
        raise InvalidError(
            "the mirror was opened to write or to compact since; it is a database of its own now: choose another path"
        )
    return mirrored


@dataclass(frozen=True, slots=True)
class ShowMirrored:
    """Let the mirror show ``contents``: a checkpoint's state, its SSTs at their places here, no log; and what it
    mirrors, ``mirrored``.

    base_version: the least version that names of new SSTs begin with
    kept: places of SSTs that the version named already that was looked at; only if that is still so do they stay
    store_id: of the place that they were copied to
    """

    contents: ManifestState
    mirrored: Mirrored
    base_version: int
    kept: frozenset[str]
    store_id: UUID | None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a mirror of the same database that shows nothing later. Its mark is the checkpoint's id.

        Raises `ConflictError` if a collector may have deleted an SST meanwhile; then look and copy again. `FencedError`
        if another place was adopted for the mirror."""
        shown = check_mirror(state, self.contents.database_id)
        if state.initialized and shown.checkpoint_id == self.mirrored.checkpoint_id:
            return None
        check_looked_at(state, (state.database_id, self.store_id))
        new = self._of(state)
        if back := [name for name in MONOTONE if getattr(new, name) < getattr(state, name)]:
            raise InvalidError(
                f"the mirror shows manifest version {shown.manifest_version} of its source, a later state than this"
                f" checkpoint's ({', '.join(back)} would go back); mirror a newer one, or choose another path"
            )
        if self.base_version < state.sst_floor or not self.kept.issubset(sst.location for sst in state.ssts()):
            raise ConflictError("GC may have deleted copied SSTs already; mirror again", outcome="not_applied")
        return new

    def _of(self, state: ManifestState) -> ManifestState:
        """Everything is the source's but what follows.

        Ingests are the mirror's own: those committed here were promised to stay, and come in once it is opened to
        write; the source's are on their way there. So of those that have ended both are remembered."""
        return replace(
            at_the_place_of(self.contents, state),
            ref=state.ref,
            initialized=True,
            destroyed_at_ms=None,
            removed=False,
            mirrored=self.mirrored,
            checkpoints=state.checkpoints,
            sst_floor=state.sst_floor,
            ingests=state.ingests,
            ingest_records=_merged_records(self.contents.ingest_records, self._known_still(state)),
            writer_token="",
            compactor_token="",
            heartbeat_interval_ms=None,
            compactions=(),
            parents=(),
        )

    def _known_still(self, state: ManifestState) -> tuple[IngestRecord, ...]:
        """The mirror's records, but those of batches that the source has forgotten: what is in is the source's, and a
        stream that begins anew may use the names of their jobs again."""
        newest = {app.app_id: app.batch_id for app in self.contents.ingest_apps}
        return tuple(
            record
            for record in state.ingest_records
            if record.app_id is None
            or record.outcome not in (APPLIED, DUPLICATE)
            or record.batch_id <= newest.get(record.app_id, -1)
        )


def _merged_records(preferred: tuple[IngestRecord, ...], others: tuple[IngestRecord, ...]) -> tuple[IngestRecord, ...]:
    """Both, in the order in which they ended, ``preferred`` where both know a job; as many of each kind as are kept."""
    known = {record.id for record in preferred}
    unknown = (record for record in others if record.id not in known)
    merged = sorted((*unknown, *preferred), key=lambda record: record.ended_ms)
    batches = [record for record in merged if record.app_id is not None][-MAX_RECORDS:]
    single = [record for record in merged if record.app_id is None][-MAX_RECORDS:]
    kept = {record.id for record in (*batches, *single)}
    return tuple(record for record in merged if record.id in kept)
