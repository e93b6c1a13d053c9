"""Making a clone: a shallow copy of a database, at a checkpoint or as it is, that goes its own way from there.

The steps, in the order of rule 28; a clone that stopped between any two of them goes on where it stopped when it is
called again with the same arguments:

1. read the clone's manifest, if there is one;
2. read the parent's, and find the checkpoint to be cloned;
3. look whether the clone's place is empty and its store fit;
4. commit the clone's first version, unfinished, which names the checkpoint that is to hold the parent's SSTs;
5. find where the parent's log ends (of its head; a checkpoint says so itself);
6. commit that checkpoint in the parent;
7. read the version it pins;
8. commit what that holds as the clone's, unfinished, its SSTs named as the parent's;
9. copy the log objects that belong to it, and for the epoch-prefixed log make the writer's register;
10. read the parent's head again: the checkpoint is still there;
11. commit the clone as finished.

Ordering rule: nothing is copied before it is pinned, and nothing is put before the clone's manifest says how far that
may go. If the parent is destroyed, or the checkpoint is deleted before it is pinned, what exists of the clone is
destroyed: its path keeps a tombstone.

Rules 13 and 28: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from uuid import UUID

from slate_async.engine.clone.copy_log import copy_log
from slate_async.engine.clone.destroy import remove_unfinished
from slate_async.engine.stored_database import OpenStored, StoredDatabase, ensure_register
from slate_async.errors import CorruptionError, InvalidError, NotFoundError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.manifest.creation import create_first
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints, find_checkpoint, uuid_of
from slate_async.storage.manifest.edits.lifecycle import CopyContents, FinishClone, check_unfinished, unfinished_clone
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import Checkpoint, ManifestState, Parent

logger = logging.getLogger(__name__)


async def make_clone(
    parent: StoredDatabase,
    target: StoredDatabase,
    open_stored: OpenStored,
    *,
    checkpoint: UUID | str | None = None,
    properties: Mapping[str, str] | None = None,
) -> ManifestState:
    """Make the database at ``target`` a clone of the one at ``parent``, or go on making it; its finished state.

    checkpoint: the parent's checkpoint to clone, by id or name; ``None`` clones its head with all that is
    acknowledged by now
    properties: the clone's own; ``None`` takes the parent's

    Raises `InvalidError` (no parent, a place that is taken, other arguments than it was begun with, a parent or a
    checkpoint that does not exist), `CorruptionError`, `UnavailableError`."""
    begun, origin = await _begin(parent, target, checkpoint, properties)
    if begun.initialized:
        return begun
    try:
        pinned = await _pin(parent, target, begun, origin)
        copied = await _copy_contents(parent, target, begun, pinned)
        await copy_log(parent, origin.database_id, target, copied, pinned.log_ranges)
        await ensure_register(target, copied, pinned.log_ranges)
        await _still_pinned(parent, origin)
        finished = await target.driver.commit(FinishClone(begun.database_id))
    except (InvalidError, CorruptionError, ObjectNotFoundError) as error:
        if (elsewhere := await _clean_up(parent, target, open_stored, begun, origin)) is not None:
            return await _settled(parent, origin, elsewhere)
        if isinstance(error, ObjectNotFoundError):
            raise CorruptionError(
                f"is missing, though a checkpoint of {parent.name} holds it", object_name=error.key
            ) from error
        raise
    logger.info("%s is a clone of %s at its manifest version %d", target.name, parent.name, pinned.ref.version)
    return await _settled(parent, origin, finished)


# ---- steps 1 to 4


async def _begin(
    parent: StoredDatabase, target: StoredDatabase, checkpoint: UUID | str | None, properties: Mapping[str, str] | None
) -> tuple[ManifestState, Parent]:
    """The clone's manifest, begun now or earlier, and what it says of its direct parent."""
    if parent.name == target.name:
        raise InvalidError(f"{target.name} cannot be a clone of itself; choose another path")
    state = await target.driver.load()
    source = await parent.proved_head()
    if state is None:
        source_id = _begin_at(source, checkpoint, parent.runtime.clock.now_ms())
        ids = target.runtime.ids
        origin = Parent(source.database_id, parent.name, ids.uuid(), source_id)
        now = target.runtime.clock.now_ms()
        first = unfinished_clone(source, origin, database_id=ids.uuid(), now_ms=now, properties=properties)
        state = await create_first(first, target.driver, target.store, target.metadata, target.name, ids)
    if state.destroyed_at_ms is not None:
        raise InvalidError(f"{target.name} holds what is left of a destroyed database; a clone needs a path of its own")
    begun = next((entry for entry in state.parents if entry.checkpoint_id is not None), None)
    if begun is None or begun.detached:
        raise InvalidError(f"there is a database at {target.name} already; choose another path for the clone")
    if (begun.path, begun.database_id) != (parent.name, source.database_id):
        raise InvalidError(
            f"{target.name} is a clone of {begun.path} (database {begun.database_id}); choose another path"
        )
    if not _same_source(begun.source_id, source, checkpoint):
        taken = f"the head of {parent.name}" if begun.source_id is None else f"checkpoint {begun.source_id}"
        raise InvalidError(
            f"{target.name} {'is' if state.initialized else 'was begun as'} a clone of {taken}, not of what is asked"
            f" for now; {'' if state.initialized else 'give the same to go on, or '}choose another path"
        )
    return await target.settled_head(), begun


def _begin_at(source: ManifestState, checkpoint: UUID | str | None, now_ms: int) -> UUID | None:
    """The id of the checkpoint to clone, which is alive; ``None`` for the head."""
    check_usable(source)
    if checkpoint is None:
        return None
    found = find_checkpoint(source, checkpoint, now_ms)
    if found.log_end is None:
        raise InvalidError(
            f"checkpoint {found.id} is a {found.owner}'s own and moves with it; make one with checkpoints.create"
        )
    return found.id


def _same_source(begun: UUID | None, source: ManifestState, checkpoint: UUID | str | None) -> bool:
    if begun is None or not isinstance(checkpoint, str):
        return begun == checkpoint
    if begun == uuid_of(checkpoint):
        return True
    return any(held.id == begun and held.name == checkpoint for held in source.checkpoints)


# ---- steps 5 to 8


async def _pin(parent: StoredDatabase, target: StoredDatabase, begun: ManifestState, origin: Parent) -> Checkpoint:
    """The checkpoint that holds in the parent what the clone names, made now or earlier."""
    head = await _parent_head(parent, origin)
    pinned = _pinned(head, origin)
    if pinned is not None:
        return pinned
    if begun.writer_epoch > 0:
        raise NotFoundError(f"checkpoint {origin.checkpoint_id} of {parent.name}, which held the clone, was deleted")
    extent = await _extent(parent, head) if origin.source_id is None else LogExtent(0)
    edit = CreateCheckpoint(
        _pinning_checkpoint(origin),
        "clone",
        parent.runtime.clock.now_ms(),
        None,
        name=target.name,
        source=origin.source_id,
        log_end=extent.end,
        log_ranges=extent.ranges,
        of=extent.of,
    )
    pinned = _pinned(await parent.driver.commit(edit), origin)
    if pinned is None:
        raise NotFoundError(f"checkpoint {origin.checkpoint_id} of {parent.name} was deleted as soon as it was made")
    return pinned


async def _extent(parent: StoredDatabase, head: ManifestState) -> LogExtent:
    async with parent.register(head.log_protocol) as register:
        check = partial(parent.ground.check_again, load_head=parent.driver.load)
        return await find_extent(parent.store, parent.driver.load, register, check)


async def _parent_head(parent: StoredDatabase, origin: Parent) -> ManifestState:
    head = await parent.head()
    if head.database_id != origin.database_id:
        raise NotFoundError(f"{parent.name} was destroyed, and another database made in its place")
    check_usable(head)
    return head


async def _copy_contents(
    parent: StoredDatabase, target: StoredDatabase, begun: ManifestState, pinned: Checkpoint
) -> ManifestState:
    source = await parent.driver.read(pinned.ref)
    if source is None:
        raise CorruptionError(
            f"is missing, though checkpoint {pinned.id} of {parent.name} names it",
            object_name=f"manifest version {pinned.ref.version}",
        )
    return await target.driver.commit(CopyContents(begun.database_id, source, pinned))


# ---- step 10, and when it went wrong


async def _still_pinned(parent: StoredDatabase, origin: Parent) -> None:
    """Rule 13: what was copied counts iff a head read afterwards still holds the checkpoint."""
    if _pinned(await _parent_head(parent, origin), origin) is None:
        raise NotFoundError(f"checkpoint {origin.checkpoint_id} of {parent.name} was deleted while the clone was made")


async def _clean_up(
    parent: StoredDatabase, target: StoredDatabase, open_stored: OpenStored, begun: ManifestState, origin: Parent
) -> ManifestState | None:
    """If the clone can never be finished, remove what there is of it, here and in the parent. Else leave it.

    Returns its state if another call has finished it; it may have been detached and written since. Raises
    `InvalidError` if another call has destroyed it, because that explains the missing objects."""
    state = await target.head()
    try:
        check_unfinished(state, begun.database_id)
    except InvalidError:
        await _unpin(parent, origin)
        raise
    if state.initialized:
        return state
    if await _is_lost(parent, state, origin):
        await remove_unfinished(target, open_stored, begun.database_id)
    return None


async def _settled(parent: StoredDatabase, origin: Parent, finished: ManifestState) -> ManifestState:
    """``finished``, with no checkpoint in the parent that it does not know of: one may have been made here after
    another maker's clone was detached."""
    if not any(entry.checkpoint_id == origin.checkpoint_id for entry in finished.parents):
        await _unpin(parent, origin)
    return finished


async def _unpin(parent: StoredDatabase, origin: Parent) -> None:
    if await parent.driver.load() is not None:
        await parent.driver.commit(DeleteCheckpoints(frozenset({_pinning_checkpoint(origin)})))


async def _is_lost(parent: StoredDatabase, state: ManifestState, origin: Parent) -> bool:
    """Whether the parent can no longer give what the clone was begun with."""
    head = await parent.driver.load()
    if head is None or head.database_id != origin.database_id or head.destroyed_at_ms is not None:
        return True
    if _pinned(head, origin) is not None:
        return False
    if state.writer_epoch > 0:
        return True
    source = None if origin.source_id is None else head.checkpoint(origin.source_id)
    return origin.source_id is not None and (source is None or source.expired(parent.runtime.clock.now_ms()))


def _pinning_checkpoint(origin: Parent) -> UUID:
    if origin.checkpoint_id is None:
        raise InvalidError(f"{origin.path} is no direct parent")
    return origin.checkpoint_id


def _pinned(head: ManifestState, origin: Parent) -> Checkpoint | None:
    return head.checkpoint(_pinning_checkpoint(origin))
