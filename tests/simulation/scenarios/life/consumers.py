"""Consumers of the change feed: what a feed gives is written down, by processes that crash, sleep and begin anew.

A consumer writes rows and where it stands down in one step, as a database of its own would, and a process that was
replaced writes nothing any more. In the end all that was written down must be what was written, in order, once.
"""

from __future__ import annotations

import asyncio

import slate_async as slate
from slate_async.errors import InvalidError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.life.beside import CALM, nap
from tests.simulation.scenarios.life.consumed import Consumed
from tests.simulation.scenarios.life.estate import EXPECTED, Estate


async def consume(estate: Estate, database: SimulatedDatabase, node: Node, consumed: Consumed) -> None:
    """Be the consumer's process, until another one is."""
    consumed.turn += 1
    mine = consumed.turn
    for _ in database.turns(CALM):
        await nap(node, 0.3)
        if consumed.turn != mine:
            return
        try:
            await _once(estate, database, node, consumed, mine)
        except EXPECTED:
            estate.count("feeds-failed")


async def finish(estate: Estate, database: SimulatedDatabase, node: Node, consumed: Consumed) -> None:
    """Consume all that is left."""
    consumed.turn += 1
    await _once(estate, database, node, consumed, consumed.turn, to_the_end=True)


async def _once(
    estate: Estate, database: SimulatedDatabase, node: Node, consumed: Consumed, mine: int, *, to_the_end: bool = False
) -> None:
    """Open a reader and a feed, and consume for a while."""
    rng = node.rng
    by_subscription = consumed.subscription is not None and (not consumed.begun or rng.random() < 0.5)
    async with estate.reader(node, database, pin=consumed.pin) as reader:
        try:
            async with reader.changes(
                from_seq=None if by_subscription else consumed.seq,
                follow=not to_the_end,
                subscription=consumed.subscription,
                sort_memory_bytes=rng.choice((100, 1_000, 1_000_000)),
            ) as feed:
                if consumed.turn != mine:
                    return
                _begin(consumed, feed, node)
                await pull(estate, node, consumed, mine, feed, None if to_the_end else rng.randint(1, 8))
        except InvalidError as error:
            if consumed.turn != mine:
                return  # the one after has taken the subscription over
            if consumed.subscription is not None or "changes are kept from" not in str(error):
                raise Violation("feed", f"{node.name} lost its position: {error}") from error
            estate.count("feeds-begun-anew")
            consumed.forget()
            if to_the_end:
                await _once(estate, database, node, consumed, mine, to_the_end=True)


def _begin(consumed: Consumed, feed: slate.ChangeFeed, node: Node) -> None:
    """Where it begins: where the consumer stands, or at an acknowledgement of it."""
    lowest, highest = consumed.acknowledged[1], max(consumed.acknowledged[0], consumed.seq)
    if not lowest <= feed.seq <= highest:
        raise Violation("feed", f"{node.name} is to go on between {lowest} and {highest}, not at {feed.seq}")
    consumed.begun = True
    consumed.seq = feed.seq
    consumed.rows = [row for row in consumed.rows if row[0] <= feed.seq]
    consumed.snapshot_seq = max(consumed.snapshot_seq, feed.snapshot_seq)


async def pull(
    estate: Estate, node: Node, consumed: Consumed, mine: int, feed: slate.ChangeFeed, count: int | None
) -> None:
    """Write down what the feed gives in ``count`` steps, or up to its end, while ``mine`` is the consumer's turn."""
    rng = node.rng
    batches = feed.batches(max_rows=rng.choice((1, 5, 100)))
    while count is None or count > 0:
        count = None if count is None else count - 1
        try:
            async with asyncio.timeout(None if count is None else rng.uniform(0, 0.5)):
                batch = await anext(batches, None)
        except TimeoutError:
            continue
        if consumed.turn != mine or batch is None:
            return
        columns = [batch.column(name).to_pylist() for name in ("seq", "op", "key", "value")]
        consumed.rows += list(zip(*columns, strict=True))
        consumed.seq = feed.seq
        consumed.snapshot_seq = max(consumed.snapshot_seq, feed.snapshot_seq)
        estate.count("changes", batch.num_rows)
        if consumed.subscription is not None and rng.random() < 0.5:
            await _acknowledge(consumed, mine, feed, now=rng.random() < 0.3)
        elif rng.random() < 0.2:
            await nap(node, 2.0)


async def _acknowledge(consumed: Consumed, mine: int, feed: slate.ChangeFeed, *, now: bool) -> None:
    begun, done = consumed.acknowledged
    seq = consumed.seq
    consumed.acknowledged = max(begun, seq), done
    await feed.acknowledge(seq, now=now)
    if now and consumed.turn == mine:
        consumed.acknowledged = max(begun, seq), max(done, seq)
