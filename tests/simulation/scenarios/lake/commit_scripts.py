"""Scripts in which the commit of a controller lands after it was given up, while the same is done once more (C21)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.controller import Controller
from slate_async.errors import UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.faults import Fault, Rule
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.stage import LakeStage, lake_script
from tests.simulation.scenarios.protocol import Scenario

LATE_SECONDS = 8.0
"""Past the deadline of a commit."""


async def absorbed_twice(stage: LakeStage) -> None:
    """An absorb is given up and lands; by then the same appends were taken in again, with one more."""
    (node, keeper), writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 3)
    landed = await _given_up(stage, node, keeper.round)
    await stage.append(writer, 3, 5)
    put = stage.hold(node, "put-overwrite", "merged_batches/")
    absorbing = node.spawn(keeper.round())
    await put.caught()
    await landed
    put.release()
    await node.join(absorbing)
    await stage.rounds((node, keeper), 2)
    await stage.look(await stage.reader("reader"), 4)


async def merged_twice_over(stage: LakeStage) -> None:
    """A merge is given up and lands; by then the same batches were merged again, and another one stands beside."""
    (node, keeper), writer = await stage.controller(), await stage.writer("w0")
    for lower in (0, 3):
        await stage.append(writer, lower, lower + 3)
        await node.run(keeper.round())
    landed = await _given_up(stage, node, lambda: keeper.merge(everything=True))
    put = stage.hold(node, "put-overwrite", "merged_batches/")
    merging = node.spawn(_merge(keeper))
    await put.caught()
    await landed
    await stage.append(writer, 6, 9)
    await node.run(keeper.round())
    put.release()
    await node.join(merging)
    stage.estate.count("merged by another", keeper.counts[1].lost)
    await stage.look(await stage.reader("reader"), 8)


async def _merge(keeper: Controller) -> None:
    await keeper.merge(everything=True)


async def _given_up(stage: LakeStage, node: Node, act: Callable[[], Awaitable[object]]) -> Awaitable[None]:
    """``act``, of which no commit is answered in time; wait for what it returns, and the first one has landed."""

    def matches(name: str, operation: str, key: str) -> bool:
        return name == node.name and operation.startswith("manifest-commit")

    rule = stage.world.rule(Rule(matches, Fault.LATE, times=1_000_000, late_seconds=LATE_SECONDS))
    landed = asyncio.ensure_future(asyncio.sleep(LATE_SECONDS + 1))
    try:
        await node.run(act())
    except UnavailableError:
        rule.times = 0
        return landed
    raise Violation("answered", "a commit without an answer is taken for one that has one")


COMMIT_SCRIPTS: Sequence[Scenario] = (
    lake_script("absorbed-twice", Appends.DEFINITE, absorbed_twice),
    lake_script("merged-twice-over", Appends.DEFINITE, merged_twice_over),
)
