"""Collections that are written, read and kept by controllers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.core.area import Area
from slate_async.collections.core.holding import Hold
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.merged import MergedSource
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import SystemIds
from tests.engine import InlineOffload
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import FastClock, Lake

Rows = list[tuple[bytes, int, int]]


@dataclass
class KeptLake(Lake):
    """A collection with its controllers. All processes share one clock, which moves by sleeping."""

    clock: FastClock = field(default_factory=FastClock)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    controllers: list[Controller] = field(default_factory=list)

    def keeping(
        self, appends: Appends = Appends.DEFINITE, store: ObjectStore | None = None, **knobs: Any
    ) -> ControllerContext:
        """What one more controller works with."""
        opened = self.store if store is None else store
        runtime = Runtime(knobs.pop("clock", self.clock), self.rng, SystemIds(), InlineOffload(), InlineOffload())
        given = {"deadline_ms": 600_000, **knobs}
        holds, versions = HoldStore(opened, self.schema.kind), self.versions(opened)
        return ControllerContext(
            "orders", self.schema, appends, opened, self.pending(opened), holds, versions, runtime, **given
        )

    def reading(self, appends: Appends = Appends.DEFINITE, **knobs: Any) -> ReaderContext:
        """What a reader works with."""
        runtime = Runtime(self.clock, self.rng, SystemIds(), InlineOffload(), InlineOffload())
        stores = (self.store, self.pending(), self.holds(), self.versions(clock=self.clock))
        return ReaderContext("orders", self.schema, appends, *stores, runtime, **knobs)

    async def controller(self, appends: Appends = Appends.DEFINITE, **options: Any) -> Controller:
        """One more process that keeps the collection, by what the test calls."""
        background, executor = options.pop("background", False), options.pop("executor", None)
        opened = await open_controller(self.keeping(appends, **options), background=background, executor=executor)
        self.controllers.append(opened)
        return opened

    async def put(
        self, rows: Iterable[tuple[bytes, int, int]], lower: int, upper: int, writer: str = "a", **options: Any
    ) -> None:
        """Append, as a process of its own."""
        opened = await self.writer(options.pop("appends", Appends.DEFINITE), writer, **options)
        await opened.append(list(rows), lower=lower, upper=upper)
        await opened.close()

    async def hold(self, name: str, version: int | None, since: int, lease_ms: int | None = 60_000) -> None:
        """A hold that a reader has."""
        hold = Hold(version, frontier(since), None if version is None else lease_ms, SystemIds().token())
        stored = await self.holds().read(name)
        await self.holds().write(name, hold, None if stored is None else stored.etag)

    def holds(self) -> HoldStore:
        """The holds of all readers."""
        return HoldStore(self.store, self.schema.kind)

    async def merged(self) -> Rows:
        """What the merged area holds."""
        head = await self.head()
        rows = []
        for batch in head.batches:
            source = await MergedSource.open(self.store, self.schema, batch, InlineOffload())
            async for table in source.updates():
                rows += [(row["data"], row["_time"], row["_diff"]) for row in table.to_pylist()]
        return rows

    async def head(self) -> Area:
        """The newest version."""
        return await self.versions().load()

    async def keys(self, prefix: str = "") -> list[str]:
        """Of all objects."""
        return [info.key async for info in self.store.list(prefix)]


def at(rows: Rows, as_of: int) -> Rows:
    """The contents of ``rows`` at a time."""
    sums = Counter[bytes]()
    for data, time, diff in rows:
        if time <= as_of:
            sums[data] += diff
    return sorted((data, as_of, diff) for data, diff in sums.items() if diff)
