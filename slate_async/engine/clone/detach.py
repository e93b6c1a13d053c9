"""A clone that names no SST of its parents any more needs them no longer.

Order (rule 28): a head of the clone that says so -> the checkpoint in the parent goes -> the clone forgets it. Until
that last step the clone's manifest names the checkpoint, so the next call finishes a detach that stopped in between.

Rule 28: docs/design/protocol-rules.md
"""

from __future__ import annotations

import contextlib
import logging

from metastores.protocol import VersionRef
from slate_async.engine.stored_database import OpenStored, StoredDatabase
from slate_async.errors import ConflictError
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.lifecycle import DetachParents, ForgetParent, names_foreign
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)


async def detach_if_free(database: StoredDatabase, open_stored: OpenStored) -> bool:
    """Detach the clone ``database`` from its parents if nothing names their SSTs: head, checkpoints, compactions.

    Whether it has no parents now. A database that never had one, or is being made or destroyed, is left alone.
    Raises `UnavailableError`, `CorruptionError`; called again it goes on."""
    state = await database.head()
    if not state.initialized or state.destroyed_at_ms is not None:
        return False
    if any(not parent.detached for parent in state.parents):
        free = await _free_versions(database, state)
        if free is None:
            return False
        with contextlib.suppress(ConflictError):  # a checkpoint was made meanwhile: the next call looks at it, too
            state = await database.driver.commit(DetachParents(state.database_id, state.version, free))
    if any(not parent.detached for parent in state.parents):
        return False
    return not (await release_parents(database, open_stored, state)).parents


async def _free_versions(database: StoredDatabase, state: ManifestState) -> frozenset[VersionRef] | None:
    """The versions that checkpoints name, if neither they nor the head name another database's SSTs, else ``None``.

    However fast a writer makes its pins anew: those it lets go of meanwhile need no look, and those it makes are of
    versions behind the head, which name none either (see `DetachParents`)."""
    if names_foreign(state):
        return None
    free: set[VersionRef] = set()
    for ref in dict.fromkeys(checkpoint.ref for checkpoint in state.checkpoints):
        version = await database.driver.read(ref)
        if version is not None and names_foreign(version):
            return None
        if version is not None:
            free.add(ref)
        elif any(checkpoint.ref == ref for checkpoint in (await database.head()).checkpoints):
            return None  # it is damaged, and may have named anything
    return frozenset(free)


async def release_parents(database: StoredDatabase, open_stored: OpenStored, state: ManifestState) -> ManifestState:
    """Give back the checkpoints that detached parents hold, and forget them; the state after that."""
    for parent in state.parents:
        if not parent.detached or parent.checkpoint_id is None:
            continue
        async with open_stored(parent.path) as other:
            head = await other.driver.load()
            if head is not None and head.database_id == parent.database_id:
                await other.driver.commit(DeleteCheckpoints(frozenset({parent.checkpoint_id})))
        state = await database.driver.commit(ForgetParent(state.database_id, parent.checkpoint_id))
        logger.info("%s: detached from its parent %s", database.name, parent.path)
    return state
