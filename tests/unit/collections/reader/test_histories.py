"""P5 and P8 over stores that lose requests and answers of holds and let them land late: readers that open, read, wait,
give times up, are cancelled and die, writers, and a controller that absorbs, compacts, collects and revokes meanwhile.

The switches show which rules the answers rest on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectChangedError, PutMode
from slate_async.runtime.supervisor import Supervisor
from tests.engine import memory_store
from tests.unit.collections.faulty_store import FaultyStore
from tests.unit.collections.reader.conftest import Keeper, ReadLake, Rows, at, random_rows, revoke

SEEDS = 8
END = 50


class HoldFaults(FaultyStore):
    """Puts of holds are lost, unanswered, or land late."""

    async def _land(self, key: str, data: Any, mode: PutMode) -> None:
        with contextlib.suppress(ObjectChangedError):
            await super()._land(key, data, mode)


@dataclass
class History:
    """What went on, and what was wrong with it."""

    lake: ReadLake
    rng: random.Random
    truth: Rows
    appends: Appends
    wrong: list[str] = field(default_factory=list)
    snapshots: int = 0
    lost: int = 0
    ended: bool = False

    async def turns(self, choices: Sequence[int]) -> None:
        """Let others go on."""
        for _ in range(self.rng.choice(choices)):
            await asyncio.sleep(0)

    async def write(self) -> None:
        """All there is, batch by batch."""
        writer = await self.lake.writer(self.appends, "a")
        lower = 0
        while lower < END:
            upper = min(END, lower + self.rng.randint(1, 6))
            await writer.append([row for row in self.truth if lower <= row[1] < upper], lower=lower, upper=upper)
            lower = upper
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
            context = self.lake.reading(self.appends, lease_ms=self.rng.choice((2_000, 400_000)), deadline_ms=10**8)
            try:
                await self.use(context)
            except LeaseLostError:
                self.lost += 1

    async def use(self, context: ReaderContext) -> None:
        """Open a handle, and read what it may ask about."""
        async with contextlib.AsyncExitStack() as stack:
            reader = await open_reader(context)
            stack.push_async_callback(reader.expire)
            for _ in range(self.rng.randint(1, 8)):
                since = reader.since.elements[0][0]
                if self.rng.random() < 0.3:
                    await reader.downgrade_since(self.rng.randint(since, min(END - 1, since + 15)))
                await self.look(reader, self.rng.randint(reader.since.elements[0][0], END - 1))
                await self.turns((0, 5, 100, 600))

    async def look(self, reader: ReadHandle, as_of: int) -> None:
        """One snapshot, at times cancelled or left half read."""
        task = asyncio.ensure_future(self.rows(reader, as_of))
        if self.rng.random() < 0.2:
            await self.turns((0, 3, 10, 40, 100))
            task.cancel()
        try:
            found = await task
        except asyncio.CancelledError:
            if (reader_task := asyncio.current_task()) is not None and reader_task.cancelling():
                raise  # the history ends
            return
        except SinceError:
            return
        self.snapshots += 1
        if found != at(self.truth, as_of):
            self.wrong.append(f"at {as_of}: {found} in place of {at(self.truth, as_of)}")

    async def rows(self, reader: ReadHandle, as_of: int) -> list[tuple[bytes, int]]:
        snapshot = await reader.snapshot(as_of)
        await self.turns((0, 0, 20, 300))
        return [row async for row in snapshot.rows()]


async def play(seed: int, appends: Appends) -> History:
    """A history to its end."""
    rng = random.Random(seed)
    store = HoldFaults(memory_store(), watch="readers/")
    store.rng, store.late = rng, set()
    supervisor = Supervisor("test", lambda cause: None)
    lake = ReadLake(store, supervisor, rng=rng)
    history = History(lake, rng, random_rows(rng, END), appends)
    keeping = asyncio.ensure_future(history.keep())
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as roles:
            for role in (history.write(), *(history.read() for _ in range(3))):
                roles.create_task(role)
    except* CorruptionError as errors:  # P8
        history.wrong += map(str, errors.exceptions)
    finally:
        history.ended = True
        store.faults = False
        await asyncio.wait([keeping])
        for task in store.late:
            task.cancel()
        for writer in lake.opened:
            await writer.close()
        await supervisor.close()
    if (failed := keeping.exception()) is not None:
        raise failed
    return history


@pytest.mark.parametrize("appends", list(Appends))
async def test_every_snapshot_is_what_was_written(appends: Appends) -> None:
    snapshots = lost = 0
    for seed in range(SEEDS):
        history = await play(seed, appends)
        assert history.wrong == [], f"seed {seed}"
        snapshots, lost = snapshots + history.snapshots, lost + history.lost
    assert snapshots > 10 * SEEDS
    assert lost > 0


@pytest.mark.parametrize(
    ("rule", "target", "instead"),
    [
        ("C13", "slate_async.collections.reader.pins.Pins.lowest", lambda pins, newest: newest),
    ],
)
async def test_without_a_rule_a_history_goes_wrong(
    rule: str, target: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, instead)
    for seed in range(SEEDS * 4):
        if (await play(seed, Appends.DEFINITE)).wrong:
            return
    pytest.fail(f"no history noticed that {rule} is off")
