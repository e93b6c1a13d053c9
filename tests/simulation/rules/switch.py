"""A protocol rule, and the way it is broken: product or actor functions replaced for the length of one run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scenarios.engine.play import Play, drawn_params, make_world
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
    patches: what makes it so
    fixed: `Params` of the engine under which that matters; everything else by chance
    stage: runs this scenario instead of the engine's play
    behind: other rules or assertions that would notice too early, or make up for it: off as well, but also when the
    same seed is run with the rule on
    hidden: whether nobody notices as long as they hold
    within: so many seeds are enough to notice (the test's limit: several times what was seen)
    """

    name: str
    rule: str
    broken: str
    patches: tuple[Patch, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    within: int = 200
    stage: Scenario | None = None
    behind: tuple[Patch, ...] = ()
    hidden: bool = False

    def scenarios(self) -> Iterator[Scenario]:
        """For the runner and ``scripts/simulate``: ``rule-`` is to fail, ``on-`` and, of a hidden one, ``alone-`` are
        not."""
        yield self._scenario("rule", f"rule {self.rule} off: {self.broken}", (*self.patches, *self.behind))
        yield self._scenario("on", f"rule {self.rule} on, else as rule-{self.name}", self.behind)
        if self.hidden:
            yield self._scenario("alone", f"rule {self.rule} off, what hides that on: {self.broken}", self.patches)

    def _scenario(self, kind: str, summary: str, patches: tuple[Patch, ...]) -> Scenario:
        async def play(world: World) -> Stats:
            with _patched(patches):
                return await (
                    Play(world, drawn_params(world.seed, self.fixed)).run()
                    if self.stage is None
                    else self.stage.play(world)
                )

        return Scenario(f"{kind}-{self.name}", summary, self._make, play, broken=True)

    def _make(self, seed: int, keep_trace: bool) -> World:
        if self.stage is None:
            return make_world(seed, keep_trace, self.fixed)
        return self.stage.make(seed, keep_trace)


@contextlib.contextmanager
def _patched(patches: tuple[Patch, ...]) -> Iterator[None]:
    kept = [(patch, getattr(patch.owner, patch.name)) for patch in patches]
    try:
        for patch in patches:
            setattr(patch.owner, patch.name, patch.instead)
        yield
    finally:
        for patch, original in kept:
            setattr(patch.owner, patch.name, original)
