"""Controllers: processes that keep the collection through the product's `Controller`, and take the role from others."""

from __future__ import annotations

from collections.abc import Callable

from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.errors import ClosedError, FencedError, UnavailableError
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate

WATCH_SECONDS = 0.02
ROUNDS = 5
"""So many, a lease apart, are enough for anything that was left."""


async def control(estate: Estate, node: Node) -> None:
    """Have the role until another one takes it; take it again."""
    rng, sleep = node.rng, node.runtime.clock.sleep
    for _ in estate.turns():
        try:
            controller = await open_controller(controlling(estate.stores(node)), background=rng.random() < 0.7)
        except ClosedError:
            estate.count("closed")
            return
        except UnavailableError:
            await sleep(WATCH_SECONDS)
            continue
        try:
            await _keep(estate, node, controller)
        except FencedError:
            estate.count("fenced")
        except ClosedError:
            estate.count("closed")
            return
        finally:
            rounds, merges = controller.counts
            for name, number in (("rounds", rounds.rounds), ("revoked", rounds.revoked), ("merges", merges.merges)):
                estate.count(name, number)
            estate.count("merged by another", merges.lost)
            await controller.close()
        await sleep(rng.uniform(0.1, 2))


async def _keep(estate: Estate, node: Node, controller: Controller) -> None:
    """Whether it works by itself or not, it is asked now and then; what ended it is raised."""
    rng, sleep = node.rng, node.runtime.clock.sleep
    for _ in estate.turns():
        await sleep(rng.choice((0, WATCH_SECONDS)))
        try:
            await (controller.round() if rng.random() < 0.6 else controller.merge(everything=rng.random() < 0.5))
        except UnavailableError:
            estate.count("unavailable")


async def bring_to_rest(estate: Estate, node: Node, is_at_rest: Callable[[], bool]) -> None:
    """A last controller, whom nobody disturbs, until leases have run out and nothing is left to do."""
    controller = await open_controller(controlling(estate.stores(node)), background=False)
    for _ in range(ROUNDS):
        await controller.settle()
        if is_at_rest():
            break
        await node.runtime.clock.sleep(estate.params.lease_ms / 1000)
    await controller.close()
