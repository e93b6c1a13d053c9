"""A protocol rule, and the way it is broken: product or actor functions replaced for the length of one run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scenarios.engine.play import Play, make_world
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Patch:
    """``owner.name`` is ``instead`` while the rule is off."""

    owner: Any
    name: str
    instead: Any


@dataclass(frozen=True, slots=True)
class Switch:
    """One rule off.

    name: of the scenario that runs it, ``rule-...``
    rule: its number
    broken: how it is broken, in words
    fixed: `Params` of the engine under which that matters; everything else by chance
    tiny: runs the metastore alone instead, under this scenario
    within: so many seeds are enough to notice (the test's limit: several times what was seen)
    """

    name: str
    rule: str
    broken: str
    patches: tuple[Patch, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    within: int = 200
    tiny: Scenario | None = None

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """The rule does not hold inside."""
        kept = [(patch, getattr(patch.owner, patch.name)) for patch in self.patches]
        try:
            for patch in self.patches:
                setattr(patch.owner, patch.name, patch.instead)
            yield
        finally:
            for patch, original in kept:
                setattr(patch.owner, patch.name, original)

    async def play(self, world: World) -> Stats:
        """A run without the rule."""
        with self.off():
            return await self._run(world)

    async def _run(self, world: World) -> Stats:
        return await (Play(world, self.fixed).run() if self.tiny is None else self.tiny.play(world))

    def make(self, seed: int, keep_trace: bool) -> World:
        """Its world."""
        if self.tiny is None:
            return make_world(seed, keep_trace, self.fixed)
        return self.tiny.make(seed, keep_trace)

    def scenario(self) -> Scenario:
        """For the runner and ``scripts/simulate``."""
        return Scenario(f"rule-{self.name}", f"rule {self.rule} off: {self.broken}", self.make, self.play, broken=True)

    def control(self) -> Scenario:
        """The same with the rule on: what is not to fail."""
        return Scenario(f"on-{self.name}", f"rule {self.rule} on, as rule-{self.name}", self.make, self._run, True)
