"""`HasLineage`: how a database gets descendants and comes to its end, as its administration offers it."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from uuid import UUID

from slate_async.arguments import check_clone_arguments, own_path
from slate_async.engine.clone.adopt import adopt
from slate_async.engine.clone.destroy import destroy
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.clone.info import CloneInfo
from slate_async.engine.clone.lost import give_up_lost
from slate_async.engine.clone.make import make_clone
from slate_async.engine.stored_database import OpenStored
from slate_async.errors import InvalidError


class HasLineage:
    """See the module docstring. Each call may be cancelled, or die, anywhere: made again, it goes on."""

    def __init__(self, path: str, open_stored: OpenStored) -> None:
        self._path = path
        self._open_stored = open_stored

    @abstractmethod
    def _check(self) -> None:
        """Raise if the owner can no longer answer."""

    async def clone(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint: UUID | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CloneInfo:
        """Make the database at ``path`` a clone of this one: it shares the SSTs, copies the log, and goes its own way.

        path: an empty place in the same kind of store, perhaps another bucket, reached as this database is. Its
        metadata is kept in the same metastore
        checkpoint: id or name of the checkpoint to clone; ``None`` clones the database as it is now
        properties: kept with the clone; ``None`` takes this database's

        A clone that was begun and not finished goes on; a finished one is left alone. Raises `InvalidError` for a
        place that is taken or was begun otherwise, and for a checkpoint that is gone; `CorruptionError` for damage in
        the log; `UnavailableError`."""
        self._check()
        place = own_path(path, "clone")
        check_clone_arguments(checkpoint, properties)
        async with self._open_stored(self._path) as parent, self._open_stored(place) as target:
            state = await make_clone(parent, target, self._open_stored, checkpoint=checkpoint, properties=properties)
        return CloneInfo.of(target.name, parent.name, state)

    async def destroy(self, *, soft: bool = False, lost: bool = False) -> None:
        """Destroy the database: its writer is fenced, nobody opens it any more, and all of it is deleted but a small
        tombstone. Databases nested below its path, and files that are not a database's, stay.

        soft: delete nothing yet. A garbage collector does, after `Settings.gc_destroy_grace_ms`, once no checkpoint
        holds it
        lost: its objects are gone, with their place, and only its metadata is left, which is kept elsewhere: erase
        that. Stop its writer first; it ends at its next commit. Refused where anything of a database is

        Raises `InvalidError` if there is no database, or (unless ``soft``) a checkpoint that is alive: a user's, a
        reader's or a clone's; `UnavailableError`, after which it goes on when called again."""
        self._check()
        if soft and lost:
            raise InvalidError("destroy takes soft or lost, not both")
        async with self._open_stored(self._path) as database:
            await (give_up_lost(database) if lost else destroy(database, self._open_stored, soft=soft))

    async def adopt_place(self) -> None:
        """Say that the database is here: for one whose metadata is kept elsewhere and whose objects were moved, or that
        was made before places had markers. Its place gets a new marker; any other place, and whoever writes there, is
        the database's no more. A place that is the database's already is left as it is.

        Two calls for one place at once come out right. Of two for two places one raises `ConflictError`.

        Raises `InvalidError` if there is no database, its metadata is in the same store, nothing of it is here, or the
        place is another database's; `CorruptionError` if an object that it needs is not here, though others are;
        `UnavailableError`, after which it goes on when called again."""
        self._check()
        async with self._open_stored(self._path) as database:
            await adopt(database)

    async def detach(self) -> bool:
        """Give the parents' checkpoints back if this is a clone and nothing of it names their SSTs any more, as garbage
        collectors do. Whether it has no parents now."""
        self._check()
        async with self._open_stored(self._path) as database:
            return await detach_if_free(database, self._open_stored)
