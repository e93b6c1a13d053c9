"""Goals: a figure, or the ratio of two figures of one round, and its bound."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.rounds import Samples

OURS = "slate_async"


@dataclass(frozen=True)
class Goal:
    """``of`` (a measure of ours) as a multiple of ``to``, or by itself, is at least, or at most, ``bound``.

    to: measure and subject; ``None`` = the figure itself is bounded
    most: the bound is an upper one
    """

    number: int
    of: str
    bound: float
    to: tuple[str, str] | None = None
    most: bool = False
    subject: str = OURS

    @property
    def text(self) -> str:
        sign = "≤" if self.most else "≥"
        if self.to is None:
            return f"{self.of} {sign} {self.bound:,.0f}"
        measure, subject = self.to
        than = subject if measure == self.of else measure if subject == self.subject else f"{subject}'s {measure}"
        return f"{self.of} {sign} {self.bound:g} × {than}"

    def measured(self, samples: Samples) -> float | None:
        """The median; ``None`` where one side did not run."""
        if not samples.has(self.of, self.subject):
            return None
        if self.to is None:
            return samples.median(self.of, self.subject)
        if not samples.has(*self.to):
            return None
        return samples.ratio(self.of, self.subject, *self.to)

    def met(self, measured: float) -> bool:
        return measured <= self.bound if self.most else measured >= self.bound


@dataclass(frozen=True)
class Verdict:
    """A goal beside what was measured; both unset where it was not measured."""

    goal: Goal
    measured: float | None

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if self.goal.met(self.measured) else "not met"


def verdicts(goals: tuple[Goal, ...], samples: Samples) -> list[Verdict]:
    """Every goal beside what was measured."""
    return [Verdict(goal, goal.measured(samples)) for goal in goals]
