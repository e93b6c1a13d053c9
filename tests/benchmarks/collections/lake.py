"""One collection of bytes over any store, and the roles that work on it: what the families of collections measure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from metastores.factories import PutIfAbsentFactory
from metastores.runtime import MetaRuntime
from slate_async.collections.codec.life import Appends, Life, LifeState
from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Clock
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings.collections import CollectionSettings
from tests.benchmarks.collections.columns import SCHEMA

LIFE = Life(UUID(int=1), 1, LifeState.OPEN, SCHEMA, Appends.DEFINITE)
CHAIN = Life(UUID(int=2), 2, LifeState.OPEN, SCHEMA, Appends.COMPARE)


@dataclass(frozen=True)
class Bench:
    """A collection as one process has it; what is opened closes with it."""

    stores: LifeStores
    opened: AsyncExitStack

    async def writer(self, name: str = "bench") -> Writer:
        parallelism = self.stores.settings.flush_parallelism
        return await self.opened.enter_async_context(
            await open_writer(self.stores.writing(name), self.stores.appends, flush_parallelism=parallelism)
        )

    async def reader(self) -> ReadHandle:
        return await self.opened.enter_async_context(await open_reader(self.stores.reading()))

    async def controller(self, *, background: bool = False) -> Controller:
        """One that works by itself, or does what is called."""
        return await self.opened.enter_async_context(
            await open_controller(controlling(self.stores), background=background)
        )


@asynccontextmanager
async def bench(
    store: ObjectStore,
    appends: Appends = Appends.DEFINITE,
    settings: CollectionSettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Bench]:
    """The collection that ``store`` holds, as one more process has it. The store stays open."""
    runtime = system_runtime()
    if clock is not None:
        runtime = replace(runtime, clock=clock)
    supervisor = Supervisor("bench", lambda cause: None)
    stores = LifeStores.of(
        store,
        CHAIN if appends is Appends.COMPARE else LIFE,
        name="bench",
        url="memory://bench",
        metastores=PutIfAbsentFactory(MetaRuntime()),
        runtime=runtime,
        settings=CollectionSettings() if settings is None else settings,
        supervisor=supervisor,
    )
    try:
        async with AsyncExitStack() as opened:
            yield Bench(stores, opened)
    finally:
        await stores.close()
        await supervisor.close()
        end_threads(runtime)
