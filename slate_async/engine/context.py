"""`DatabaseContext`: where a database is and what runs it, and the clients of its metadata made from that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from metastores.protocol import MetaStoreFactory, Register
from slate_async.metastore_errors import translating
from slate_async.objectstore.costs import MonthlyRequests, by_kind, of_a_month
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.parents import ParentStores
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.stats import StoreStats
from slate_async.runtime.concurrent import run_all
from slate_async.runtime.loop_lag import LoopLag
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.format.heartbeat import Sent
from slate_async.storage.manifest.creation import kept_elsewhere
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import Ground
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener


@dataclass(frozen=True, slots=True)
class DatabaseContext:
    """Where a database is and what runs it. ``store`` is the database's own folder; ``name`` its URL for people,
    metastores and logs, without credentials; ``store_stats`` counts the requests of its client;
    ``parents`` are the folders of other databases, a clone's parents; ``loop_lag`` is the event loop's."""

    name: str
    store: ObjectStore
    store_stats: StoreStats
    metadata: MetaStoreFactory
    settings: Settings
    runtime: Runtime
    cache: BlockCache
    parents: ParentStores
    loop_lag: LoopLag

    def ssts(self, database_id: UUID) -> SstOpener:
        """What opens the SSTs of the database here."""
        return SstOpener(self.store, database_id, self.parents.folder, self.cache, self.runtime.offload)

    @property
    def ground(self) -> Ground:
        """Its folder, which a marker proves to be its own if its metadata is elsewhere."""
        return Ground(self.store, self.name, kept_elsewhere(self.metadata))

    def month_of_requests(self) -> MonthlyRequests | None:
        """A month's requests and their cost, extrapolated from all requests since the store's client was opened, by
        every database that shares it."""
        return of_a_month(self.store_stats.requests, self._counted_seconds())

    def sent(self) -> Sent:
        """The same as counts, for the writer's beat."""
        return Sent(round(self._counted_seconds() * 1000), **by_kind(self.store_stats.requests))

    def _counted_seconds(self) -> float:
        return max(0.0, self.runtime.clock.monotonic() - self.store_stats.opened)

    def driver(self, supervisor: Supervisor, *, deadline_ms: int | None = None) -> ManifestDriver:
        """Its manifest. ``deadline_ms`` of one commit; the retry deadline if unset."""
        with translating():
            metastore = self.metadata.manifest(MetaObjects(self.store), self.name)
        settings = self.settings
        return ManifestDriver(
            metastore,
            self.runtime,
            supervisor,
            name=self.name,
            full_every=settings.manifest_full_every,
            deadline_ms=settings.retry_deadline_ms if deadline_ms is None else deadline_ms,
        )

    def register(self, state: ManifestState) -> Register | None:
        """The writer's register, which an epoch-prefixed log has."""
        if state.log_protocol != "epoch_prefixed":
            return None
        with translating():
            return self.metadata.register(MetaObjects(self.store), self.name)


def metadata_closers(driver: ManifestDriver, register: Register | None) -> list[Callable[[], Awaitable[None]]]:
    """What ends the use of a database's metadata: its manifest, and the register of an epoch-prefixed log."""
    return [driver.close] if register is None else [driver.close, register.close]


async def close_metadata(driver: ManifestDriver, register: Register | None) -> None:
    """Close what `DatabaseContext.driver` and `DatabaseContext.register` made."""
    await run_all(metadata_closers(driver, register))
