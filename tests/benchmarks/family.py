"""A family: measures that belong together, their goals, and how one round of them is run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.goals import Goal
from tests.benchmarks.rounds import Samples, Turn


@dataclass(frozen=True)
class Family:
    """One subject of measurement.

    one_round: measures everything once and records it
    notes: what a reader of the figures has to know, printed below them
    plot: makes the figure, where bars for every measure do not suit
    most_rounds: of a family whose rounds take many minutes
    """

    name: str
    title: str
    goals: tuple[Goal, ...]
    one_round: Callable[[Turn], Coroutine[Any, Any, None]]
    notes: tuple[str, ...] = ()
    plot: Callable[[Samples], Any] | None = None
    most_rounds: int | None = None
