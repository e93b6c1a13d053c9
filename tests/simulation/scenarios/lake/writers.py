"""Writers: processes that append through the product's `Writer` until all is written, or they are killed."""

from __future__ import annotations

import asyncio
import itertools
import random

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.errors import ClosedError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Ack, Estate, Row


async def write(estate: Estate, node: Node, name: str) -> None:
    """Open a writer called ``name`` and append; begin again after what ends it."""
    sleep = node.runtime.clock.sleep
    for _ in estate.turns():
        try:
            writer = await open_writer(
                estate.writing(node, name), estate.params.appends, flush_parallelism=estate.params.parallelism
            )
        except ClosedError:
            estate.count("closed")
            return
        except UnavailableError:
            await sleep(0.05)
            continue
        try:
            if estate.params.appends is Appends.COMPARE:
                await Comparing(estate, node, writer).run()
            else:
                await Definite(estate, node, writer).run()
        except ClosedError:
            estate.count("closed")
            return
        finally:
            await writer.close()
        if estate.is_finished(writer.upper):
            return


class _Writing:
    """One handle's appends."""

    def __init__(self, estate: Estate, node: Node, writer: Writer) -> None:
        self.estate = estate
        self.node = node
        self.writer = writer
        self.rng: random.Random = node.rng

    async def nap(self) -> None:
        """Now and then."""
        await self.node.runtime.clock.sleep(self.rng.choice((0, 0, self.rng.uniform(0, self.estate.params.pace))))

    async def append(self, rows: list[Row], lower: Frontier, upper: Frontier) -> None:
        """In one of the ways there are: whole, or as a large batch piece by piece."""
        if self.estate.params.part_bytes and self.rng.random() < 0.7:
            async with self.writer.batch(lower, upper=upper) as batch:
                for row in rows:
                    await batch.add([row])
            return
        await self.writer.append(rows, lower=lower, upper=upper)


class Definite(_Writing):
    """All writers of a time write the same."""

    async def run(self) -> None:
        """From where the collection ends; or from the beginning, so that batches straddle what is there."""
        estate, rng = self.estate, self.rng
        end = estate.minimum if rng.random() < 0.25 else self.writer.upper
        while not (estate.is_finished(end) or estate.over):
            await self.nap()
            bounds = [end]
            for _ in range(rng.randint(1, estate.params.parallelism)):
                bounds.append(estate.next_upper(rng, bounds[-1]))
                if bounds[-1].is_done:
                    break
            spans = list(itertools.pairwise(bounds))
            tasks = [asyncio.ensure_future(self._one(lower, upper)) for lower, upper in spans]
            if rng.random() < 0.2:
                await self.nap()
                rng.choice(tasks).cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            end = self._judged(bounds[-1], results)
            if rng.random() < 0.1:
                end = self.writer.upper if rng.random() < 0.5 else estate.minimum

    async def _one(self, lower: Frontier, upper: Frontier) -> None:
        rows = self.estate.rows(lower, upper)
        self.rng.shuffle(rows)
        await self.append(rows, lower, upper)
        if not upper <= self.writer.upper:
            raise Violation("unordered", f"an append to {upper} is acknowledged, and the upper is {self.writer.upper}")
        self.estate.acks.append(Ack(lower, upper, [], self.node.name))
        self.estate.count("acknowledged")

    def _judged(self, end: Frontier, results: list[BaseException | None]) -> Frontier:
        """Where to go on."""
        for result in results:
            if isinstance(result, UpperMismatchError):
                self.estate.count("gaps")
                return result.upper
            if isinstance(result, (UnavailableError, asyncio.CancelledError)):
                self.estate.count("cancelled" if isinstance(result, asyncio.CancelledError) else "unavailable")
                return self.writer.upper
            if result is not None:
                raise result
        return end


class Comparing(_Writing):
    """Whoever comes first decides what is appended."""

    async def run(self) -> None:
        """From where the chain ends."""
        estate, rng = self.estate, self.rng
        end = self.writer.upper
        while not (estate.is_finished(end) or estate.over):
            await self.nap()
            end = await self._one(end, estate.next_upper(rng, end))

    async def _one(self, lower: Frontier, upper: Frontier) -> Frontier:
        """One append, of rows that nobody else brings; where to go on."""
        estate, rng = self.estate, self.rng
        mark = estate.mark(self.node.name)
        points = sorted({estate.point(rng) for _ in range(rng.randint(0, 5))})
        first = next(time for time in lower.elements if not upper.less_equal(time))
        rows: list[Row] = [(mark, first, 1)]
        rows += [
            (b"%d" % rng.randint(0, 2), time, rng.choice((-1, 1, 2)))
            for time in points
            if lower.less_equal(time) and not upper.less_equal(time)
        ]
        appending = asyncio.ensure_future(self.append(rows, lower, upper))
        if rng.random() < 0.1:
            await self.nap()
            appending.cancel()
        await asyncio.wait([appending])
        if appending.cancelled():
            estate.count("cancelled")
            return self.writer.upper
        error = appending.exception()
        if error is None:
            estate.acks.append(Ack(lower, upper, rows, self.node.name))
            estate.count("acknowledged")
            return upper
        if not isinstance(error, (UpperMismatchError, UnavailableError)):
            raise error
        if error.outcome == "not_applied":
            estate.refused.add(mark)
        estate.count("mismatched" if isinstance(error, UpperMismatchError) else "unavailable")
        return error.upper if isinstance(error, UpperMismatchError) else self.writer.upper
