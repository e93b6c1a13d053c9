"""Collections in memory and in a folder, and the writers of many processes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from metastores.factories import PutIfAbsentFactory
from metastores.names import MERGED_AREAS
from metastores.runtime import MetaRuntime
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.chain import is_dead
from slate_async.collections.core.coverage import extend
from slate_async.collections.core.edits import Absorb, Claim
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import COMPARE_SHARD, PendingName
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.merged import list_merged, read_uppers
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.collections.writer.puts import WriterContext
from slate_async.collections.writer.writer import Writer, open_writer, shard_of
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from tests.engine import InlineOffload, ManualClock, StoreInHand
from tests.support.collection_bytes import BYTES, COLLECTION, frontier


class FastClock(ManualClock):
    """Sleeping takes no time but moves the clock.

    pace: real seconds for one of this clock's, `LONGEST_S` at most. During a request that takes real time, others would
    sleep through a lease"""

    LONGEST_S = 0.02

    def __init__(self, pace: float = 0.0) -> None:
        super().__init__()
        self.now = 0.0
        self.pace = pace

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds * self.pace, self.LONGEST_S))
        self.now += seconds


class QuickClock(ManualClock):
    """Real time, ``speed`` times as fast: one for all processes of a test.

    longest_s: of its seconds that pass between two looks at it, at most. So what a busy machine stands still is no time
    in which one process had nothing from another
    is_busy: whether a request is on its way; then no time passes"""

    def __init__(self, speed: float, longest_s: float, is_busy: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self.speed = speed
        self.longest_s = longest_s
        self._is_busy = is_busy
        self._looked_s = time.monotonic()
        self._now_s = 0.0

    def monotonic(self) -> float:
        now = time.monotonic()
        if not self._is_busy():
            self._now_s += min((now - self._looked_s) * self.speed, self.longest_s)
        self._looked_s = now
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)
        self.monotonic()


async def at_once(seconds: float) -> None:
    """Metastores wait for nothing."""


def pace_of(store: StoreInHand) -> float:
    """Of clocks beside ``store``: requests to a folder take real time."""
    return 0.02 if isinstance(store.inner, LocalStore) else 0.0


def fast_runtime(pace: float = 0.0, clock: FastClock | None = None) -> Runtime:
    """A runtime without threads, whose clock moves by sleeping. ``pace``: of `FastClock`, unless ``clock`` is given."""
    chosen = FastClock(pace) if clock is None else clock
    return Runtime(chosen, random.Random(7), SystemIds(), InlineOffload(), InlineOffload())


@dataclass
class Lake:
    """One collection, as any number of processes see it. ``knobs``: of its writers."""

    store: StoreInHand
    supervisor: Supervisor
    knobs: dict[str, Any] = field(default_factory=dict)
    opened: list[Writer] = field(default_factory=list)
    schema: UpdateSchema = BYTES

    @property
    def minimum(self) -> Frontier:
        """Before all times."""
        return Frontier.minimum(self.schema.kind)

    def versions(self, store: ObjectStore | None = None, clock: FastClock | None = None) -> AreaVersions:
        """The merged area, as one more process opens it."""
        metastore = PutIfAbsentFactory(MetaRuntime(sleep=at_once)).manifest(
            MetaObjects(self.store if store is None else store), "memory://orders/1", MERGED_AREAS
        )
        return AreaVersions(
            metastore, self.schema.kind, fast_runtime(clock=clock), self.supervisor, name="orders", deadline_ms=5000
        )

    def pending(self, store: ObjectStore | None = None) -> PendingStore:
        """The pending area."""
        return PendingStore(self.store if store is None else store, self.schema, COLLECTION, InlineOffload())

    def context(self, appends: Appends, writer: str = "relay-a", store: ObjectStore | None = None) -> WriterContext:
        """What a writer works with."""
        shard = shard_of(writer, appends)
        pending, versions = self.pending(store), self.versions(store)
        opened = self.store if store is None else store
        merged = {
            "merged_files": partial(list_merged, opened, self.schema),
            "read_uppers": partial(read_uppers, opened, self.schema),
        }
        given = {"deadline_ms": 2000, **merged, **self.knobs}
        return WriterContext("orders", shard, self.schema, pending, versions, fast_runtime(), **given)

    async def writer(self, appends: Appends, writer: str = "relay-a", **options: Any) -> Writer:
        """One more process that writes."""
        opened = await open_writer(self.context(appends, writer, options.pop("store", None)), appends, **options)
        self.opened.append(opened)
        return opened

    async def pending_batches(self, shard: str) -> dict[PendingName, Bounds]:
        """All whole batches of ``shard``."""
        found = {}
        async for listed in self.pending().list(shard):
            if listed.name.part is None:
                description = await self.pending().describe(listed.name)
                assert description is not None
                found[listed.name] = Bounds(description.lower, description.upper, self.minimum)
        return found

    async def last_of(self, lower: Frontier, upper: Frontier) -> str:
        """The token of the batch that ends at ``upper``, on the chain from ``lower`` on."""
        last = ""
        while lower != upper:
            found = await self.pending().describe(PendingName(COMPARE_SHARD, lower, None))
            assert found is not None
            lower, last = found.upper, found.token
        return last

    async def absorb(self, upper: Frontier, last: str = "t" * 32, collect: str | None = None) -> Area:
        """What a controller does: take all in until ``upper``, then delete the batches of the shard ``collect``."""
        versions = self.versions()
        head = await versions.commits.commit(Claim("c" * 32))
        bounds = Bounds(head.upper, upper, frontier(0))
        name = f"batch-{head.upper}-{upper}"
        area = await versions.commits.commit(Absorb(head.epoch, MergedBatch(name, bounds, 10, 5, 1, 0, 100, 7), last))
        if collect is not None:
            found = await self.pending_batches(collect)
            await self.pending().delete([str(name) for name, span in found.items() if not upper <= span.lower])
        return area

    async def rows(self, shards: list[str]) -> tuple[Frontier, list[tuple[bytes, Any, int]]]:
        """What a reader of the pending area finds: coverage from the merged area on, and its updates (C4)."""
        pending, head = self.pending(), await self.versions().load()
        batches: dict[Bounds, PendingName] = {}
        for shard in shards:
            found = await self.pending_batches(shard)
            batches |= {
                span: name
                for name, span in found.items()
                if shard != COMPARE_SHARD or not is_dead(span.lower, head.upper)
            }
        extension = extend(head.upper, batches)
        rows: list[tuple[bytes, Any, int]] = []
        for taken in extension.taken:
            batch = await pending.read(batches[taken.batch])
            assert batch is not None
            tables = [batch.updates] if batch.updates is not None else []
            if batch.description.parts:
                tables = [part async for part in pending.parts(batches[taken.batch], batch.description)]
            for row in pa.concat_tables(tables).to_pylist():
                time = tuple(row[name] for name in self.schema.kind.columns)
                if taken.start.less_equal(time):
                    rows.append((row["data"], time if len(time) > 1 else time[0], row["_diff"]))
        return extension.coverage, sorted(rows)
