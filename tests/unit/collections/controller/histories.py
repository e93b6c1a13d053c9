"""Histories over a store that loses requests and answers, and lets puts and deletes land late and twice: two
controllers, mergers beside them, writers of both kinds, readers, all of which are cancelled, and die.

What they answer must be what was written; at the end the store holds what is reachable, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.controller import Controller
from slate_async.collections.core.errors import LeaseLostError, SinceError, UpperMismatchError
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.errors import ClosedError, CorruptionError, FencedError, InternalError, UnavailableError
from slate_async.objectstore.protocol import ObjectChangedError, PutMode
from slate_async.runtime.supervisor import Supervisor
from tests.engine import memory_store
from tests.unit.collections.faulty_store import FaultyStore
from tests.unit.collections.kept import KeptLake, Rows, at
from tests.unit.collections.lake import FastClock

END = 60
DEADLINE_MS = 10**9


class LateStore(FaultyStore):
    """Deletes land again later as well, and conditional puts that are late may be too late."""

    async def delete(self, keys: Sequence[str]) -> None:
        await self._turns(4)
        await self.inner.delete(keys)
        if self.faults and self.rng.random() < 0.2:
            self._later(self.inner.delete(list(keys)))

    async def _land(self, key: str, data: Any, mode: PutMode) -> None:
        with contextlib.suppress(ObjectChangedError):
            await super()._land(key, data, mode)

    def _later(self, work: Any) -> None:
        async def land() -> None:
            await self._turns(self.rng.choice((10, 100, 800)))
            await work

        task = asyncio.get_running_loop().create_task(land())
        self.late.add(task)
        task.add_done_callback(self.late.discard)


@dataclass
class Tally:
    """What went on."""

    snapshots: int = 0
    rounds: int = 0
    merges: int = 0
    absorbed: int = 0
    fenced: int = 0
    lost: int = 0
    revoked: int = 0


@dataclass
class History:
    """One history. ``wrong``: what was answered wrongly, or left behind"""

    lake: KeptLake
    rng: random.Random
    appends: Appends
    truth: Rows
    wrong: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    ended: bool = False

    async def turns(self, choices: Sequence[int]) -> None:
        """Let others go on."""
        for _ in range(self.rng.choice(choices)):
            await asyncio.sleep(0)

    async def at_times_cancelled(self, work: Awaitable[Any]) -> Any:
        """What ``work`` gives, or ``None`` if it was cancelled."""
        task = asyncio.ensure_future(work)
        try:
            if self.rng.random() < 0.15:
                await self.turns((0, 3, 10, 40, 100))
                task.cancel()
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            return None
        finally:
            task.cancel()

    # ---- writers

    async def write(self, name: str) -> None:
        """All there is, by a process that goes on from where the collection ends."""
        while True:
            writer = await self.lake.writer(self.appends, name)
            try:
                while not writer.upper.is_done and (lower := writer.upper.elements[0][0]) < END:
                    upper = min(END, lower + self.rng.randint(1, 5))
                    rows = [row for row in self.truth if lower <= row[1] < upper]
                    await self.at_times_cancelled(writer.append(rows, lower=lower, upper=upper))
                    await self.turns((0, 100, 400))
                return
            except (UpperMismatchError, UnavailableError):
                await self.turns((10, 100))
            finally:
                await writer.close()

    # ---- controllers

    async def keep(self) -> None:
        """Controllers, one after the other."""
        while not self.ended:
            clock = FastClock()
            knobs: Any = {"deadline_ms": DEADLINE_MS, "gc_max_deletes": 20, "clock": clock}
            controller = await self.lake.controller(self.appends, **knobs)
            try:
                async with asyncio.TaskGroup() as working:
                    working.create_task(self.rounds(controller, clock))
                    working.create_task(self.merges(controller))
            except* FencedError:
                self.tally.fenced += 1
            finally:
                await controller.close()
                rounds, merges = controller.counts
                self.tally.revoked += rounds.revoked
                self.tally.merges += merges.merges
                self.tally.absorbed += rounds.batches
            await self.turns((300, 1_000, 4_000))

    async def rounds(self, controller: Controller, clock: FastClock) -> None:
        """Some rounds, at times by a clock that runs ahead: short leases end after some rounds."""
        ahead = self.rng.choice((0, 0, 0, 30))
        for _ in range(self.rng.choice((10, 50, 100))):
            if self.ended:
                return
            round = partial(short_round, controller) if self.rng.random() < 0.3 else controller.round
            await self.at_times_cancelled(self.tried(round))
            self.tally.rounds += 1
            clock.now += ahead
            await self.turns((0, 5, 50, 200))

    async def merges(self, controller: Controller) -> None:
        """Merges beside them."""
        for _ in range(self.rng.choice((10, 50, 100))):
            if self.ended:
                return
            merge = partial(controller.merge, everything=self.rng.random() < 0.7)
            await self.at_times_cancelled(self.tried(merge))
            await self.turns((0, 5, 50, 200))

    async def tried(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """``work``; ``None`` if the store did not answer."""
        try:
            return await work()
        except UnavailableError:
            return None

    # ---- readers

    async def read(self) -> None:
        """Handles, one after the other."""
        for _ in range(4):
            try:
                await self.use()
            except LeaseLostError:
                self.tally.lost += 1
            except UnavailableError:
                continue

    async def use(self) -> None:
        """Open a handle, and read what it may ask about."""
        lease_ms = self.rng.choice((60_000, 400_000_000))
        async with contextlib.AsyncExitStack() as stack:
            reader = await open_reader(self.lake.reading(self.appends, lease_ms=lease_ms, deadline_ms=DEADLINE_MS))
            stack.push_async_callback(reader.expire)
            for _ in range(self.rng.randint(1, 8)):
                since = reader.since.elements[0][0]
                if self.rng.random() < 0.4:
                    await reader.downgrade_since(self.rng.randint(since, min(END - 1, since + 15)))
                since = reader.since.elements[0][0]
                await self.at_times_cancelled(self.look(reader, self.rng.randint(since, min(END - 1, since + 9))))
                await self.turns((0, 5, 100, 600))

    async def look(self, reader: ReadHandle, as_of: int) -> None:
        """One snapshot."""
        try:
            snapshot = await reader.snapshot(as_of)
            await self.turns((0, 0, 20, 300))
            found = [(data, as_of, diff) async for data, diff in snapshot.rows()]
        except SinceError:
            return
        self.tally.snapshots += 1
        if sorted(found) != at(self.truth, as_of):
            self.wrong.append(f"at {as_of}: {sorted(found)} in place of {at(self.truth, as_of)}")

    # ---- the end

    async def rest(self) -> None:
        """All that is late lands; then a last controller brings the collection to rest."""
        store = self.lake.store
        assert isinstance(store, LateStore)
        store.faults = False
        while store.late:
            await asyncio.wait(store.late)
        for name in await self.lake.holds().list():
            await self.lake.holds().remove([name])
        async with await self.lake.controller(self.appends) as controller:
            await controller.settle()
        head = await self.lake.head()
        if head.upper.elements != ((END,),):
            self.wrong.append(f"the collection ends at {head.upper}")
        since = max(head.since.elements[0][0], END - 1)
        if at(await self.lake.merged(), since) != at(self.truth, since):
            self.wrong.append(f"in the end: {at(await self.lake.merged(), since)}")
        left = set(await self.lake.keys()) - set(head.names())
        left = {
            key for key in left if not key.startswith(f"merged_areas/v{head.version:020}") and "boundary" not in key
        }
        if left or len(head.batches) > 1:
            self.wrong.append(f"left at rest: {sorted(left)}, {len(head.batches)} batches")


async def short_round(controller: Controller) -> None:
    """Take in what is pending, without a look at the holds, as the tasks of a controller do."""
    rounds, head = controller._rounds, controller._context.versions.head
    assert head is not None

    async def absorb() -> None:
        async with controller._turn:
            await rounds.absorb(await rounds.pending(head.upper))

    await controller._run("a short round", absorb())


async def play(seed: int, appends: Appends) -> History:
    """A history to its end."""
    rng = random.Random(seed)
    store = LateStore(memory_store(), watch="")
    store.rng, store.late = rng, set()
    supervisor = Supervisor("test", lambda cause: None)
    lake = KeptLake(store, supervisor, rng=rng)
    history = History(lake, rng, appends, random_rows(rng))
    keeping = [asyncio.ensure_future(history.keep()) for _ in range(2)]
    writers = ("a", "b") if appends is Appends.DEFINITE else ("w",)
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as roles:
            for role in (*map(history.write, writers), *(history.read() for _ in range(3))):
                roles.create_task(role)
    except* (CorruptionError, InternalError, ClosedError) as errors:  # P8
        history.wrong += map(str, errors.exceptions)
    history.ended = True
    try:
        for failed in await asyncio.gather(*keeping, return_exceptions=True):
            if isinstance(failed, BaseExceptionGroup):
                history.wrong += map(repr, failed.exceptions)
            elif failed is not None:
                history.wrong.append(repr(failed))
        if not history.wrong:
            await history.rest()
    finally:
        for task in store.late:
            task.cancel()
        for writer in lake.opened:
            await writer.close()
        for controller in lake.controllers:
            await controller.close()
        await supervisor.close()
    return history


def random_rows(rng: random.Random) -> Rows:
    """What is written: data that come, go and change."""
    rows: Rows = []
    for time in range(END):
        for _ in range(rng.choice((0, 1, 1, 3))):
            rows.append((b"%d" % rng.randrange(8), time, rng.choice((1, 1, -1, 2))))
    return rows
