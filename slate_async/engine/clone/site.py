"""A database as whoever clones, detaches or destroys it sees it: its folder, its manifest, its writer's register.

Such work concerns two databases at once, a clone and its parent, so it takes a way to open others by their path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from metastores.protocol import MetaStoreFactory, Register
from slate_async.metastore_errors import translating
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.manifest.creation import kept_elsewhere
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import Ground
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.ownership import existing_head, head_and_marker, proved_head
from slate_async.storage.manifest.state import LogProtocol, ManifestState


@dataclass(frozen=True, slots=True)
class Site:
    """See the module docstring. ``name``: its URL, without credentials. ``driver`` commits full versions only: what a
    removed database leaves must stand without a base."""

    name: str
    store: ObjectStore
    metadata: MetaStoreFactory
    driver: ManifestDriver
    runtime: Runtime
    settings: Settings

    async def head(self) -> ManifestState:
        """The newest state. Raises `InvalidError` if there is no database."""
        return await existing_head(self.ground, self.driver)

    @property
    def ground(self) -> Ground:
        """Its folder, which a marker proves to be its own if its metadata is elsewhere."""
        return Ground(self.store, self.name, kept_elsewhere(self.metadata))

    async def proved_head(self) -> ManifestState:
        """The newest state of the database, whose place this is. Raises as `storage.manifest.belonging.proved_head`
        does."""
        return await proved_head(self.ground, self.driver)

    async def settled_head(self) -> ManifestState:
        """As `proved_head`, for who puts something there: a place that is not marked yet is marked."""
        head, found = await head_and_marker(self.ground, self.driver)
        if head is None:
            head = await self.head()
        return await settle_place(self.ground, self.driver, head, found, self.runtime.ids.uuid)

    @asynccontextmanager
    async def register(self, log_protocol: LogProtocol) -> AsyncIterator[Register | None]:
        """The writer's register, if a log of that protocol has one."""
        if log_protocol == "contiguous":
            yield None
            return
        with translating():
            register = self.metadata.register(MetaObjects(self.store), self.name)
        try:
            yield register
        finally:
            await run_to_completion(register.close())


OpenSite: TypeAlias = Callable[[str], AbstractAsyncContextManager[Site]]
"""Opens the database at a path. Nothing is sent before its first use."""


@asynccontextmanager
async def open_site(
    name: str,
    store: ObjectStore,
    metadata: MetaStoreFactory,
    supervisor: Supervisor,
    runtime: Runtime,
    settings: Settings,
) -> AsyncIterator[Site]:
    """The site ``name`` in ``store``. ``metadata`` is of the kind its metadata is kept in."""
    with translating():
        metastore = metadata.manifest(MetaObjects(store), name)
    driver = ManifestDriver(metastore, runtime, supervisor, full_every=1, deadline_ms=settings.takeover_deadline_ms)
    try:
        yield Site(name, store, metadata, driver, runtime, settings)
    finally:
        await run_to_completion(driver.close())
