"""Unfinished clones that no cloner resumes: after a while a collector removes them and their checkpoints in parents.

Whose clone it is, is never guessed: seen from the parent, what lies at the path that a checkpoint names must name that
very checkpoint. Age only says how long a cloner that died is waited for: one that sleeps for longer is refused.
"""

from __future__ import annotations

import logging
from uuid import UUID

from slate_async.engine.clone.destroy import remove_unfinished
from slate_async.engine.stored_database import OpenStored, StoredDatabase
from slate_async.errors import ConflictError, CorruptionError, FencedError, InvalidError, UnavailableError
from slate_async.storage.manifest.state import Checkpoint, ManifestState

logger = logging.getLogger(__name__)


def is_abandoned(state: ManifestState, before_ms: int) -> bool:
    """Whether ``state`` is a clone that was begun before then and is not finished, or not wholly removed."""
    return not state.initialized and bool(state.parents) and state.created_ms <= before_ms


async def remove_abandoned(database: StoredDatabase, open_stored: OpenStored, state: ManifestState) -> bool:
    """Remove the clone ``database``, last seen as ``state``. Whether it was: not if it was finished meanwhile.

    Raises `UnavailableError`, `CorruptionError`, `InvalidError`; called again it goes on."""
    try:
        await remove_unfinished(database, open_stored, state.database_id)
    except (FencedError, ConflictError) as error:
        logger.info("%s: this unfinished clone is not removed: %s", database.name, error)
        return False
    logger.info("%s: removed this clone, which was begun long ago and never finished", database.name)
    return True


class ClonesOfOne:
    """Looks after the clones of one database, from its side."""

    def __init__(self, name: str, open_stored: OpenStored) -> None:
        self._name = name
        self._open_stored = open_stored
        self._finished: set[UUID] = set()
        self._reported: set[UUID] = set()

    async def end_abandoned(self, state: ManifestState, before_ms: int, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove those that were begun before then and are not finished; their names. ``dry_run`` only names them.

        What cannot be reached or read is left for another time, with one warning: it may be closed to collectors."""
        found: list[str] = []
        for checkpoint in state.checkpoints:
            if checkpoint.owner != "clone" or checkpoint.create_ms > before_ms or checkpoint.id in self._finished:
                continue
            path = checkpoint.name or ""
            try:
                async with self._open_stored(path) as database:
                    if await self._is_abandoned(database, checkpoint, before_ms, dry_run):
                        found.append(database.name)
            except (UnavailableError, InvalidError, CorruptionError) as error:
                level = logging.DEBUG if checkpoint.id in self._reported else logging.WARNING
                self._reported.add(checkpoint.id)
                logger.log(level, "%s: its clone %s cannot be looked after: %s", self._name, path, error)
        return tuple(found)

    async def _is_abandoned(
        self, database: StoredDatabase, checkpoint: Checkpoint, before_ms: int, dry_run: bool
    ) -> bool:
        clone = await database.driver.load()
        if clone is None or all(parent.checkpoint_id != checkpoint.id for parent in clone.parents):
            return False  # whatever is there, if anything: it says nothing of this checkpoint
        if clone.initialized:
            self._finished.add(checkpoint.id)
        if not is_abandoned(clone, before_ms):
            return False
        return dry_run or await remove_abandoned(database, self._open_stored, clone)
