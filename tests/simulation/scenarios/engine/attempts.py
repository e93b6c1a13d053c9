"""Who tried to open the database when: what decides which acknowledgements of level ``flushed`` are promises.

A flushed write lies in the store, every earlier one too, when it is acknowledged. A take-over that begins later lists
it and inherits it; one that was under way may have listed before. So the acknowledgement is a promise unless some
other opening, not ended before this writer was open, began before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.linearizability import NEVER


@dataclass(slots=True)
class Attempt:
    """One call of open. ``opened`` when it succeeded, ``ended`` when it did or failed or its process crashed."""

    name: str
    began: float
    opened: float = NEVER
    ended: float = NEVER


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
        return all(other is mine or other.ended <= mine.opened for other in self.made)
