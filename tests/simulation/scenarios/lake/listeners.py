"""Listeners: processes that take in deltas, store what they got, and go on from there after a crash (P6)."""

from __future__ import annotations

import asyncio
import random

from slate_async.collections.core.errors import SinceError
from slate_async.collections.core.times import Time, join
from slate_async.collections.reader.handle import ReadHandle
from slate_async.collections.reader.listen import Delta, Listener
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate, Heard, contents_of
from tests.simulation.scenarios.lake.eye import Eye
from tests.simulation.scenarios.lake.readers import use_handles


async def listen(estate: Estate, eye: Eye, node: Node, name: str) -> None:
    """Go on from what is stored under ``name``, or begin anew."""
    await use_handles(estate, eye, node, name, lambda reader: Listening(estate, node, reader, name).run())


class Listening:
    """One handle's listeners, one after another."""

    def __init__(self, estate: Estate, node: Node, reader: ReadHandle, name: str) -> None:
        self.estate = estate
        self.node = node
        self.reader = reader
        self.name = name
        self.rng: random.Random = node.rng

    async def run(self) -> None:
        """Until the handle is given up."""
        for _ in range(self.rng.choice((1, 2, 6))):
            if self.estate.over or not self.reader.since.elements:
                return
            await self.some(self.rng.choice((2, 5, 20)))

    async def some(self, deltas: int) -> None:
        """One listener, for so many deltas at most."""
        estate, rng = self.estate, self.rng
        listener = self._begun()
        async with listener:
            for _ in range(deltas):
                heard = estate.stored[self.name]
                if estate.over:
                    return
                if estate.is_finished(heard.upper):
                    del estate.stored[self.name]
                    await self.node.runtime.clock.sleep(0.1)
                    return
                try:
                    async with asyncio.timeout(rng.choice((0.02, 0.1, 0.3))):
                        delta = await anext(listener)
                except TimeoutError:
                    estate.count("waited in vain")
                    continue
                except StopAsyncIteration:
                    raise Violation("listening", f"{self.node.name} ended at {heard.upper}") from None
                except SinceError:
                    estate.count("refused")
                    del estate.stored[self.name]
                    return
                await self._take(heard, delta)

    def _begun(self) -> Listener:
        """A listener that goes on, or one that begins."""
        estate, rng = self.estate, self.rng
        heard = estate.stored.get(self.name)
        if heard is not None and heard.begun and rng.random() < 0.95:
            try:
                listener = self.reader.listen(start=heard.upper)
            except SinceError:
                estate.count("restarts refused")
            else:
                estate.count("restarts")
                return listener
        one = rng.choice(self.reader.since.elements)
        as_of: Time = join(one, tuple(number + rng.randrange(3) for number in one))
        listener = self.reader.subscribe(as_of if len(as_of) > 1 else as_of[0])
        estate.stored[self.name] = Heard(as_of, listener.upper)
        estate.count("subscriptions")
        return listener

    async def _take(self, heard: Heard, delta: Delta) -> None:
        """Store a delta, and judge all that was heard at some times before its end."""
        estate, rng, columns = self.estate, self.rng, self.estate.params.kind.columns
        if heard.begun and delta.lower != heard.upper:
            raise Violation("listening", f"{self.node.name} is given {delta.lower} after {heard.upper}")
        heard.rows += [
            (row["data"], tuple(row[column] for column in columns), row["_diff"]) for row in delta.updates.to_pylist()
        ]
        heard.upper, heard.begun = delta.upper, True
        estate.count("deltas")
        for _ in range(3):
            at = join(heard.as_of, estate.point(rng))
            if heard.upper.less_equal(at):
                continue
            found, expected = contents_of(heard.rows, at), estate.contents(at)
            if found != expected:
                raise Violation("listening", f"{self.node.name} heard {found} until {at}, expected {expected}")
        if rng.random() < 0.5:
            await self.reader.downgrade_since(delta.upper)
        if rng.random() < 0.3:
            await self.node.runtime.clock.sleep(rng.choice((0.01, 0.05, 0.3)))
