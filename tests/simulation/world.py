"""A simulated world: one loop, one network, one cloud, any number of processes; all of it decided by one seed.

    def scenario(world: World) -> Coroutine: ...
    world = World(seed=7)
    world.run(scenario(world))

Ordering rule of an end: the scenario returns; what still waits is thrown away without running; then failures that
nobody looked at are reported.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import logging
import sys
import warnings
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from tests.simulation.anyio_order import forget_task, ordered_cancel_scopes
from tests.simulation.faults import NO_FAULTS, FaultPlan, Rule
from tests.simulation.loop import DOMAIN, Domain, Interleaving, SimFuture, SimLoop, SimTask
from tests.simulation.network import Network
from tests.simulation.node import Cloud, Node
from tests.simulation.runtime import START_MS, OffloadDelay, SimClock, derived_rng
from tests.simulation.store import Conditions, SimStore
from tests.simulation.trace import Trace

T = TypeVar("T")


class UnhandledError(Exception):
    """A task or a callback of a living process failed and nobody looked at it."""


class World:
    """See the module docstring.

    plan: the faults of every request from now on; assign `tests.simulation.faults.NO_FAULTS` for a calm phase
    max_seconds: virtual time the scenario may take
    """

    def __init__(
        self,
        seed: int,
        *,
        plan: FaultPlan = NO_FAULTS,
        conditions: Conditions = Conditions.EXACT,
        interleaving: Interleaving = Interleaving.DOMAINS,
        offload: OffloadDelay | None = None,
        max_seconds: float = 3600.0,
        max_steps: int = 2_000_000,
        keep_trace: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = derived_rng(seed, "world")
        self.loop = SimLoop(
            derived_rng(seed, "loop"), interleaving=interleaving, max_seconds=max_seconds, max_steps=max_steps
        )
        self.trace = Trace(self.loop.time, keep=keep_trace)
        self._context = contextvars.Context()
        self.network = Network(self.loop, self.trace, plan, self._context)
        self.cloud = Cloud(self.network, SimStore(self._store_ms, conditions))
        self._offload = OffloadDelay() if offload is None else offload
        self._lives: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.unhandled: list[str] = []
        self.loop.set_exception_handler(self._note_unhandled)

    def _store_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    # ---- processes

    def node(self, name: str, *, skew_ms: int = 0, drift_ppm: int = 0) -> Node:
        """Start a process. A second one under the same name is a restart and is named ``name.2``."""
        life = self._lives[name] = self._lives.get(name, 0) + 1
        full = name if life == 1 else f"{name}.{life}"
        clock = SimClock(self.loop.time, skew_ms, drift_ppm)
        node = self._context.copy().run(
            Node, self.loop, self.network, self.trace, full, self.seed, clock, self._offload
        )
        self.nodes[full] = node
        self.trace.add(full, "start", "", f"{skew_ms} {drift_ppm}")
        return node

    @property
    def plan(self) -> FaultPlan:
        """The faults of requests sent from now on."""
        return self.network.plan

    @plan.setter
    def plan(self, plan: FaultPlan) -> None:
        self.network.plan = plan

    def rule(self, rule: Rule) -> Rule:
        """Add a fault on purpose."""
        self.network.rules.append(rule)
        return rule

    # ---- running

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run the scenario to its end and throw the rest away. A world runs once.

        Raises what the scenario raises, `tests.simulation.loop.SimulationError`, or `UnhandledError`."""
        with _paused_gc(), ordered_cancel_scopes():
            try:
                task = self.loop.create_task(scenario, name="scenario", context=self._context.copy())
                result: T = self.loop.run_until_complete(task)
                self.trace.add("world", "end", "", f"{self.loop.steps} steps")
                self._find_unhandled()
            finally:
                self._discard()
        if self.unhandled:
            raise UnhandledError("\n".join(self.unhandled))
        return result

    def _domains(self) -> list[Domain]:
        return [self.loop.world, *(node.domain for node in self.nodes.values())]

    def _find_unhandled(self) -> None:
        """Failed tasks and futures that nothing refers to any more report themselves when they are collected."""
        for domain in self._domains():
            domain.tasks = {task.number: task for task in domain.pending()}
        gc.collect()

    def _discard(self) -> None:
        """Throw away what still waits, and its garbage. ``finally`` blocks run, but the processes they run in have
        ended.

        Garbage left to be found later would run those blocks at any time of the interpreter's.
        """
        self.loop.discarding = True
        for domain in self._domains():
            self.loop.drop_domain(domain)
        with _unheard():
            for domain in self._domains():
                for task in domain.pending():
                    _close(task, domain)
                domain.tasks.clear()
            self.loop.close()
            gc.collect()

    def _note_unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        culprit = context.get("task") or context.get("future")
        domain = culprit.domain if isinstance(culprit, (SimTask, SimFuture)) else DOMAIN.get()
        if self.loop.discarding or (domain is not None and domain.dead):
            return
        owner = "world" if domain is None else domain.name
        name = culprit.get_name() if isinstance(culprit, SimTask) else ""
        self.unhandled.append(f"{owner} {name}: {context.get('message')}: {context.get('exception')!r}")


def _close(task: SimTask, domain: Domain) -> None:
    """Close the coroutine of a task that will never run again."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    context = contextvars.Context()
    context.run(DOMAIN.set, domain)
    coro = task.get_coro()
    if coro is not None:
        # A finally block may do anything, and whatever it does comes too late.
        with contextlib.suppress(BaseException):
            context.run(coro.close)
    forget_task(task)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """What code says that is thrown away in the middle is no news."""
    before, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = before
        logging.disable(disabled)


@contextlib.contextmanager
def _paused_gc() -> Iterator[None]:
    """No cyclic garbage collection: when it finds things depends on the machine, and finding them runs code."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
