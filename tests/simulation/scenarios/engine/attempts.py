"""Which sessions tried to open the database when: this decides which acknowledgements of level ``flushed`` are
promises.

A flushed write lies in the store, every earlier one too, when it is acknowledged. A takeover that begins later lists
it and inherits it; one that was under way may have listed before. So the acknowledgement is a promise if every other
opening so far ended before this writer's began, or made a writer of a lower epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.linearizability import NEVER


@dataclass(slots=True)
class Attempt:
    """One call of open. ``ended`` when it returned or failed or its process crashed; ``epoch`` if it succeeded."""

    name: str
    began: float
    ended: float = NEVER
    epoch: int | None = None


@dataclass(slots=True)
class Attempts:
    """All of a world's, in order."""

    made: list[Attempt] = field(default_factory=list)

    def begin(self, name: str, now: float) -> Attempt:
        """A process calls open."""
        attempt = Attempt(name, now)
        self.made.append(attempt)
        return attempt

    def undisturbed(self, mine: Attempt) -> bool:
        """Whether a flushed acknowledgement given now by the writer of ``mine`` is a promise."""
        return all(other is mine or _harmless(other, mine) for other in self.made)


def _harmless(other: Attempt, mine: Attempt) -> bool:
    if other.epoch is not None and mine.epoch is not None and other.epoch < mine.epoch:
        return True
    return other.ended < mine.began
