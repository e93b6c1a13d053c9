"""What a scenario is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.simulation.world import World

Stats = dict[str, int]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of run.

    make: a world from a seed and whether its trace is to be kept
    play: runs in that world, judges it (`tests.simulation.checkers.Violation`), and returns counts of what happened
    broken: whether it is wrong on purpose, to see that a checker notices; not part of a run of everything
    """

    name: str
    summary: str
    make: Callable[[int, bool], World]
    play: Callable[[World], Coroutine[Any, Any, Stats]]
    broken: bool = False
