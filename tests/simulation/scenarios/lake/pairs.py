"""One fault at one await of one role: what such a pair is, how the fault is made, and which pairs there are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from tests.simulation.faults import Fault, Rule
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.world import World

A = TypeVar("A")
What = Literal["crash", "freeze", "cancel"] | Fault
FAULTS: Sequence[What] = (
    "crash",
    "freeze",
    "cancel",
    Fault.REFUSED,
    Fault.FAILED_BEFORE,
    Fault.LOST_RESPONSE,
    Fault.LATE,
)
OF_STEPS: Sequence[What] = ("crash", "freeze", "cancel")
"""Those that hit between any two callbacks; the others hit a request."""
LEASE_MS = 100


@dataclass(frozen=True, slots=True)
class Role(Generic[A]):
    """What is played. ``act``: what it does, as its play takes it; ``fixed``: of `LakeParams`"""

    name: str
    act: A
    fixed: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pair(Generic[A]):
    """The fault ``what`` at the await number ``at``, from 1; 0: nothing goes wrong."""

    role: Role[A]
    what: What
    at: int


class Fated:
    """Plays the role of a pair twice, as a process that was started again: the fault hits the first one.

    expected: errors that may end it
    frozen_seconds: of the fault
    awaits: how many the first one had: of its callbacks, and of its requests"""

    def __init__(
        self,
        world: World,
        pair: Pair[Any],
        expected: tuple[type[BaseException], ...],
        *,
        frozen_seconds: float = 3 * LEASE_MS / 1000,
    ) -> None:
        self._world = world
        self._pair = pair
        self._expected = expected
        self._frozen_seconds = frozen_seconds
        self._requests = 0
        self.awaits = (0, 0)

    async def play(self, act: Callable[[Node], Awaitable[None]]) -> None:
        """Both."""
        for faulty in (True, False):
            node = self._world.node("role")
            doing = node.spawn(self._ended(act(node)))
            if faulty:
                self._hit(node, doing)
            try:
                await node.join(doing)
            except NodeCrashedError:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                if self._pair.what != "cancel" or not faulty:
                    raise
            if faulty:
                self.awaits = (node.domain.steps, self._requests)

    def _hit(self, node: Node, doing: asyncio.Task[None]) -> None:
        what, at = self._pair.what, self._pair.at

        def is_it(name: str, operation: str, key: str) -> bool:
            self._requests += name == node.name
            return what not in OF_STEPS and name == node.name and self._requests == at

        rule = (
            Rule(is_it, what, late_seconds=2 * LEASE_MS / 1000) if isinstance(what, Fault) else Rule(is_it, Fault.NONE)
        )
        self._world.rule(rule)
        if at and what == "crash":
            node.crash_after(at)
        elif at and what == "freeze":
            node.freeze_after(at, self._frozen_seconds)
        elif at and what == "cancel":
            node.domain.call_after_steps(at, lambda: _cancel(doing))

    async def _ended(self, doing: Awaitable[None]) -> None:
        with contextlib.suppress(self._expected):
            await doing


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def pairs_of(roles: Iterable[Role[A]], awaits_of: Callable[[Role[A]], tuple[int, int]]) -> Iterator[Pair[A]]:
    """Of all ``roles``; some more than there are, because another seed may have more awaits.

    awaits_of: how many callbacks and requests a role has when nothing goes wrong"""
    for role in roles:
        steps, requests = awaits_of(role)
        for what in FAULTS:
            most = steps if what in OF_STEPS else requests
            for at in range(1, most + most // 10 + 2):
                yield Pair(role, what, at)
