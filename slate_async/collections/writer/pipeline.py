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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slate_async.errors import ClosedError, SlateError, UnavailableError
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
                task = self._start(accept(await prepare()))
            except BaseException:
                self._slots.release()
                raise
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise
        if task.cancelled():
            raise ClosedError("the writer closed before the append ended", outcome="unknown")
        task.result()

    async def drain(self) -> None:
        """Wait until all that was accepted has ended."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self, append: Append) -> asyncio.Task[None]:
        chain = self._chain
        task = self._supervisor.spawn("append", self._run(append, chain, chain.last), critical=False)
        chain.last = task
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, chain))
        return task

    async def _run(self, append: Append, chain: _Chain, before: asyncio.Task[None] | None) -> None:
        failure: SlateError | None = None
        try:
            await append.send()
        except SlateError as error:
            failure = error
        if before is not None:
            await asyncio.wait([before])
        if chain.broken:
            raise UnavailableError(
                "an append before this one failed, so this one is not acknowledged; it may be in", outcome="unknown"
            ) from failure
        if failure is not None:
            raise failure
        append.acknowledge()

    def _ended(self, task: asyncio.Task[None], chain: _Chain) -> None:
        """Runs before the task that waits for this one goes on."""
        self._running.discard(task)
        if not chain.broken and (task.cancelled() or task.exception() is not None):
            chain.broken = True
            self._chain = _Chain()
            self._on_failure()
        self._slots.release()


@dataclass(slots=True)
class _Chain:
    """Appends that follow one another without a gap. One that fails breaks it, and the next call begins another."""

    last: asyncio.Task[None] | None = None
    broken: bool = False


def _log_failure(task: asyncio.Task[None]) -> None:
    """Nobody waits for it any more."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.warning("an append that nobody waits for any more failed: %s", failure)
