"""Runs one seed of one scenario, or many over several worker processes.

``python -m tests.simulation.runner SCENARIO SEED`` prints the digest of one seed's trace and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType

from tests.simulation.catalogue import SCENARIOS
from tests.simulation.checkers import Violation

MESSAGE_CHARS = 2000
IMPORTING_SEEDS = 4
"""So many seeds have imported all that the product imports late."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What came of one seed.

    kind: one word for the failure (a `Violation`'s kind or the error's class), ``None`` if there was none
    seconds: virtual
    """

    scenario: str
    seed: int
    kind: str | None
    message: str
    digest: str
    steps: int
    seconds: float
    stats: dict[str, int] = field(default_factory=dict)
    trace: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether anything was wrong."""
        return self.kind is not None


class TooSlowError(KeyboardInterrupt):
    """One seed used up its real time: code that never comes back to the loop.

    A keyboard interrupt, for that is what tasks and callbacks let through."""


def run_seed(scenario: str, seed: int, *, keep_trace: bool = False) -> SeedResult:
    """Run one seed. Any failure becomes part of the result."""
    chosen = SCENARIOS[scenario]
    world = chosen.make(seed, keep_trace)
    kind, message, stats = None, "", {}
    try:
        stats = world.run(chosen.play(world))
    except Violation as violation:
        kind, message = violation.kind, str(violation)
    except TooSlowError:
        raise
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any failure is a result, not the end of the run
        kind, message = type(error).__name__, "".join(traceback.format_exception(error))[-MESSAGE_CHARS:]
    trace = world.trace
    return SeedResult(
        scenario, seed, kind, message, trace.digest(), world.loop.steps, world.loop.time(), stats, tuple(trace.lines)
    )


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TooSlowError` in this (main) thread after so many real seconds."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Frozen:
    """What is there before a world need not be looked at each time that garbage is collected, twice a world: half of
    it came with the first seeds, which import much. ``left``: seeds after which what is there is frozen again.

    It stays frozen: what `tests.conftest` froze is worth 100 times a world's own objects."""

    def __init__(self) -> None:
        self.left = IMPORTING_SEEDS
        gc.collect()
        gc.freeze()

    def seed_ended(self) -> None:
        """A world was thrown away."""
        if self.left:
            self.left -= 1
            gc.freeze()


_frozen: _Frozen | None = None


def _worker_starts() -> None:
    global _frozen
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _frozen = _Frozen()


@contextlib.contextmanager
def _freezing() -> Iterator[None]:
    global _frozen
    _frozen = _Frozen()
    try:
        yield
    finally:
        _frozen = None


def _run_limited(job: tuple[str, int, int]) -> SeedResult:
    scenario, seed, limit_seconds = job
    try:
        with limited(limit_seconds):
            return run_seed(scenario, seed)
    except TooSlowError as error:
        return SeedResult(scenario, seed, "too-slow", str(error), "", 0, 0.0)
    finally:
        if _frozen is not None:
            _frozen.seed_ended()


def run_seeds(scenario: str, seeds: Iterable[int], *, jobs: int = 1, limit_seconds: int = 120) -> Iterator[SeedResult]:
    """Results as they come. With ``jobs`` 1 in this process, else in that many worker processes."""
    work = [(scenario, seed, limit_seconds) for seed in seeds]
    if jobs == 1:
        with _freezing():
            yield from map(_run_limited, work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _worker_starts) as pool:
        yield from pool.imap_unordered(_run_limited, work, chunksize=max(1, min(20, len(work) // (4 * jobs))))


if __name__ == "__main__":
    result = run_seed(sys.argv[1], int(sys.argv[2]))
    print(result.digest, result.steps, result.kind)
