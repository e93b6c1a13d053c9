"""Collections that are written, compacted and collected while they are read."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import garbage, merging, sweep
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.edits import Absorb, Claim, Publish, ReplaceMerged
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, PendingFile, Picture
from slate_async.collections.core.names import COMPARE_SHARD, MergedName
from slate_async.collections.core.times import Time, join, less_equal
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.listen import Delta
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.merged import MergedSource, MergedWriter, list_merged
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from tests.engine import InlineOffload, StoreInHand
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import FastClock, Lake

Rows = list[tuple[bytes, Any, int]]
"""Data, a number or a pair of them as time, and the difference."""


class SleepyClock(FastClock):
    """Of a process that never wakes up by itself."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


@dataclass
class ReadLake(Lake):
    """A collection with its readers."""

    clock: FastClock = field(default_factory=FastClock)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    readers: list[ReadHandle] = field(default_factory=list)

    def holds(self) -> HoldStore:
        """The holds of all readers."""
        return HoldStore(self.store, self.schema.kind)

    def reading(self, appends: Appends = Appends.DEFINITE, **options: Any) -> ReaderContext:
        """What a reader works with."""
        clock = options.pop("clock", self.clock)
        runtime = Runtime(clock, self.rng, SystemIds(), InlineOffload(), InlineOffload())
        given = {"deadline_ms": 600_000, **options}
        return ReaderContext(
            "orders", self.schema, appends, self.store, self.pending(), self.holds(), self.versions(), runtime, **given
        )

    async def reader(self, appends: Appends = Appends.DEFINITE, **options: Any) -> ReadHandle:
        """One more process that reads."""
        opened = await open_reader(self.reading(appends, **options))
        self.readers.append(opened)
        return opened

    async def put(self, rows: Iterable[tuple[bytes, Any, int]], lower: Any, upper: Any, writer: str = "a") -> None:
        """Append to a definite collection, as a process of its own."""
        opened = await self.writer(Appends.DEFINITE, writer)
        await opened.append(list(rows), lower=lower, upper=upper)
        await opened.close()


@dataclass
class Keeper:
    """A controller whose steps a test takes one by one."""

    lake: ReadLake
    versions: AreaVersions
    epoch: int
    leases: sweep.Leases = field(default_factory=sweep.Leases)

    @classmethod
    async def claim(cls, lake: ReadLake) -> Keeper:
        """Become the controller."""
        versions = lake.versions()
        await versions.load()
        area = await versions.commits.commit(Claim(SystemIds().token()))
        return cls(lake, versions, area.epoch)

    async def round(self, *, merge: bool = True) -> Area:
        """Holds, absorb, publish, merge, collect."""
        head = await self.versions.load()
        allowed = await self._swept()
        await self.versions.commits.commit(Publish(self.epoch, allowed.meet, allowed.oldest, await self._absorb(head)))
        if merge:
            await self._merge(head, allowed.meet)
        await self.collect()
        return await self.versions.load()

    async def collect(self) -> None:
        """C17, C24, C25, C27."""
        published = await self.versions.load()
        allowed = await self._swept()
        held = () if allowed.oldest is None else (allowed.oldest,)
        lowest = garbage.lowest_needed(published, held)
        files = tuple(await list_merged(self.lake.store, self.lake.schema))
        listed = Listed(lowest, files, frozenset())
        head = await self.versions.load()
        wanted = listed.at(head)
        picture = Picture.of(wanted, await self.versions.read_range(listed.lowest, head))
        if picture is None:
            return  # a hold that landed late names a version that is no more
        pending = [
            PendingFile(found.key, found.name.lower, found.name.upper)  # type: ignore[arg-type]
            async for found in self.lake.pending().list()
        ]
        dead = [*picture.dead_pending(pending), *picture.dead_merged(self.epoch)]
        await self.lake.store.delete([found.key for found in dead])
        await self.versions.collect(lowest, head)

    async def _swept(self) -> sweep.Allowed:
        """C18, C19."""
        holds, now = self.lake.holds(), self.lake.clock.monotonic() * 1000
        found = await holds.read_all(await holds.list())
        while set(names := await holds.list()) - set(found):
            found |= await holds.read_all(set(names) - set(found))
        self.leases = self.leases.noted(found, now)
        for name in self.leases.expired(found, now):
            nonce = SystemIds().token()
            with contextlib.suppress(UnavailableError):  # then it counts (C19)
                await holds.write(name, sweep.revoking(found[name].hold, nonce), found[name].etag)
        await holds.remove(sweep.to_remove(await self.versions.load(), found))
        return sweep.allowed(stored.hold for stored in found.values())

    async def _absorb(self, head: Area) -> Absorb | None:
        shards = sorted({listed.name.writer async for listed in self.lake.pending().list()})
        upper, rows = await self.lake.rows(shards)
        if upper == head.upper:
            return None
        last = await self.lake.last_of(head.upper, upper) if shards == [COMPARE_SHARD] else "t" * 32
        updates = self.lake.schema.batch(rows)
        updates = self.lake.schema.with_times(updates, head.since.advance_by(self.lake.schema.times(updates)))
        batch = await self._written([consolidate(updates, self.lake.schema)], Bounds(head.upper, upper, head.since))
        return Absorb(self.epoch, batch, last)

    async def _merge(self, published: Area, meet: Frontier | None) -> None:
        """All batches into one, compacted as far as what was published before the holds were listed allows."""
        area = await self.versions.load()
        if not area.batches:
            return
        target = sweep.compaction_target(published, meet).join(area.since)
        sources = []
        for batch in area.batches:
            source = await MergedSource.open(self.lake.store, self.lake.schema, batch, InlineOffload())
            sources.append([piece async for table in source.updates() for piece in table.to_batches()])
        bounds = spanning([batch.bounds for batch in area.batches]).compacted(target)
        output = await self._written(list(merging.merge(sources, self.lake.schema, target)), bounds)
        inputs = tuple(area.names())
        await self.versions.commits.commit(ReplaceMerged(self.epoch, inputs, output))

    async def _written(self, updates: list[pa.RecordBatch], bounds: Bounds) -> MergedBatch:
        name = MergedName(bounds.lower, bounds.upper, self.epoch, SystemIds().token())
        table = pa.Table.from_batches(updates, self.lake.schema.arrow)
        diffs = sum(table.column("_diff").to_pylist())
        if not table.num_rows:
            return MergedBatch(str(name), bounds, 0, 0, 0, 0, 0, 0)
        writer = MergedWriter(self.lake.store, self.lake.schema, name, InlineOffload())
        for piece in updates:
            await writer.add(piece)
        stored = await writer.finish()
        keys = len(set(table.column("data").to_pylist()))
        times = len(set(zip(*(table.column(name).to_pylist() for name in self.lake.schema.kind.columns), strict=True)))
        return MergedBatch(str(name), bounds, stored.rows, keys, times, diffs, stored.nbytes, stored.crc, stored.parts)


async def revoke(lake: ReadLake) -> None:
    """As a controller does whose clock is ahead."""
    for name, stored in (await lake.holds().read_all(await lake.holds().list())).items():
        with contextlib.suppress(UnavailableError):
            await lake.holds().write(name, sweep.revoking(stored.hold, "n" * 32), stored.etag)


def at(rows: Rows, as_of: Any) -> list[tuple[bytes, int]]:
    """The contents of ``rows`` at a time."""
    sums: dict[bytes, int] = {}
    for data, time, diff in rows:
        if less_equal(numbers(time), numbers(as_of)):
            sums[data] = sums.get(data, 0) + diff
    return sorted((data, diff) for data, diff in sums.items() if diff)


def numbers(time: Any) -> Time:
    """A time of rows as the core has it."""
    return time if isinstance(time, tuple) else (time,)


def summed(rows: Iterable[tuple[bytes, Any, int]]) -> Rows:
    """One row for each data and time, sorted."""
    sums: dict[tuple[bytes, Any], int] = {}
    for data, time, diff in rows:
        sums[data, time] = sums.get((data, time), 0) + diff
    return sorted((data, time, diff) for (data, time), diff in sums.items() if diff)


def rows_of(delta: Delta) -> Rows:
    """What a listener gave."""
    columns = delta.updates.column_names[1:-1]
    return [
        (row["data"], tuple(row[name] for name in columns) if len(columns) > 1 else row[columns[0]], row["_diff"])
        for row in delta.updates.to_pylist()
    ]


def expected_delta(truth: Rows, delta: Delta, as_of: Any = None) -> Rows:
    """P6: what ``delta`` has to hold, of a listener from ``as_of``, or one that was started again."""
    given = []
    for data, time, diff in truth:
        written = numbers(time)
        if delta.lower.less_equal(written) and not delta.upper.less_equal(written):
            shown = written if as_of is None else join(written, numbers(as_of))
            given.append((data, shown if len(shown) > 1 else shown[0], diff))
    return summed(given)


def random_rows(rng: random.Random, end: int) -> Rows:
    """What all writers of a definite collection write: data that come, go and change."""
    rows: Rows = []
    for time in range(end):
        for _ in range(rng.choice((0, 1, 1, 3))):
            rows.append((b"%d" % rng.randrange(8), time, rng.choice((1, 1, -1, 2))))
    return rows


async def read(reader: ReadHandle, as_of: Any, **options: Any) -> list[tuple[bytes, int]]:
    """The contents that a snapshot shows."""
    async with await reader.snapshot(as_of, **options) as snapshot:
        return [row async for row in snapshot.rows()]


@pytest.fixture
def watch() -> str:
    """Puts of holds."""
    return "readers/"


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[ReadLake]:
    """A collection of bytes in ``store``; its readers are expired at the end."""
    supervisor = Supervisor("test", lambda cause: None)
    made = ReadLake(store, supervisor)
    yield made
    store.release()
    store.fail_before = store.fail_after = lambda key: None
    for reader in made.readers:
        await reader.expire()
    for writer in made.opened:
        await writer.close()
    await supervisor.close()


__all__ = [
    "Keeper",
    "ReadLake",
    "SleepyClock",
    "at",
    "expected_delta",
    "frontier",
    "numbers",
    "random_rows",
    "read",
    "revoke",
    "rows_of",
    "summed",
]
