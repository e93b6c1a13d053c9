"""Collections that are written, compacted and collected while they are read."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.core import sweep
from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import COMPARE_SHARD
from slate_async.collections.core.times import Time, join, less_equal
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.listen import Delta, Listener
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from tests.engine import InlineOffload, StoreInHand, settle
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import FastClock, Lake, pace_of

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
    keepers: list[Controller] = field(default_factory=list)

    def holds(self) -> HoldStore:
        """The holds of all readers."""
        return HoldStore(self.store, self.schema.kind)

    def keeping(self, appends: Appends) -> ControllerContext:
        """What a controller works with."""
        runtime = Runtime(self.clock, self.rng, SystemIds(), InlineOffload(), InlineOffload())
        stores = (self.store, self.pending(), self.holds(), self.versions())
        return ControllerContext("orders", self.schema, appends, *stores, runtime, deadline_ms=600_000)

    def reading(self, appends: Appends = Appends.DEFINITE, **options: Any) -> ReaderContext:
        """What a reader works with."""
        clock = options.pop("clock", self.clock)
        runtime = Runtime(clock, self.rng, SystemIds(), InlineOffload(), InlineOffload())
        given = {"deadline_ms": 600_000, **options}
        stores = (self.store, self.pending(), self.holds(), self.versions(clock=clock))
        return ReaderContext("orders", self.schema, appends, *stores, runtime, **given)

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
    """The controller of the product, which also merges whatever there is, compacted as far as it may be."""

    lake: ReadLake
    versions: AreaVersions
    controller: Controller | None = None
    appends: Appends = Appends.DEFINITE

    @classmethod
    async def claim(cls, lake: ReadLake) -> Keeper:
        """Become the controller once there is anything to do."""
        versions = lake.versions()
        await versions.load()
        return cls(lake, versions)

    async def round(self, *, merge: bool = True) -> Area:
        """Holds, absorb, publish, merge, collect; the head after it."""
        controller = await self._controller()
        await controller.round()
        area, target = await self.versions.load(), controller._rounds.target
        if merge and area.batches and target is not None:
            await controller._mergers.merge(area.batches, target)
            await controller.round()
        return await self.versions.load()

    async def collect(self) -> None:
        """A round without merges."""
        await (await self._controller()).round()

    async def _controller(self) -> Controller:
        """For the kind of appends that are found: one that was opened before anything was there is not used again."""
        shards = {listed.name.writer async for listed in self.lake.pending().list()}
        appends = Appends.COMPARE if shards == {COMPARE_SHARD} else Appends.DEFINITE
        if self.controller is None or (shards and appends is not self.appends):
            self.controller = await open_controller(self.lake.keeping(appends), background=False)
            self.appends = appends
            self.lake.keepers.append(self.controller)
        return self.controller


async def revoke(lake: ReadLake) -> None:
    """As a controller does whose clock is ahead. A hold that is written meanwhile is revoked again."""
    standing = await lake.holds().list()
    while found := await lake.holds().read_all(standing):
        standing = [name for name, stored in found.items() if not stored.hold.revoked]
        for name in standing:
            with contextlib.suppress(UnavailableError):
                await lake.holds().write(name, sweep.revoking(found[name].hold, "n" * 32), found[name].etag)


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


async def take(listener: Listener, upper: int | Frontier) -> list[Delta]:
    """Deltas until one ends at ``upper``; they are contiguous, and each has all of its times."""
    end, deltas = upper if isinstance(upper, Frontier) else frontier(upper), list[Delta]()
    while listener.upper != end:
        before = listener.upper
        deltas.append(await asyncio.wait_for(anext(listener), 30))
        assert deltas[-1].lower == (deltas[-2].upper if len(deltas) > 1 else deltas[-1].lower)
        assert before <= deltas[-1].upper == listener.upper
        assert deltas[-1].lower < deltas[-1].upper
    return deltas


async def move_on(lake: ReadLake, reader: ReadHandle) -> None:
    """Let the reader see the head."""
    await lake.clock.sleep(1)
    await settle(60)
    await reader._refresh()


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
    made = ReadLake(store, supervisor, clock=FastClock(pace_of(store)))
    yield made
    store.release()
    store.fail_before = store.fail_after = lambda key: None
    for reader in made.readers:
        await reader.expire()
    for controller in made.keepers:
        await controller.close()
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
    "move_on",
    "numbers",
    "random_rows",
    "read",
    "revoke",
    "rows_of",
    "summed",
    "take",
]
