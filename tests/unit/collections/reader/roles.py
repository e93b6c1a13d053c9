"""Roles of readers' histories: writers, a controller, readers with clones, listeners that are started again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind, join
from slate_async.collections.reader.critical import CriticalHandle, open_critical
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.listen import Delta, Listener
from slate_async.objectstore.protocol import OVERWRITE, ObjectChangedError, PutMode
from slate_async.types import Buffer
from tests.unit.collections.faulty_store import FaultyStore
from tests.unit.collections.reader.conftest import (
    Keeper,
    ReadLake,
    Rows,
    at,
    expected_delta,
    numbers,
    random_rows,
    revoke,
    rows_of,
)

END = 50
SIDE = 8
"""Each number of a pair is below it."""


class HoldFaults(FaultyStore):
    """Puts of holds are lost, unanswered, take long, or land late."""

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self.faults and key.startswith(self.watch) and self.rng.random() < 0.2:
            await self._turns(700)
        return await super().put(key, data, mode=mode, metadata=metadata)

    async def _land(self, key: str, data: Any, mode: PutMode) -> None:
        with contextlib.suppress(ObjectChangedError):
            await super()._land(key, data, mode)


def truth_of(kind: TimeKind, rng: random.Random) -> Rows:
    """What all writers write."""
    rows = random_rows(rng, END)
    if kind is TimeKind.U64:
        return rows
    return [(data, (rng.randrange(SIDE), rng.randrange(SIDE)), diff) for data, _, diff in rows]


def steps(kind: TimeKind, rng: random.Random) -> Iterator[Frontier]:
    """Where the batches of one writer end, until everything is in."""
    if kind is TimeKind.U64:
        upper = 0
        while upper < END:
            upper = min(END, upper + rng.randint(1, 6))
            yield Frontier([(upper,)])
        return
    right = up = 0
    stair = Frontier([(0, 0)])
    while min(right, up) < SIDE:
        right, up = min(SIDE, right + rng.randint(0, 2)), min(SIDE, up + rng.randint(0, 2))
        stair = stair.join(Frontier([(right, 0), (rng.randint(1, SIDE), rng.randint(1, SIDE)), (0, up)]))
        yield stair
    yield Frontier([(SIDE, 0), (0, SIDE)])


@dataclass
class Stored:
    """What a listener's owner keeps through its restarts."""

    as_of: Any = None
    upper: Frontier | None = None
    rows: Rows = field(default_factory=list)


@dataclass
class History:
    """What went on, and what was wrong with it."""

    lake: ReadLake
    rng: random.Random
    truth: Rows
    appends: Appends
    wrong: list[str] = field(default_factory=list)
    snapshots: int = 0
    deltas: int = 0
    restarts: int = 0
    clones: int = 0
    lost: int = 0
    ended: bool = False

    async def turns(self, choices: Sequence[int]) -> None:
        """Let others go on."""
        for _ in range(self.rng.choice(choices)):
            await asyncio.sleep(0)

    def time_beyond(self, since: Frontier) -> Any:
        """One that may be asked about."""
        kind = self.lake.schema.kind
        most = END if kind is TimeKind.U64 else SIDE
        found = join(self.rng.choice(since.elements), tuple(self.rng.randrange(most) for _ in range(kind.coordinates)))
        return found if len(found) > 1 else found[0]

    # ---- roles

    async def write(self, name: str = "a") -> None:
        """All there is, batch by batch."""
        writer = await self.lake.writer(self.appends, name)
        lower = self.lake.minimum
        for upper in list(steps(self.lake.schema.kind, self.rng)):
            if upper == lower:
                continue
            within = [
                row for row in self.truth if lower.less_equal(numbers(row[1])) and not upper.less_equal(numbers(row[1]))
            ]
            await writer.append(within, lower=lower, upper=upper)
            lower = lower.join(upper)
            await self.turns((0, 100, 400))
        await writer.close()

    async def keep(self) -> None:
        """Rounds of a controller."""
        keeper = await Keeper.claim(self.lake)
        while not self.ended:
            await keeper.round(merge=self.rng.random() < 0.7)
            if self.rng.random() < 0.05:
                await revoke(self.lake)
            await self.turns((5, 50, 200))

    async def read(self) -> None:
        """Handles, one after the other."""
        for _ in range(4):
            with self.losing():
                async with self.opened() as reader:
                    await self.use(reader)

    async def listen(self, number: int) -> None:
        """A view that is kept from the contents at a time on, by processes that end and begin again."""
        stored, name = Stored(), f"view-{number}"
        while stored.upper is None or not self.is_whole(stored.upper):
            with self.losing():
                pin = await open_critical(self.lake.reading(self.appends, deadline_ms=10**8), name)
                if stored.upper is not None and not pin.since <= stored.upper.step_back():
                    stored = Stored()  # the hold was given up, and what was kept with it
                reader = await pin.reader()
                try:
                    await self.follow(reader, pin, stored)
                finally:
                    await reader.expire()
                await self.turns((0, 400, 1500))
        if stored.as_of is not None:
            for s in self.later_times(stored.as_of):
                if at(stored.rows, s) != at(self.truth, s):
                    self.wrong.append(f"view of {stored.as_of} at {s}: {at(stored.rows, s)}, not {at(self.truth, s)}")

    # ---- their parts

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """A lease may be lost at any time."""
        try:
            yield
        except LeaseLostError:
            self.lost += 1

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[ReadHandle]:
        """A handle, that ends."""
        lease_ms = self.rng.choice((2_000, 400_000))
        reader = await open_reader(self.lake.reading(self.appends, lease_ms=lease_ms, deadline_ms=10**8))
        try:
            yield reader
        finally:
            await reader.expire()

    async def use(self, reader: ReadHandle) -> None:
        """Read what it may be asked about; at times a clone goes on."""
        for _ in range(self.rng.randint(1, 8)):
            if self.rng.random() < 0.3 and not self.is_whole(reader.since):
                await reader.downgrade_since(self.time_beyond(reader.since))
            if self.rng.random() < 0.2:
                clone = await reader.clone()
                self.clones += 1
                await reader.expire()
                try:
                    await self.turns((0, 100, 800))
                    await self.look(clone, self.time_beyond(clone.since))
                finally:
                    await clone.expire()
                return
            await self.look(reader, self.time_beyond(reader.since))
            await self.turns((0, 5, 100, 600))

    async def look(self, reader: ReadHandle, as_of: Any) -> None:
        """One snapshot, at times cancelled or left half read."""
        with contextlib.suppress(SinceError):
            found = await self.cancelled_at_times(self.rows(reader, as_of))
            if found is None:
                return
            self.snapshots += 1
            if found != at(self.truth, as_of):
                self.wrong.append(f"at {as_of}: {found} in place of {at(self.truth, as_of)}")

    async def rows(self, reader: ReadHandle, as_of: Any) -> list[tuple[bytes, int]]:
        snapshot = await reader.snapshot(as_of)
        await self.turns((0, 0, 20, 300))
        return [row async for row in snapshot.rows()]

    async def follow(self, reader: ReadHandle, pin: CriticalHandle, stored: Stored) -> None:
        """Some deltas, each stored before more is given up."""
        as_of = None
        if stored.upper is None:
            as_of = self.time_beyond(pin.since)
            listener = reader.subscribe(as_of)
        else:
            self.restarts += 1
            listener = reader.listen(start=stored.upper)
        async with listener:
            for _ in range(self.rng.randint(1, 6)):
                if stored.upper is not None and self.is_whole(stored.upper):
                    return
                delta = await self.next_of(listener)
                self.check(delta, stored, as_of)
                stored.as_of = as_of if stored.upper is None else stored.as_of
                stored.upper = delta.upper
                stored.rows += rows_of(delta)
                if self.rng.random() < 0.5:
                    await reader.downgrade_since(delta.upper)
                if self.rng.random() < 0.7:
                    await pin.compare_and_downgrade(pin.token, str(self.deltas), listener.restartable_since())
                await self.turns((0, 20, 400))

    async def next_of(self, listener: Listener) -> Delta:
        """The next delta, however often the wait for it is cancelled."""
        while True:
            delta: Delta | None = await self.cancelled_at_times(anext(listener))
            if delta is not None:
                return delta

    def check(self, delta: Delta, stored: Stored, as_of: Any) -> None:
        """P6."""
        self.deltas += 1
        if stored.upper is not None and delta.lower != stored.upper:
            self.wrong.append(f"a delta from {delta.lower} after one up to {stored.upper}")
        expected = expected_delta(self.truth, delta, as_of)
        if stored.upper is None:
            moved = [(data, as_of, diff) for data, diff in at(self.truth, as_of)]
            expected = moved
        if rows_of(delta) != expected:
            self.wrong.append(f"{delta.lower} to {delta.upper}: {rows_of(delta)} in place of {expected}")

    async def cancelled_at_times(self, work: Any) -> Any:
        """What ``work`` gives; ``None`` if it was cancelled."""
        task = asyncio.ensure_future(work)
        if self.rng.random() < 0.2:
            await self.turns((0, 3, 10, 40, 100))
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                task.cancel()
                raise  # the history ends
            return None

    def is_whole(self, upper: Frontier) -> bool:
        """Whether nothing is beyond it that is ever written."""
        return not any(upper.less_equal(numbers(row[1])) for row in self.truth)

    def later_times(self, as_of: Any) -> Iterator[Any]:
        """At or after ``as_of``."""
        if isinstance(as_of, int):
            return iter(range(as_of, END))
        return itertools.product(range(as_of[0], SIDE), range(as_of[1], SIDE))
