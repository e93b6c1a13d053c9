"""Where an SST lies: in the database's own folder or, for a clone, in a parent's.

A clone names its parents' SSTs by their database and key; its manifest says at which path each parent is. Whose object
it is, is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.sst import likely_meta_bytes
from slate_async.storage.manifest.state import Parent, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.override import Override
from slate_async.storage.sst.reader import SstReader


def override_of(sst: SstRef) -> Override | None:
    """What ``sst`` says of all its rows, if it says anything."""
    return None if sst.global_seq is None else Override(sst.global_seq, sst.global_create_ms or 0)


class SstOpener:
    """Opens the SSTs of one database.

    store: the database's own folder
    parent_store: the folder of another database, by its path; raises `InvalidError` if that is not known
    """

    def __init__(
        self,
        store: ObjectStore,
        database_id: UUID,
        parent_store: Callable[[str], ObjectStore],
        cache: BlockCache,
        offload: Offload,
    ) -> None:
        self._store = store
        self._database_id = database_id
        self._parent_store = parent_store
        self.cache = cache
        self._offload = offload
        self._fetching = MemoryBudget(cache.decoding.capacity_bytes)
        self._parents: dict[UUID, ObjectStore] = {}

    def store_of(self, sst: SstRef, parents: Sequence[Parent]) -> ObjectStore:
        """The folder that ``sst.location`` is relative to. ``parents``: of the state that names ``sst``."""
        if sst.database_id is None or sst.database_id == self._database_id:
            return self._store
        found = self._parents.get(sst.database_id)
        if found is None:
            path = next((parent.path for parent in parents if parent.database_id == sst.database_id), None)
            if path is None:
                raise CorruptionError(
                    f"is of database {sst.database_id}, which the manifest does not name as a parent",
                    object_name=sst.location,
                )
            found = self._parents[sst.database_id] = self._parent_store(path)
        return found

    def open(self, sst: SstRef, parents: Sequence[Parent], *, must_exist: bool = True) -> SstReader:
        """A reader of an SST that the manifest names; nothing is read yet. ``must_exist`` as of `SstReader`."""
        return SstReader(
            self.store_of(sst, parents),
            sst.location,
            size=sst.size,
            database_id=sst.database_id or self._database_id,
            object_id=sst.object_id,
            cache=self.cache,
            offload=self._offload,
            must_exist=must_exist,
            meta_bytes=likely_meta_bytes(sst.size, sst.rows, len(sst.last_key)),
            override=override_of(sst),
            fetching=self._fetching,
        )

    def open_log(self, key: str, size: int, object_id: bytes, *, must_exist: bool = True) -> SstReader:
        """A reader of a log object that is an SST; the log is always the database's own."""
        return SstReader(
            self._store,
            key,
            size=size,
            database_id=self._database_id,
            object_id=object_id,
            cache=self.cache,
            offload=self._offload,
            must_exist=must_exist,
            fetching=self._fetching,
        )
