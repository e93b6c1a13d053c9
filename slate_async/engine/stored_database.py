"""`StoredDatabase`: a database as it lies in the store, no role claimed: folder, manifest, writer's register.

What clones, detaches, destroys, mirrors, inspects or verifies works on it. Such work may concern two databases at once,
a clone and its parent, so it takes an `OpenStored`, which opens others by their path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from metastores.protocol import Committed, MetaStoreFactory, Register
from slate_async.engine.context import DatabaseContext
from slate_async.errors import UnavailableError
from slate_async.metastore_errors import translated, translating
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.log import register as codec
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.creation import kept_elsewhere
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import Ground
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.ownership import existing_head, head_and_marker, proved_head
from slate_async.storage.manifest.state import LogProtocol, ManifestState


@dataclass(frozen=True, slots=True)
class StoredDatabase:
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
        """The newest state of the database, whose place this is. Raises as `storage.manifest.ownership.proved_head`
        does."""
        return await proved_head(self.ground, self.driver)

    async def settled_head(self) -> ManifestState:
        """As `proved_head`, for callers that put objects there: a place that is not marked yet is marked."""
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


OpenStored: TypeAlias = Callable[[str], AbstractAsyncContextManager[StoredDatabase]]
"""Opens the database at a path. Nothing is sent before its first use."""


@asynccontextmanager
async def open_stored(
    name: str,
    store: ObjectStore,
    metadata: MetaStoreFactory,
    supervisor: Supervisor,
    runtime: Runtime,
    settings: Settings,
) -> AsyncIterator[StoredDatabase]:
    """The database ``name`` in ``store``. ``metadata`` is of the kind its metadata is kept in."""
    with translating():
        metastore = metadata.manifest(MetaObjects(store), name)
    driver = ManifestDriver(
        metastore, runtime, supervisor, name=name, full_every=1, deadline_ms=settings.takeover_deadline_ms
    )
    try:
        yield StoredDatabase(name, store, metadata, driver, runtime, settings)
    finally:
        await run_to_completion(driver.close())


def stored_opener(context: DatabaseContext, supervisor: Supervisor) -> OpenStored:
    """Opens the database of ``context``, or another one at its path, whose metadata is kept in the same metastore."""

    def open_at(path: str) -> AbstractAsyncContextManager[StoredDatabase]:
        own = path == context.name
        name = path if own else context.parents.name_of(path)
        store = context.store if own else context.parents.folder(path)
        return open_stored(name, store, context.metadata, supervisor, context.runtime, context.settings)

    return open_at


# ---- the writer's register of a database that never had a writer


async def ensure_register(
    database: StoredDatabase, state: ManifestState, ranges: tuple[tuple[int, int], ...] = ()
) -> None:
    """Unless there is one: a register that says the log ends at ``state.log_last_seen``, its positions owned as
    ``ranges`` (``(epoch, first position)``, ascending) say. Its own epoch, ``state.writer_epoch``, owns none."""
    value = codec.encode(WriterRegister(state.writer_epoch, "", _closed(ranges, state), state.log_last_seen))
    async with database.register(state.log_protocol) as register:
        if register is None:
            return
        backoff = Backoff(database.runtime, database.settings.retry_deadline_ms, "making the writer's register")
        while True:
            cause: UnavailableError | None = None
            try:
                if await translated(register.read()) is not None:
                    return
                if isinstance(await translated(register.compare_and_set(None, value)), Committed):
                    return
            except UnavailableError as error:
                cause = error
            await backoff.wait(cause)


def _closed(ranges: tuple[tuple[int, int], ...], state: ManifestState) -> tuple[EpochRange, ...]:
    """The ranges that hold a position of the log, each with its end."""
    last = state.log_last_seen
    ends = [*(min(start - 1, last) for _, start in ranges[1:]), last]
    return tuple(
        EpochRange(epoch, start, end)
        for (epoch, start), end in zip(ranges, ends, strict=False)  # of no ranges there is one end too many
        if end >= max(start, state.log_start)
    )
