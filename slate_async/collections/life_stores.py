"""`LifeStores`: all that is used of one life of a collection, from which each role takes what it works with.

The life's folder has its own pending area, holds and versions, and its name in a metastore outside of the store is its
own, too: nothing of another life is reached through it.

Rule C28 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from metastores.names import MERGED_AREAS
from metastores.protocol import MetaStoreFactory
from slate_async.collections.codec.life import Appends, Life
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.merged import first_merged, list_merged, read_uppers
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.collections.writer.puts import WriterContext
from slate_async.collections.writer.writer import shard_of
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.pokes import Pokes
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.collections import CollectionSettings


@dataclass(frozen=True, slots=True)
class LifeStores:
    """One life of the collection ``name``, as one process uses it. `close` it when all roles have ended.

    url: of the collection, for messages and as its name in a metastore outside of the store
    store: the folder of the life
    supervisor: runs what outlives a cancelled caller: commits, deletions
    acknowledged, pokes: by its writers, for its readers
    """

    name: str
    url: str
    life: Life
    store: ObjectStore
    pending: PendingStore
    holds: HoldStore
    versions: AreaVersions
    runtime: Runtime
    settings: CollectionSettings
    supervisor: Supervisor
    acknowledged: AcknowledgedBatches = field(default_factory=AcknowledgedBatches)
    pokes: Pokes = field(default_factory=Pokes)

    @classmethod
    def of(
        cls,
        folder: ObjectStore,
        life: Life,
        *,
        name: str,
        url: str,
        metastores: MetaStoreFactory,
        runtime: Runtime,
        settings: CollectionSettings,
        supervisor: Supervisor,
        pokes: Pokes | None = None,
    ) -> LifeStores:
        """``life`` of the collection whose folder is ``folder``."""
        store = PrefixedStore(folder, str(life.number))
        kind, schema = life.schema.kind, life.schema
        metastore = metastores.manifest(MetaObjects(store), f"{url}/{life.number}", MERGED_AREAS)
        versions = AreaVersions(
            metastore,
            kind,
            runtime,
            supervisor,
            name=name,
            deadline_ms=settings.retry_deadline_ms,
            merged_file=partial(first_merged, store, schema),
        )
        return cls(
            name=name,
            url=url,
            life=life,
            store=store,
            pending=PendingStore(store, schema, life.uuid, runtime.offload),
            holds=HoldStore(store, kind),
            versions=versions,
            runtime=runtime,
            settings=settings,
            supervisor=supervisor,
            pokes=Pokes() if pokes is None else pokes,
        )

    @property
    def schema(self) -> UpdateSchema:
        """Of its updates."""
        return self.life.schema

    @property
    def appends(self) -> Appends:
        """How batches are appended."""
        return self.life.appends

    def reading(self) -> ReaderContext:
        """What its read handles work with."""
        settings = self.settings
        return ReaderContext(
            name=self.name,
            schema=self.schema,
            appends=self.appends,
            store=self.store,
            pending=self.pending,
            holds=self.holds,
            versions=self.versions,
            runtime=self.runtime,
            deadline_ms=settings.retry_deadline_ms,
            max_holds=settings.max_holds,
            lease_ms=settings.lease_ms,
            poll_interval_ms=settings.poll_interval_ms,
            shard_patience_ms=settings.shard_patience_ms,
            shard_lag=settings.shard_lag,
            pending_memory_bytes=settings.pending_memory_bytes,
            downgrade_interval_ms=settings.downgrade_interval_ms,
            acknowledged=self.acknowledged,
            pokes=self.pokes,
        )

    def writing(self, writer: str) -> WriterContext:
        """What the appends of ``writer`` work with. Raises `InvalidError` for a name that no writer may have."""
        return WriterContext(
            name=self.name,
            shard=shard_of(writer, self.appends),
            schema=self.schema,
            pending=self.pending,
            versions=self.versions,
            runtime=self.runtime,
            deadline_ms=self.settings.retry_deadline_ms,
            poll_interval_ms=self.settings.poll_interval_ms,
            max_pending=self.settings.max_pending,
            part_bytes=self.settings.part_bytes,
            merged_files=partial(list_merged, self.store, self.schema),
            read_uppers=partial(read_uppers, self.store, self.schema),
            acknowledged=self.acknowledged,
            pokes=self.pokes,
        )

    async def close(self) -> None:
        """Close its metastore. Idempotent."""
        await self.versions.close()
