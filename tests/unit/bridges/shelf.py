"""A collection as any number of processes see it, and what it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa

from metastores.factories import PutIfAbsentFactory
from metastores.runtime import MetaRuntime
from slate_async.collections.codec.life import Appends, Life, LifeState
from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.critical import CriticalHandle, open_critical
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.collections import CollectionSettings
from tests.engine import memory_store, runtime

Row = tuple[Any, ...]


@dataclass
class Shelf:
    """One collection. ``store``: as this process sees it."""

    data: pa.Schema
    store: ObjectStore = field(default_factory=memory_store)
    appends: Appends = Appends.COMPARE
    kind: TimeKind = TimeKind.U64
    name: str = "orders"

    async def info(self) -> Any:
        return SimpleNamespace(name=self.name, data=self.data, appends=self.appends.value, time=self.kind.value, life=1)

    def writer(self, name: str = "main") -> AbstractAsyncContextManager[Writer]:
        return self._writer(name)

    def reader(self, note: str = "") -> AbstractAsyncContextManager[ReadHandle]:
        return self._reader(note)

    def controller(self) -> AbstractAsyncContextManager[Controller]:
        """One that works only when it is asked to."""
        return self._controller()

    @asynccontextmanager
    async def _controller(self) -> AsyncIterator[Controller]:
        async with self._life() as life, await open_controller(controlling(life), background=False) as controller:
            yield controller

    async def critical(self, name: str, note: str = "") -> CriticalHandle:
        """Its stores are never closed, which costs nothing in memory."""
        return await open_critical(self._stores(Supervisor("test", lambda cause: None)).reading(), name, note)

    @asynccontextmanager
    async def _writer(self, name: str) -> AsyncIterator[Writer]:
        async with self._life() as life, await open_writer(life.writing(name), self.appends) as writer:
            yield writer

    @asynccontextmanager
    async def _reader(self, note: str) -> AsyncIterator[ReadHandle]:
        async with self._life() as life, await open_reader(life.reading(), note) as reader:
            yield reader

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[LifeStores]:
        supervisor = Supervisor("test", lambda cause: None)
        made = self._stores(supervisor)
        try:
            yield made
        finally:
            await made.close()
            await supervisor.close()

    def _stores(self, supervisor: Supervisor) -> LifeStores:
        life, run = Life(UUID(int=7), 1, LifeState.OPEN, UpdateSchema(self.kind, self.data), self.appends), runtime()
        return LifeStores.of(
            self.store,
            life,
            name=self.name,
            url="memory://orders",
            metastores=PutIfAbsentFactory(MetaRuntime(sleep=run.clock.sleep)),
            runtime=run,
            settings=CollectionSettings(retry_deadline_ms=2_000, poll_interval_ms=10),
            supervisor=supervisor,
        )

    async def upper(self) -> int:
        """Where it ends."""
        async with self.writer() as writer:
            return writer.upper.elements[0][0]

    async def at(self, as_of: int) -> dict[Row, int]:
        """Its rows at a time, and how often each is there."""
        async with self.reader() as reader, await reader.snapshot(as_of) as snapshot:
            return {row: diff async for row, diff in snapshot.rows()}

    async def compacted(self, since: int) -> None:
        """As far as the holds that stand allow: what a controller does once a reader has given up all before
        ``since``, which may be beyond the upper."""
        async with self.reader() as reader, self.controller() as controller:
            await reader.downgrade_since(since)
            for _ in range(6):
                await controller.round()

    async def values(self, as_of: int) -> dict[bytes, bytes]:
        """Of an ``upsert`` collection, every key of which is there once."""
        found = await self.at(as_of)
        assert set(found.values()) <= {1}
        values = {key: value for key, value, _ in found}
        assert len(values) == len(found)
        return values
