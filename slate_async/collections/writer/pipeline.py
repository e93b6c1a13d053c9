"""`Pipeline`: some appends in flight at once, acknowledged in the order in which they were accepted.

Invariants:
* an append is acknowledged only after all that were accepted before it
* if one fails, those accepted behind it fail too: they may be in, and lie beyond a gap that somebody may fill
* what was accepted goes on, whatever becomes of the task that waits for it; before that, cancelling changes nothing
* appends are accepted in the order of the calls
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from slate_async.errors import ClosedError, UnavailableError
from slate_async.runtime.supervisor import Supervisor

P = TypeVar("P")
logger = logging.getLogger(__name__)


class Append(Protocol):
    """An append that was accepted."""

    async def send(self) -> None:
        """Have it in. Raises what became of it. Runs beside the ``send`` of others."""
        ...

    def acknowledge(self) -> None:
        """It is in, and so is all that was accepted before it."""
        ...


class Pipeline:
    """Appends of one writer.

    parallelism: so many are in flight at most
    on_failure: called when an append has failed and nothing that was accepted after it will be acknowledged
    """

    def __init__(self, supervisor: Supervisor, parallelism: int, on_failure: Callable[[], None]) -> None:
        self._supervisor = supervisor
        self._turn = asyncio.Lock()
        self._slots = asyncio.Semaphore(parallelism)
        self._on_failure = on_failure
        self._chain = _Chain()
        self._running: set[asyncio.Task[None]] = set()

    async def append(self, prepare: Callable[[], Awaitable[P]], accept: Callable[[P], Append]) -> None:
        """Run one append to its acknowledgement.

        prepare: runs when it is this call's turn and fewer than ``parallelism`` are in flight; nothing else is accepted
        meanwhile
        accept: takes what that gave, without waiting. From then on the append is owned by its task

        Raises what these two and `Append.send` raise; `UnavailableError` (outcome unknown) if an earlier append
        failed."""
        async with self._turn:
            await self._slots.acquire()
            try:
                flight = self._start(accept(await prepare()))
            except BaseException:
                self._slots.release()
                raise
        await flight.answer  # cancelling that ends nothing but the wait

    async def drain(self) -> None:
        """Wait until all that was accepted has ended."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self, append: Append) -> _Flight:
        flight, chain = _Flight(append), self._chain
        task = self._supervisor.spawn("append", append.send(), critical=False)
        chain.flights.append(flight)
        self._running.add(task)
        task.add_done_callback(lambda sent: self._sent(flight, chain, sent))
        return flight

    def _sent(self, flight: _Flight, chain: _Chain, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            flight.cut_off = True
            flight.failure = ClosedError("the writer closed before the append ended", outcome="unknown")
        else:
            flight.failure = task.exception()
        flight.is_over = True
        while chain.flights and chain.flights[0].is_over:
            self._end(chain.flights.popleft(), chain)
            self._slots.release()

    def _end(self, flight: _Flight, chain: _Chain) -> None:
        """All that was accepted before it in ``chain`` has ended."""
        failure = flight.failure
        if chain.is_broken and not flight.cut_off:
            failure = UnavailableError(
                "an append before this one failed, so this one is not acknowledged; it may be in", outcome="unknown"
            )
            failure.__cause__ = flight.failure
        elif failure is None:
            flight.append.acknowledge()
        elif not chain.is_broken:
            chain.is_broken = True
            self._chain = _Chain()
            self._on_failure()
        flight.tell(failure)


class _Flight:
    """An append that was accepted.

    answer: what its caller waits for; cancelled if nobody does any more
    is_over: whether its task has ended, with ``failure`` if that is set. ``cut_off``: because the writer closed
    """

    def __init__(self, append: Append) -> None:
        self.append = append
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure: BaseException | None = None
        self.is_over = self.cut_off = False

    def tell(self, failure: BaseException | None) -> None:
        """Wake the caller."""
        if self.answer.done():
            if failure is not None:
                logger.warning("an append that nobody waits for any more failed: %s", failure)
        elif failure is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(failure)


@dataclass(slots=True)
class _Chain:
    """Appends that follow one another without a gap, the oldest first, until each was answered. One that fails breaks
    it, and the next call begins another."""

    flights: deque[_Flight] = field(default_factory=deque)
    is_broken: bool = False
