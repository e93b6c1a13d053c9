"""What may happen to one request, and how often.

==============  =============================  =======================================
fault           effect                         what the caller sees
==============  =============================  =======================================
NONE            after the request's way        the answer
DELAYED         late, or its answer is late    the answer, much later
THROTTLED       none                           failure, certainly not applied
REFUSED         none                           failure, certainly not applied
FAILED_BEFORE   none                           failure, outcome unknown
LOST_RESPONSE   after the request's way        failure, outcome unknown
LATE            long after, in any case        failure, outcome unknown, long before
HELD            when `Network.release` says    nothing until then
==============  =============================  =======================================

Conditions of conditional writes are judged at the time of the effect.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Outcome = Literal["not_applied", "unknown"]


class Fault(enum.Enum):
    """See the module docstring."""

    NONE = "ok"
    DELAYED = "delayed"
    THROTTLED = "throttled"
    REFUSED = "refused"
    FAILED_BEFORE = "failed-before"
    LOST_RESPONSE = "lost-response"
    LATE = "late"
    HELD = "held"


UNSEEN = (Fault.FAILED_BEFORE, Fault.LOST_RESPONSE, Fault.LATE)
"""After these a caller cannot know whether its write is in."""


class RequestFailedError(Exception):
    """A simulated request got no answer. Adapters translate it into the errors of their protocol."""

    def __init__(self, fault: Fault, what: str) -> None:
        super().__init__(f"{what}: simulated fault: {fault.value}")
        self.outcome: Outcome = "unknown" if fault in UNSEEN else "not_applied"
        self.fault = fault


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Rates are probabilities; times are virtual seconds, each a range drawn from evenly (``late``: by magnitude)."""

    delayed: float = 0.03
    throttled: float = 0.02
    refused: float = 0.02
    failed_before: float = 0.05
    lost_response: float = 0.05
    late: float = 0.06
    read_failed: float = 0.04
    lands_after_crash: float = 0.5
    """A request under way when its process crashes, or its caller is cancelled, still arrives with this probability."""
    latency: tuple[float, float] = (0.002, 0.03)
    delay: tuple[float, float] = (0.1, 3.0)
    lateness: tuple[float, float] = (0.02, 60.0)

    def draw(self, rng: random.Random, *, write: bool) -> Fault:
        """The fate of one request."""
        x = rng.random()
        rates = self._write_rates() if write else self._read_rates()
        for fault, rate in rates:
            x -= rate
            if x < 0:
                return fault
        return Fault.NONE

    def _write_rates(self) -> tuple[tuple[Fault, float], ...]:
        return (
            (Fault.DELAYED, self.delayed),
            (Fault.THROTTLED, self.throttled),
            (Fault.REFUSED, self.refused),
            (Fault.FAILED_BEFORE, self.failed_before),
            (Fault.LOST_RESPONSE, self.lost_response),
            (Fault.LATE, self.late),
        )

    def _read_rates(self) -> tuple[tuple[Fault, float], ...]:
        return ((Fault.DELAYED, self.delayed), (Fault.THROTTLED, self.throttled), (Fault.REFUSED, self.read_failed))

    def scaled(self, factor: float) -> FaultPlan:
        """The same plan with every rate multiplied."""
        return replace(
            self,
            delayed=self.delayed * factor,
            throttled=self.throttled * factor,
            refused=self.refused * factor,
            failed_before=self.failed_before * factor,
            lost_response=self.lost_response * factor,
            late=self.late * factor,
            read_failed=self.read_failed * factor,
        )

    def latency_of(self, rng: random.Random) -> float:
        """Seconds one way takes."""
        return rng.uniform(*self.latency)

    def delay_of(self, rng: random.Random) -> float:
        """Seconds a slow request takes."""
        return rng.uniform(*self.delay)

    def lateness_of(self, rng: random.Random) -> float:
        """Seconds between a failure and the effect that nobody expects any more."""
        low, high = self.lateness
        return math.exp(rng.uniform(math.log(low), math.log(high)))


NO_FAULTS = FaultPlan().scaled(0)
"""Every request succeeds after its latency."""


@dataclass(slots=True)
class Rule:
    """A fault on purpose: the next ``times`` requests that match get it, before any plan is asked.

    ``matches`` gets process name, operation and key. ``late_seconds`` fixes the lateness of `Fault.LATE`."""

    matches: Callable[[str, str, str], bool]
    fault: Fault
    times: int = 1
    late_seconds: float | None = None
