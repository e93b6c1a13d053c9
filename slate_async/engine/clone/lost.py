"""Giving up a database whose objects are lost, with their place: its metadata, kept elsewhere, is erased.

Nothing is left of it, not even a tombstone: a database made anew under its name gets a place, and a marker, of its own,
so neither the lost place, should it come back, nor a writer that still runs there is taken for that one's.
"""

from __future__ import annotations

import logging

from metastores.protocol import ErasesMetadata
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import ConfigError, CorruptionError, InvalidError
from slate_async.metastore_errors import translated
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.ownership import FOLDERS

logger = logging.getLogger(__name__)


async def give_up_lost(database: StoredDatabase) -> None:
    """Erase the metadata of ``database``. Called again it goes on.

    Raises `InvalidError` if there is no database, its metadata is in the same store, or anything of a database is in
    the place; `UnavailableError`."""
    if not database.ground.elsewhere or not isinstance(database.metadata, ErasesMetadata):
        raise InvalidError(
            f"{database.name} keeps its metadata with its objects: if those are lost, nothing is left to erase"
        )
    for folder in (MARKER, *FOLDERS):
        async for info in database.store.list(folder):
            raise ConfigError(
                f"{database.name} is not lost: {info.key!r} is here. Destroy it as it is; if it is not found to be the"
                " place, adopt it first",
                outcome="not_applied",
            )
    try:
        state = await database.head()
        logger.warning("%s: giving up database %s, whose objects are lost", database.name, state.database_id)
    except CorruptionError as error:  # large versions lie among the objects
        logger.warning("%s: giving up a database whose objects are lost: %s", database.name, error)
    await translated(database.metadata.erase(database.name))
