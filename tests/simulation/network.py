"""The way of a request from a simulated process to a shared store, and of the answer back.

Invariant: an effect runs in the world outside all processes, in one step, at the time it lands; a process that crashed
sends nothing more, but what it had sent may still land. A process that stands still does not see answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol, TypeVar

from tests.simulation.faults import Fault, FaultPlan, RequestFailedError, Rule
from tests.simulation.loop import SimLoop
from tests.simulation.trace import Trace

T = TypeVar("T")
QUIET_POLL_SECONDS = 0.5


class Sender(Protocol):
    """The sender of a request: a simulated process."""

    @property
    def name(self) -> str:
        """Its name, unique to this life of it."""

    @property
    def dead(self) -> bool:
        """Whether it crashed."""

    @property
    def fault_rng(self) -> random.Random:
        """Decides the fates of its requests."""


class Request:
    """One request under way. ``landed`` once its effect has run."""

    __slots__ = ("_effect", "dropped", "error", "key", "landed", "number", "operation", "reply", "sender", "value")

    def __init__(
        self,
        number: int,
        sender: Sender,
        operation: str,
        key: str,
        effect: Callable[[], Any],
        reply: asyncio.Future[Any],
    ) -> None:
        self.number = number
        self.sender = sender
        self.operation = operation
        self.key = key
        self.reply = reply
        self.landed = False
        self.dropped = False
        self.value: Any = None
        self.error: Exception | None = None
        self._effect = effect

    def land(self) -> str:
        """Run the effect. Returns a word for the trace."""
        self.landed = True
        try:
            self.value = self._effect()
        except Exception as error:  # noqa: BLE001 - it is the answer, whatever it is
            self.error = error
            return type(error).__name__
        return "ok"


class Observer(Protocol):
    """Is called with each request in the very step in which it has its effect."""

    def landing(self, request: Request) -> None:
        """Right before the effect."""

    def landed(self, request: Request) -> None:
        """Right after it."""


class Network:
    """Carries requests. ``plan`` may be replaced at any time; it decides the requests sent from then on. ``observers``
    are called with their effects, and may not raise."""

    def __init__(self, loop: SimLoop, trace: Trace, plan: FaultPlan, world: Context) -> None:
        self._loop = loop
        self._trace = trace
        self._world = world
        self.plan = plan
        self.rules: list[Rule] = []
        self.observers: list[Observer] = []
        self.held: dict[int, Request] = {}
        self._under_way: dict[int, Request] = {}

    async def send(self, sender: Sender, operation: str, key: str, effect: Callable[[], T], *, write: bool) -> T:
        """Carry one request; return what ``effect`` returns or raise what it raises.

        Raises `RequestFailedError` when a fault hides the answer."""
        reply: asyncio.Future[T] = self._loop.create_future()
        if sender.dead:
            return await reply
        request = Request(self._loop.next_number(), sender, operation, key, effect, reply)
        fault, late_seconds = self._fate(request, write=write)
        self._trace.add(sender.name, f"send {operation}", key, fault.value)
        self._under_way[request.number] = request
        self._start(request, fault, late_seconds)
        try:
            return await reply
        except asyncio.CancelledError:
            if not sender.dead:
                self._abandon(request)
            raise

    def _fate(self, request: Request, *, write: bool) -> tuple[Fault, float | None]:
        for rule in self.rules:
            if rule.times > 0 and rule.matches(request.sender.name, request.operation, request.key):
                rule.times -= 1
                return rule.fault, rule.late_seconds
        return self.plan.draw(request.sender.fault_rng, write=write), None

    def _start(self, request: Request, fault: Fault, late_seconds: float | None) -> None:
        rng, plan = request.sender.fault_rng, self.plan
        there, back = plan.latency_of(rng), plan.latency_of(rng)
        if fault is Fault.DELAYED:
            slow = plan.delay_of(rng)
            there, back = (there + slow, back) if rng.random() < 0.5 else (there, back + slow)
        if fault is Fault.HELD:
            self.held[request.number] = request
        elif fault in (Fault.NONE, Fault.DELAYED):
            self._later(there, self._land, request)
            self._later(there + back, self._answer, request)
        else:
            if fault is Fault.LOST_RESPONSE:
                self._later(there, self._land, request)
            elif fault is Fault.LATE:
                late = plan.lateness_of(rng) if late_seconds is None else late_seconds
                self._later(there + back + late, self._land, request)
            else:
                del self._under_way[request.number]
            self._later(there + back, self._fail, request, fault)

    def _later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(seconds, function, *args, context=self._world)

    def release(self, request: Request, *, answer: bool = True) -> None:
        """Land a held request now, and let its answer travel; without ``answer`` the caller sees an unknown outcome."""
        del self.held[request.number]
        self._land(request)
        back = self.plan.latency_of(request.sender.fault_rng)
        if answer:
            self._later(back, self._answer, request)
        else:
            self._later(back, self._fail, request, Fault.LOST_RESPONSE)

    def _land(self, request: Request) -> None:
        self._under_way.pop(request.number, None)
        if not request.dropped:
            for observer in self.observers:
                observer.landing(request)
            word = request.land()
            self._trace.add(request.sender.name, f"land {request.operation}", request.key, word)
            for observer in self.observers:
                observer.landed(request)

    def _answer(self, request: Request) -> None:
        if request.sender.dead or request.reply.done():
            return
        if request.error is not None:
            request.reply.set_exception(request.error)
        else:
            request.reply.set_result(request.value)

    def _fail(self, request: Request, fault: Fault) -> None:
        if not request.sender.dead and not request.reply.done():
            request.reply.set_exception(RequestFailedError(fault, f"{request.operation} {request.key}"))

    def _abandon(self, request: Request) -> None:
        """Nobody waits any more. What is still on its way may get lost on it."""
        if request.landed or request.number not in self._under_way:
            return
        if request.sender.fault_rng.random() >= self.plan.lands_after_crash:
            request.dropped = True
            self.held.pop(request.number, None)
            del self._under_way[request.number]
            self._trace.add(request.sender.name, f"drop {request.operation}", request.key, "abandoned")

    def crashed(self, sender: Sender) -> None:
        """The sender has ended: each of its requests under way arrives or gets lost."""
        for request in [held for held in self._under_way.values() if held.sender is sender]:
            self._abandon(request)

    @property
    def under_way(self) -> int:
        """Requests that will still have an effect."""
        return len(self._under_way)

    async def quiet(self) -> None:
        """Wait until no request is under way: every late effect has landed. Held ones must have been released."""
        while self._under_way:
            if len(self.held) == len(self._under_way):
                raise RuntimeError("only held requests are left; release them first")
            await asyncio.sleep(QUIET_POLL_SECONDS)
