"""Mirroring a checkpoint, from the first copy to the commit that shows it.

Steps: the mirror's manifest, begun and unfinished -> the writer's register, empty -> the checkpoint's version and its
log -> SSTs, copied or found -> one commit of the mirror's manifest, showing all of it -> what is needed no more is
deleted. Each may be the last one for good, and each finds what an earlier mirroring, of whatever checkpoint, left:
nothing but the commit says what the mirror is to show.

Until that commit the mirror shows what it showed before, whatever stops in between; called again, mirroring goes on
with what is there. Nothing but that commit, and SSTs under names of their own, is ever written into a mirror, so one
that was opened to write since, or is opened meanwhile, comes to no harm: the commit is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from uuid import UUID

from slate_async.engine.checkpoint.load import load_checkpoint
from slate_async.engine.gc.sweeper import Limits, Sweeper
from slate_async.engine.stored_database import StoredDatabase, ensure_register
from slate_async.errors import ConflictError, CorruptionError, InvalidError, NotFoundError, UnavailableError
from slate_async.maintenance.mirror.copy import SstCopier, Tally
from slate_async.maintenance.mirror.logged import Logged, take_out, write_tables
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.storage.manifest.creation import create_first
from slate_async.storage.manifest.edits.checkpoints import find_checkpoint
from slate_async.storage.manifest.edits.mirror import ShowMirrored, check_mirror, unfinished_mirror
from slate_async.storage.manifest.edits.range_deletes import with_range_deletes
from slate_async.storage.manifest.state import Checkpoint, ManifestState, Mirrored, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import parse_sst_key
from slate_async.storage.sst.reader import MissingError

logger = logging.getLogger(__name__)
ATTEMPTS = 8
"""How often what was copied is looked for again, because a collector of the mirror was there."""
PRUNE_ROUNDS = 1_000


async def make_mirror(
    source: StoredDatabase,
    target: StoredDatabase,
    checkpoint: UUID | str,
    ssts: Callable[[UUID], SstOpener],
    *,
    prune: bool = False,
    on_progress: Callable[[MirrorProgress], None] | None = None,
) -> MirrorReport:
    """Make the database at ``target`` show what checkpoint ``checkpoint`` (id or name) of ``source`` keeps.

    ssts: what finds the SSTs of a database that is at ``source``
    prune: then delete what the mirror needs no more

    Raises `InvalidError` (no such checkpoint; a target that holds something else, was written to, or is newer),
    `CorruptionError` for damage in the source, `UnavailableError`."""
    if source.name == target.name:
        raise InvalidError(f"{target.name} cannot be a mirror of itself; choose another path")
    head = await source.proved_head()
    found = find_checkpoint(head, checkpoint, source.runtime.clock.now_ms())
    state = await _begin(source, head, target)
    shown = check_mirror(state, head.database_id)
    await ensure_register(target, unfinished_mirror(head, source.name))  # of no checkpoint: an older one may come
    tally = Tally()
    if not state.initialized or shown.checkpoint_id != found.id:
        try:
            state, tally = await _show(source, target, state.store_id, found, ssts(head.database_id), on_progress)
        except (ObjectNotFoundError, MissingError) as error:
            await _check_there(source, found)
            key = error.key if isinstance(error, ObjectNotFoundError) else error.object_name
            raise CorruptionError(f"is missing, though checkpoint {found.id} names it", object_name=key) from error
    pruned = await _prune(target, state) if prune else 0
    logger.info("%s mirrors checkpoint %s of %s", target.name, found.id, source.name)
    return MirrorReport(
        target.name,
        state.database_id,
        found.id,
        state.version,
        state.last_seq,
        tally.copied,
        tally.copied_bytes,
        tally.kept,
        pruned,
    )


async def _begin(source: StoredDatabase, head: ManifestState, target: StoredDatabase) -> ManifestState:
    """The mirror's head; its first, empty version is made if there is nothing yet."""
    state = await target.driver.load()
    if state is None:
        first = unfinished_mirror(head, source.name)
        await create_first(first, target.driver, target.store, target.metadata, target.name, target.runtime.ids)
    return await target.settled_head()


async def _show(
    source: StoredDatabase,
    target: StoredDatabase,
    store_id: UUID | None,
    checkpoint: Checkpoint,
    opener: SstOpener,
    on_progress: Callable[[MirrorProgress], None] | None,
) -> tuple[ManifestState, Tally]:
    kept = await load_checkpoint(source.store, source.driver, checkpoint)
    logged = await take_out(kept, target.settings, target.runtime.offload, opener)
    for _ in range(ATTEMPTS):
        head = await target.head()
        check_mirror(head, logged.state.database_id)
        copier = SstCopier(opener, logged.state.parents, target, head, on_progress)
        placed = await copier.copy_all([*logged.ssts, *logged.state.ssts()])
        rows = await write_tables(logged, target, head.version)
        copier.tally.copied += len(rows)
        copier.tally.copied_bytes += sum(sst.size for sst in rows)
        contents = _contents(logged, rows, placed)
        new = {sst.location for sst in contents.ssts()}
        named = frozenset(new.intersection(sst.location for sst in head.ssts()))
        try:
            edit = ShowMirrored(
                contents, _mirrored(source, checkpoint, contents), _oldest_base(new - named, head), named, store_id
            )
            return await target.driver.commit(edit), copier.tally
        except ConflictError as conflict:
            logger.info("%s: comparing the copied SSTs again: %s", target.name, conflict)
    raise UnavailableError(
        f"{target.name}: a garbage collector of the mirror interfered with each of {ATTEMPTS} attempts; stop it,"
        " then try again"
    )


def _contents(logged: Logged, rows: Sequence[SstRef], placed: dict[bytes, SstRef]) -> ManifestState:
    """The checkpoint's state with its SSTs at their places in the mirror."""
    state = logged.state
    shown = replace(
        state,
        l0=(*rows, *(placed[sst.object_id] for sst in (*logged.ssts, *state.l0))),
        runs=tuple(replace(run, ssts=tuple(placed[sst.object_id] for sst in run.ssts)) for run in state.runs),
    )
    deletes = (delete for table in reversed(logged.tables) for delete in table.range_deletes())
    return with_range_deletes(shown, deletes)


def _mirrored(source: StoredDatabase, checkpoint: Checkpoint, state: ManifestState) -> Mirrored:
    return Mirrored(source.name, checkpoint.id, checkpoint.ref.version, state.writer_epoch, state.compactor_epoch)


def _oldest_base(new: Set[str], head: ManifestState) -> int:
    """The lowest version that a name of ``new`` begins with."""
    names = [parse_sst_key(key) for key in new]
    return min([head.version, *(name.base_version for name in names if name is not None)])


async def _check_there(source: StoredDatabase, checkpoint: Checkpoint) -> None:
    if (await source.head()).checkpoint(checkpoint.id) is None:
        raise NotFoundError(
            f"checkpoint {checkpoint.id} was deleted, or expired and was collected, while it was mirrored; mirror"
            " another one"
        )


async def _prune(target: StoredDatabase, state: ManifestState) -> int:
    """Delete what the mirror and its checkpoints do not name, as a collector does; how many objects."""
    settings = target.settings
    limits = Limits(0, settings.gc_clock_skew_ms, settings.gc_max_deletes_per_round, settings.gc_stalled_compaction_ms)
    pruned = 0
    async with target.register(state.log_protocol) as register:
        check = partial(target.ground.check_again, load_head=target.driver.load)
        sweeper = Sweeper(target.store, target.driver, register, target.runtime, limits, check_place=check)
        for _ in range(PRUNE_ROUNDS):
            report = await sweeper.sweep()
            pruned += len(report.objects) + report.manifest_versions
            if not report.truncated:
                break
    return pruned
