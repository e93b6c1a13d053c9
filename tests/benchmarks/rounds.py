"""Paired rounds: in each, every engine does the same work on the same data, one after the other, in changing order.

A round's figures are compared only with figures of the same round, so what disturbs the machine for longer than a
round disturbs both sides of a ratio.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")
Clock: TypeAlias = Literal["wall", "cpu"]
Size: TypeAlias = Literal["tiny", "quick", "full"]
SHORTEST_S = 1e-9
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Plan:
    """What the caller asked for.

    size: which of its sizes a family takes: ``tiny`` only shows that it works, ``quick`` suits a look, ``full`` counts
    clock: ``wall`` time, or ``cpu`` time of the whole process, its threads included, for machines that are busy
    only: subjects to run; empty = all
    """

    rounds: int = 5
    size: Size = "full"
    clock: Clock = "wall"
    only: tuple[str, ...] = ()

    def choose(self, tiny: T, quick: T, full: T) -> T:
        """The one that goes with ``size``."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]

    def takes(self, subject: str) -> bool:
        """Whether ``subject`` runs."""
        return not self.only or subject in self.only


@dataclass
class Samples:
    """Every figure: for each measure and subject one for each round. A measure has one unit.

    times: of measures that count single operations, the milliseconds of each, of all rounds together
    """

    units: dict[str, str] = field(default_factory=dict)
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    times: dict[str, dict[str, array[float]]] = field(default_factory=dict)

    def add(self, measure: str, subject: str, value: float, unit: str) -> None:
        self.units[measure] = unit
        self.found.setdefault(measure, {}).setdefault(subject, []).append(value)

    def add_times(self, measure: str, subject: str, milliseconds: Iterable[float]) -> None:
        self.times.setdefault(measure, {}).setdefault(subject, array("f")).extend(milliseconds)

    def median(self, measure: str, subject: str) -> float:
        return statistics.median(self.found[measure][subject])

    def has(self, measure: str, subject: str) -> bool:
        return subject in self.found.get(measure, {})

    def ratio(self, measure: str, subject: str, to_measure: str, to_subject: str) -> float:
        """The median of the ratios of each round."""
        pairs = zip(self.found[measure][subject], self.found[to_measure][to_subject], strict=True)
        return statistics.median(one / other if other else float("inf") for one, other in pairs)


@dataclass
class Watch:
    """Seconds of each clock, once the `stopwatch` has stopped."""

    seconds: dict[str, float] = field(default_factory=dict)


@contextmanager
def stopwatch() -> Iterator[Watch]:
    """Measure the block by every clock.

    What is alive before is kept out of the garbage collector's sight, so that the benchmark's own rows do not slow down
    the engine that allocates most."""
    watch = Watch()
    gc.collect()
    gc.freeze()
    try:
        started = {name: clock() for name, clock in CLOCKS.items()}
        yield watch
        watch.seconds = {name: max(clock() - started[name], SHORTEST_S) for name, clock in CLOCKS.items()}
    finally:
        gc.unfreeze()


@dataclass(frozen=True)
class Turn:
    """One round of a family."""

    number: int
    plan: Plan
    samples: Samples

    def in_order(self, subjects: Sequence[T]) -> Sequence[T]:
        """``subjects``, forwards and backwards in turn, beginning with another one every second round."""
        first = self.number // 2 % len(subjects) if subjects else 0
        turned = [*subjects[first:], *subjects[:first]]
        return turned[:: -1 if self.number % 2 else 1]

    def record(self, measure: str, subject: str, value: float, unit: str = "rows/s") -> None:
        self.samples.add(measure, subject, value, unit)

    @contextmanager
    def timed(self, measure: str, subject: str, count: int, unit: str = "rows/s") -> Iterator[None]:
        """Record how many of ``count`` were done a second."""
        with stopwatch() as watch:
            yield
        self.record(measure, subject, count / watch.seconds[self.plan.clock], unit)


@contextmanager
def folder() -> Iterator[str]:
    """A fresh folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="slate-bench-", ignore_cleanup_errors=True) as path:
        yield path


class WrongAnswerError(Exception):
    """An engine did not answer what was written."""


def require(truth: bool, subject: str, what: str) -> None:
    """Raise `WrongAnswerError` unless ``truth``."""
    if not truth:
        raise WrongAnswerError(f"{subject}: {what} gave a wrong answer")
