"""Clocks that are wrong for a while, scripted: what outlives them."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.write.sequencer import CLOCK_SKEW_MS
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.protocol import Scenario

AHEAD_MS = 1_800_000
"""Less than the last writer's clock is ahead, by which all that is to expire has."""
LIFE_S = 5.0
KEY = b"session"


async def clock_jumped(stage: Stage) -> None:
    """A writer's clock jumps far ahead and is put right; what is written then with a time to live lives no longer."""
    writer = await stage.writer("writer")
    writer.node.clock.jump(AHEAD_MS)
    await stage.write(writer, stage.rng.randint(1, 4))
    if stage.rng.random() < 0.5:
        await writer.node.run(writer.flush_l0())
    writer.node.clock.jump(-AHEAD_MS)
    if stage.rng.random() < 0.7:
        writer = await stage.writer("successor")
    await writer.node.run(writer.db.put(KEY, b"value", ttl=LIFE_S))
    if await writer.node.run(writer.db.get(KEY)) is None:
        raise Violation("value", "a row with a time to live vanished at once")
    await writer.node.run(writer.node.runtime.clock.sleep(LIFE_S + CLOCK_SKEW_MS / 1000))
    if await writer.node.run(writer.db.get(KEY)) is not None:
        raise Violation("value", "a row lives longer because a clock was ahead before it was written")


CLOCK_SCRIPTS: Sequence[Scenario] = (scripted("clock-jumped", clock_jumped),)
