"""The event loop of the simulator: virtual time, seeded order, no I/O, no threads.

Every callback belongs to a *domain*: the simulated process in whose context it was scheduled. A domain has a queue of
its own, so a whole process can stand still (`Domain.frozen`) or have ended (`Domain.dead`) whatever its tasks would do
next. Which domain runs next is drawn from the seeded generator; within one domain callbacks run in the order they were
scheduled, as asyncio promises, unless `Interleaving.SHUFFLED` asks for more than asyncio promises.

Time moves by ``step_seconds`` with every callback, and jumps to the next timer when no callback can run.

Ordering rule: tasks and futures hash by the order they were made in, so that the sets asyncio keeps of them iterate
the same way in every run.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PRUNE_EVERY = 256


class SimulationError(Exception):
    """The simulated program cannot go on. The message lists the tasks that wait."""


class DeadlockError(SimulationError):
    """Tasks wait, and nothing is scheduled that could wake them."""


class OutOfTimeError(SimulationError):
    """Virtual time passed its limit."""


class OutOfStepsError(SimulationError):
    """More callbacks ran than the limit allows: a loop that never waits, or a limit set too low."""


class Interleaving(enum.Enum):
    """Which of all runnable domains runs next."""

    FIFO = "fifo"
    """The oldest callback of all."""
    DOMAINS = "domains"
    """A random process; its oldest callback. What real machines do."""
    SHUFFLED = "shuffled"
    """A random process; any of its callbacks. More than asyncio allows: finds code that leans on its order."""


class Domain:
    """The share of one simulated process in the loop."""

    __slots__ = ("_after_step", "_alarms", "dead", "frozen", "name", "ready", "steps", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[tuple[int, asyncio.Handle]] = deque()
        self.frozen = False
        self.dead = False
        self.steps = 0
        self.tasks: dict[int, SimTask] = {}
        self._after_step: list[tuple[int, int, Callable[[], None]]] = []
        self._alarms = 0

    def call_after_steps(self, steps: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` right after this domain has run ``steps`` more callbacks, before anything else runs."""
        self._alarms += 1
        heapq.heappush(self._after_step, (self.steps + steps, self._alarms, callback))

    def stepped(self) -> None:
        """One more callback ran."""
        self.steps += 1
        while self._after_step and self._after_step[0][0] <= self.steps:
            heapq.heappop(self._after_step)[2]()

    def pending(self) -> list[SimTask]:
        """Its tasks that have not ended, oldest first."""
        return [task for task in self.tasks.values() if not task.done()]


DOMAIN: ContextVar[Domain | None] = ContextVar("simulated_process", default=None)
"""The process whose code is running. ``None`` is the world outside all processes."""


class SimFuture(asyncio.Future[Any]):
    """A future that hashes by its number and knows the process it was made in."""

    def __init__(self, number: int, domain: Domain, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.domain = domain
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its number and knows its process."""

    def __init__(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        number: int,
        domain: Domain,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self.number = number  # before the rest: asyncio hashes the task while it constructs it
        self.domain = domain
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """See the module docstring. ``rng`` decides the order of processes and nothing else."""

    def __init__(
        self,
        rng: random.Random,
        *,
        interleaving: Interleaving = Interleaving.DOMAINS,
        step_seconds: float = 1e-6,
        max_steps: int = 5_000_000,
        max_seconds: float = 1e6,
    ) -> None:
        super().__init__()
        self._rng = rng
        self._interleaving = interleaving
        self._step_seconds = step_seconds
        self._max_steps = max_steps
        self._max_seconds = max_seconds
        self._now = 0.0
        self._number = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Domain]] = []
        self.world = Domain("world")
        self._domains = [self.world]
        self.steps = 0
        self.discarding = False

    # ---- domains

    def add_domain(self, name: str) -> Domain:
        """A new simulated process."""
        domain = Domain(name)
        self._domains.append(domain)
        return domain

    def drop_domain(self, domain: Domain) -> None:
        """Nothing of this process runs any more: what it has scheduled and will schedule is forgotten."""
        domain.dead = True
        domain.ready.clear()
        if domain in self._domains:
            self._domains.remove(domain)

    def _domain(self, context: Context | None) -> Domain:
        domain = DOMAIN.get() if context is None else context.get(DOMAIN)
        return self.world if domain is None else domain

    # ---- what asyncio asks of a loop

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def next_number(self) -> int:
        """Numbers everything the loop makes, in order."""
        self._number += 1
        return self._number

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` in the process of its context."""
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        domain = self._domain(context)
        if not domain.dead:
            domain.ready.append((self.next_number(), handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """`call_soon`; from another thread it is refused."""
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            raise RuntimeError("the simulator has one thread")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at a virtual time."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        domain = self._domain(context)
        if not domain.dead:
            heapq.heappush(self._timers, (when, self.next_number(), timer, domain))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run ``callback`` ``delay`` virtual seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def create_future(self) -> SimFuture:
        """A future that hashes by its number."""
        return SimFuture(self.next_number(), self._domain(None), loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> SimTask:
        """A task that hashes by its number and runs in the process of its context."""
        self._check_closed()  # type: ignore[attr-defined]
        number = self.next_number()
        domain = self._domain(context)
        title = f"task {number}" if name is None else str(name)
        task = SimTask(coro, number=number, domain=domain, loop=self, name=title, context=context)
        domain.tasks[number] = task
        if len(domain.tasks) % PRUNE_EVERY == 0:
            domain.tasks = {other.number: other for other in domain.pending()}
        return task

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Refused: a thread would make the run depend on the machine."""
        raise RuntimeError("the simulator has no threads; CPU work goes through Runtime.offload")

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self.discarding:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    # ---- the heart

    def _run_once(self) -> None:
        domain = self._pick()
        if domain is None:
            self._jump()
            return
        handle = self._take(domain)
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise OutOfStepsError(f"{self._max_steps} steps were not enough at {self._now:.6f} s\n{self.waiting()}")
        self._now += self._step_seconds
        handle._run()
        domain.stepped()
        if self._timers and self._timers[0][0] <= self._now:
            self._release_timers()

    def _pick(self) -> Domain | None:
        able = [domain for domain in self._domains if domain.ready and not domain.frozen]
        if len(able) < 2:
            return able[0] if able else None
        if self._interleaving is Interleaving.FIFO:
            return min(able, key=lambda domain: domain.ready[0][0])
        return able[self._rng.randrange(len(able))]

    def _take(self, domain: Domain) -> asyncio.Handle:
        if self._interleaving is Interleaving.SHUFFLED and len(domain.ready) > 1:
            index = self._rng.randrange(len(domain.ready))
            handle = domain.ready[index][1]
            del domain.ready[index]
            return handle
        return domain.ready.popleft()[1]

    def _jump(self) -> None:
        """Nothing can run: go to the next time at which something may."""
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][3].dead):
            heapq.heappop(self._timers)
        if not self._timers:
            raise DeadlockError(f"nothing is scheduled at {self._now:.6f} s\n{self.waiting()}")
        self._now = max(self._now, self._timers[0][0])
        if self._now > self._max_seconds:
            raise OutOfTimeError(f"the limit of {self._max_seconds:.0f} virtual seconds is past\n{self.waiting()}")
        self._release_timers()

    def _release_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            _, number, timer, domain = heapq.heappop(self._timers)
            if not timer.cancelled() and not domain.dead:
                domain.ready.append((number, timer))

    # ---- what waits

    def waiting(self) -> str:
        """One line for each task that has not ended: its process, its name, where it waits."""
        lines = [
            f"  {domain.name}{' (frozen)' if domain.frozen else ''}: {task.get_name()} at {_place(task)}"
            for domain in self._domains
            for task in domain.pending()
        ]
        return "waiting tasks:\n" + ("\n".join(lines) if lines else "  none")


def _place(task: SimTask) -> str:
    """File, line and function of the innermost frame of a suspended task."""
    frame: Any = None
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None) or frame
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    if frame is None:
        return "its start"
    file = "/".join(frame.f_code.co_filename.split("/")[-2:])
    return f"{file}:{frame.f_lineno} in {frame.f_code.co_qualname}"
