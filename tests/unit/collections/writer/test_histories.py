"""P7 and P14 over stores that lose requests and answers, and let puts land late: writers of both kinds of appends, a
controller that takes in and collects meanwhile, and cancellation at any await.

Every append has data of its own where the collection is ``compare``. Acknowledged ones are in once, refused ones are
not, and the switches show which rules that rests on.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import Frontier
from slate_async.errors import SlateError
from slate_async.runtime.supervisor import Supervisor
from tests.engine import memory_store
from tests.support.collection_bytes import frontier
from tests.unit.collections.faulty_store import FaultyStore
from tests.unit.collections.lake import Lake

SEEDS = 40
END = 60
Rows = list[tuple[bytes, int, int]]


@dataclass
class History:
    """What was answered, and what a controller took in."""

    lake: Lake
    rng: random.Random
    shards: list[str]
    absorbed: Rows = field(default_factory=list)
    outcomes: dict[bytes, str] = field(default_factory=dict)
    acknowledged: list[Frontier] = field(default_factory=list)
    ended: bool = False

    async def definite(self, name: str) -> None:
        """A writer that repeats what failed, at times from the start."""
        upper = 0
        while upper < END:
            writer = await self.lake.writer(Appends.DEFINITE, name, flush_parallelism=3)
            begin = 0 if self.rng.random() < 0.2 else writer.upper.elements[0][0]
            ends = sorted({self.rng.randint(begin, END) for _ in range(4)})
            appends = []
            for lower, upper in zip([begin, *ends], ends, strict=False):
                updates = [(b"%d" % time, time, 1) for time in range(lower, upper)]
                appends.append(self.append(writer.append(updates, lower=lower, upper=upper), b"", upper))
            await asyncio.gather(*appends)
            upper = writer.upper.elements[0][0]
            await writer.close()

    async def compare(self, name: str) -> None:
        """A writer that goes on from where the chain ends."""
        writer = await self.lake.writer(Appends.COMPARE, name)
        for number in range(100):
            lower = writer.upper.elements[0][0]
            if lower >= END:
                break
            data = f"{name}-{number}".encode()
            upper = lower + self.rng.randint(1, 6)
            time = self.rng.randrange(lower, upper)
            await self.append(writer.append([(data, time, 1)], lower=lower, upper=upper), data, upper)
            for _ in range(self.rng.choice((0, 0, 10, 100))):
                await asyncio.sleep(0)
        await writer.close()

    async def append(self, call: Any, data: bytes, upper: int) -> None:
        """``call``, at times cancelled on its way."""
        task = asyncio.ensure_future(call)
        if self.rng.random() < 0.2:
            for _ in range(self.rng.randrange(40)):
                await asyncio.sleep(0)
            task.cancel()
        try:
            await task
        except SlateError as error:
            self.outcomes[data] = error.outcome or f"without an outcome: {error}"
        except asyncio.CancelledError:
            self.outcomes[data] = "unknown"
        else:
            self.outcomes[data] = "acknowledged"
            self.acknowledged.append(frontier(upper))

    async def controller(self) -> None:
        """Takes in what is contiguous, and collects it."""
        while not self.ended:
            for _ in range(self.rng.choice((5, 50, 200))):
                await asyncio.sleep(0)
            await self.take_in()

    async def take_in(self) -> None:
        """One round."""
        head = await self.lake.versions().load()
        upper, rows = await self.lake.rows(self.shards)
        if upper == head.upper:
            return
        last = await self.lake.last_of(head.upper, upper) if self.shards == ["main"] else "t" * 32
        self.absorbed += rows
        for shard in self.shards:
            await self.lake.absorb(upper, last=last, collect=shard)


async def play(seed: int, appends: Appends) -> History:
    """A history, at whose end all that was sent has landed."""
    rng = random.Random(seed)
    store = FaultyStore(memory_store(), watch="pending_batches/")
    store.rng, store.late = rng, set()
    supervisor = Supervisor("test", lambda cause: None)
    lake = Lake(store, supervisor)
    definite = appends is Appends.DEFINITE
    history = History(lake, rng, ["a", "b"] if definite else ["main"])
    names = ["a", "a", "b"] if definite else ["w1", "w2", "w3"]
    controller = asyncio.ensure_future(history.controller())
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*((history.definite if definite else history.compare)(name) for name in names))
            while store.late:
                await asyncio.wait(store.late)
    finally:
        history.ended = True
        await controller
        for writer in lake.opened:
            await writer.close()
        await supervisor.close()
    return history


async def check(seed: int, appends: Appends) -> str | None:
    """What is wrong with the history of ``seed``, if anything is."""
    history = await play(seed, appends)
    upper, pending = await history.lake.rows(history.shards)
    rows = sorted(history.absorbed + pending)
    if any(not acknowledged <= upper for acknowledged in history.acknowledged):
        return f"acknowledged beyond {upper}"
    if appends is Appends.DEFINITE:
        written = sorted((b"%d" % time, time, 1) for time in range(upper.elements[0][0]))
        return None if rows == written else f"{rows} in place of {written}"
    data = [row[0] for row in rows]
    allowed = {"acknowledged": (1,), "not_applied": (0,), "unknown": (0, 1)}
    for name, outcome in history.outcomes.items():
        if data.count(name) not in allowed.get(outcome, ()):
            return f"{name!r} is {outcome}, and there {data.count(name)} times"
    return None


@pytest.mark.parametrize("appends", list(Appends))
async def test_acknowledged_appends_are_in_and_refused_ones_are_not(appends: Appends) -> None:
    for seed in range(SEEDS):
        wrong = await check(seed, appends)
        assert wrong is None, f"seed {seed}: {wrong}"


@pytest.mark.parametrize(
    ("rule", "target", "instead"),
    [
        ("C8", "slate_async.collections.writer.compare.is_acknowledged", lambda mine, head: True),
        ("C8, whose batch it is", "slate_async.collections.writer.compare.judge_put", lambda mine, found: None),
    ],
)
async def test_without_a_rule_a_history_goes_wrong(
    rule: str, target: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, instead)
    for seed in range(SEEDS):
        try:
            if await check(seed, Appends.COMPARE) is not None:
                return
        except AssertionError:  # the controller met a batch that hangs in the air
            return
    pytest.fail(f"no history of {SEEDS} noticed that {rule} is off")
