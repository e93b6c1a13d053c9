"""Lenders: processes that plan a read, lend the hold under which it is done, and end; others read it, piece by piece,
prolong the hold, or adopt it. Whoever reads under a hold that was lent is given the truth, or `LeaseLostError`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.lending import LentHold
from slate_async.collections.core.times import Time, join
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.lending import SharedHold, TaskHold, adopt_hold, share_hold
from slate_async.collections.reader.split import LentVersion, SnapshotSplit, look_ahead, split_snapshot
from slate_async.collections.reader.update_split import UpdateSplit, split_updates
from slate_async.errors import ClosedError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate, Row
from tests.simulation.scenarios.lake.eye import Eye

SPLITS = 3
SPLIT_BYTES = 600


@dataclass(frozen=True, slots=True)
class Job:
    """A read that was planned. ``updates``: of what was written from ``lower`` to ``upper``"""

    lent: LentHold
    as_of: Time
    splits: Sequence[SnapshotSplit]
    updates: Sequence[UpdateSplit]
    lower: Frontier
    upper: Frontier


async def lend(estate: Estate, eye: Eye, node: Node, jobs: list[Job]) -> None:
    """Plan reads, and put them up for others."""
    for _ in estate.turns():
        try:
            await Lending(estate, eye, node).run(jobs)
        except LeaseLostError:
            estate.count("lease lost")
        except ClosedError:
            estate.count("closed")
            return
        except UnavailableError:
            estate.count("unavailable")
        await node.runtime.clock.sleep(node.rng.choice((0, 0.05)))


async def work(estate: Estate, eye: Eye, node: Node, jobs: list[Job]) -> None:
    """Read what was planned."""
    for _ in estate.turns():
        await node.runtime.clock.sleep(node.rng.choice((0.01, 0.05)))
        if not jobs:
            continue
        try:
            await Lending(estate, eye, node).work(node.rng.choice(jobs))
        except LeaseLostError:
            estate.count("lease lost")
        except ClosedError:
            estate.count("closed")
            return
        except UnavailableError:
            estate.count("unavailable")


class Lending:
    """What one process does with holds that are lent."""

    def __init__(self, estate: Estate, eye: Eye, node: Node) -> None:
        self.estate = estate
        self.eye = eye
        self.node = node
        self.rng: random.Random = node.rng
        self.context: ReaderContext = estate.stores(node).reading()

    async def run(self, jobs: list[Job]) -> None:
        """Lend a hold for a while: to others by way of ``jobs``."""
        shared, _ = await share_hold(self.context, self.node.name)
        expired = self.eye.believe(self.node, lambda: shared._hold.handle)
        try:
            await self._keep(shared, jobs)
        finally:
            expired()
            await (shared.leave() if self.rng.random() < 0.5 else shared.expire())

    async def _keep(self, shared: SharedHold, jobs: list[Job]) -> None:
        for _ in range(self.rng.choice((1, 3))):
            if (job := await self.plan(shared)) is not None:
                jobs.append(job)
                del jobs[:-2]
            await self.nap()
            if job is not None and self.rng.random() < 0.5:
                await shared.move(version=job.lent.version, since=job.lower.step_back())

    async def plan(self, shared: SharedHold) -> Job | None:
        """What can be read now under the hold; ``None`` if nothing is definite."""
        context, estate = self.context, self.estate
        area = await context.head()
        lent = await shared.lend(area.version)
        source = await look_ahead(context, lent, estate.life.uuid, area)
        as_of = self._as_of(area.since.join(shared.since), source)
        if as_of is None:
            return None
        splits = await split_snapshot(context, source, as_of, (), self.rng.choice((1, SPLITS)))
        lower = source.upper if source.upper.is_done else _beyond(area.since.join(shared.since))
        updates = split_updates(
            estate.life.uuid, lent, area, source.taken, lower, source.upper, self.rng.choice((1, SPLIT_BYTES))
        )
        return Job(lent, as_of, splits, updates, lower, source.upper)

    def _as_of(self, since: Frontier, source: LentVersion) -> Time | None:
        if since.is_done:
            return None
        one = self.rng.choice(since.elements)
        for most in (9, 6, 3, 1):
            as_of = join(one, tuple(number + self.rng.randrange(most) for number in one))
            if not source.upper.less_equal(as_of):
                return as_of
        return None

    async def work(self, job: Job) -> None:
        """Read all of ``job``: under the hold as it is, or after adopting it."""
        if self.rng.random() < 0.3:
            shared, _ = await adopt_hold(self.context, job.lent, self.node.name)
            self.estate.count("adopted")
            expired = self.eye.believe(self.node, lambda: shared._hold.handle)
            try:
                await self.read(job)
            finally:
                expired()
                await (shared.leave() if self.rng.random() < 0.5 else shared.expire())
            return
        if self.rng.random() < 0.3:
            await TaskHold(self.context, job.lent).prolong()
            self.estate.count("prolonged")
        await self.read(job)

    async def read(self, job: Job) -> None:
        """All splits, some of them after a nap, and judge them."""
        sums = Counter[bytes]()
        for split in job.splits:
            if self.rng.random() < 0.3:
                await self.nap()
            async with split.open(self.context) as snapshot:
                async for data, diff in snapshot.rows():
                    sums[data] += diff
        found = sorted((data, diff) for data, diff in sums.items() if diff)
        if found != (expected := self.estate.contents(job.as_of)):
            raise Violation("snapshot", f"splits at {job.as_of}: {found}, expected {expected}")
        self.estate.count("split snapshots")
        rows = Counter[tuple[bytes, Time]]()
        for update_split in job.updates:
            if self.rng.random() < 0.3:
                await self.nap()
            async for batch in update_split.batches(self.context):
                for data, time, diff in self._rows(batch.to_pylist()):
                    rows[data, time] += diff
        truth = Counter[tuple[bytes, Time]]()
        for data, time, diff in self.estate.rows(job.lower, job.upper):
            truth[data, time] += diff
        wrong = {key: (rows[key], truth[key]) for key in {*rows, *truth} if rows[key] != truth[key]}
        if wrong:
            raise Violation("listening", f"splits from {job.lower} to {job.upper}, found and expected: {wrong}")
        self.estate.count("split updates")

    def _rows(self, rows: Sequence[dict[str, int | bytes]]) -> list[Row]:
        columns = self.estate.params.kind.columns
        return [(row["data"], tuple(row[column] for column in columns), row["_diff"]) for row in rows]  # type: ignore[misc]

    async def nap(self) -> None:
        """As long as the lease lasts, or not."""
        await self.node.runtime.clock.sleep(self.rng.choice((0.01, 0.05, 0.3)))


def _beyond(since: Frontier) -> Frontier:
    """The lowest frontier that may be cut where times were compacted to ``since``."""
    return Frontier(tuple(number + 1 for number in element) for element in since.elements)
