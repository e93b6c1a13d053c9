"""`Handle`: the life of what is opened and closed: a database, a reader, a compactor, ...

| state   | calls                    | it ends by                                        | next state |
|---------|--------------------------|---------------------------------------------------|------------|
| open    | are served               | `close`                                           | closing    |
|         |                          | a newer owner of its role                         | fenced     |
|         |                          | any other failure of a background task            | failed     |
| closing | `ClosedError`            | the end of `_finish`, of tasks and of resources   | closed     |
|         |                          | a newer owner, or a failure, before that          | fenced, failed |
| fenced  | `FencedError`, the cause | nothing: `close` waits for tasks and resources    |            |
| failed  | `ClosedError`, the cause | nothing: `close` waits for tasks and resources    |            |
| closed  | `ClosedError`            | nothing                                           |            |

From the step on in which a state is entered every call fails, and every call in flight. All methods belong to the event
loop that opened the handle; a call from another loop, from another thread or from a fork is `InvalidError`.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import anyio

from slate_async.engine.context import DatabaseContext
from slate_async.errors import ClosedError, FencedError, InvalidError, Outcome, SlateError
from slate_async.runtime.concurrent import run_all
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.loop_handle import close_at_exit
from slate_async.runtime.polling import StorePolls
from slate_async.runtime.shared import Closable
from slate_async.runtime.slots import FairSlots
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)
CLOSED_AT_ONCE = 32
"""Of an `Environment`'s handles; those whose store does not answer are not counted for long."""
HandleState = Literal["open", "closing", "closed", "fenced", "failed"]
"""``fenced``: another process took the role over; ``failed``: it ended by an error of another kind."""


@dataclass(frozen=True, slots=True)
class HandleResources:
    """What a handle is given.

    supervisor: of its background tasks; its ``on_failure`` is the handle's
    polls: of the store that the database is in
    release: gives back what is shared, once
    """

    context: DatabaseContext
    supervisor: Supervisor
    polls: StorePolls
    release: Callable[[], Awaitable[None]]


class Handle:
    """See the module docstring for its states. A subclass gives its ``_noun``, and the hooks it needs."""

    _noun = "database"

    def __init__(self, resources: HandleResources) -> None:
        self._context = resources.context
        self._loop = asyncio.get_running_loop()
        self._supervisor = resources.supervisor
        self._releases = [resources.release]
        self._state: HandleState = "open"
        self._guard = LoopGuard(self._refuse)
        self._cause: BaseException | None = None
        self._ends = asyncio.Event()
        """It has ended, or is about to because of a cause."""
        self._closed = asyncio.Event()
        self._shutdown: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._close_reported = False

    @property
    def _name(self) -> str:
        return self._context.name

    # ---- hooks

    def _ended(self, cause: BaseException | None) -> None:
        """It has ended: end all waits. ``cause`` is ``None`` when it is closed on purpose. Synchronous; called at most
        once with a cause, and at most once without."""

    async def _finish(self) -> None:
        """The last work before it closes on purpose; it takes no new work from the first step on. A `SlateError` is
        raised by `close`, after everything closed."""

    def _unreported(self) -> SlateError | None:
        """What `close` raises although it had closed before: a failure that no call has raised yet."""
        return None

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        """What to close besides tasks and what is shared, called last one first, after the tasks."""
        return []

    def _left_open(self) -> str:
        """The warning when it was dropped without being closed."""
        return f"{self!r} was never closed"

    def _closed_failure(self, outcome: Outcome | None = None) -> SlateError:
        """The error of a call on it once it has closed."""
        error: SlateError
        if self._cause is None:
            error = ClosedError(f"the {self._noun} of {self._name} is closed; open it again", outcome=outcome)
        elif isinstance(self._cause, FencedError):
            said = f"the {self._noun} of {self._name} was fenced: {self._cause}; stop, or open it again to take over"
            error = FencedError(said, outcome=outcome)
        else:
            error = ClosedError(f"the {self._noun} of {self._name} closed itself: {self._cause}", outcome=outcome)
        error.__cause__ = self._cause
        return error

    # ---- for subclasses

    def _check(self, outcome: Outcome | None = None) -> None:
        """Raise unless it is open and called from its own loop. A write gives the ``outcome`` of that error."""
        self._guard.check(outcome)

    def _refuse(self, outcome: Outcome | None) -> None:
        """Raise unless it is open and called from its own loop, which the guard did not see."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            said = f"call this {self._noun} from coroutines of the event loop that opened it"
            raise InvalidError(said, outcome=outcome) from None
        if loop is not self._loop:
            said = f"this {self._noun} was opened on another event loop; open one for each loop and process"
            raise InvalidError(said, outcome=outcome)
        if self._state != "open":
            raise self._closed_failure(outcome)

    def _fail(self, cause: BaseException) -> None:
        """A task failed, or the role was taken over: close with that cause, now."""
        if self._state in ("closed", "fenced", "failed"):
            return
        self._become("fenced" if isinstance(cause, FencedError) else "failed")
        self._cause = cause
        self._ends.set()
        expected = isinstance(cause, SlateError)
        logger.log(
            logging.WARNING if expected else logging.ERROR,
            "%s: closing: %s",
            self._name,
            cause,
            exc_info=None if expected else cause,
        )
        self._ended(cause)
        self._start_shutdown()

    def _become(self, state: HandleState) -> None:
        """It is not open any more."""
        self._state = state
        self._guard.shut()

    def _start_shutdown(self) -> asyncio.Task[None]:
        if self._shutdown is None:
            self._shutdown = self._loop.create_task(self._shut_down(), name=f"{self._name}/shutdown")
            self._shutdown.add_done_callback(lambda _: self._has_closed())  # even if cancelled before it began
        return self._shutdown

    async def _shut_down(self) -> None:
        """Stop every task and give back what was shared. Runs once, in a task of its own."""
        try:
            await run_all([*reversed(self._releases), *self._closers(), self._supervisor.close])
        finally:
            if self._state in ("open", "closing"):
                self._become("closed")
            self._has_closed()

    def _has_closed(self) -> None:
        self._closed.set()
        self._ends.set()

    # ---- closing

    def _on_closed(self, release: Callable[[], Awaitable[None]]) -> None:
        """Also call ``release`` when it has closed, after what was to be released before."""
        self._releases.append(release)

    async def close(self) -> None:
        """Finish what was begun, stop all tasks, release the stores. Idempotent.

        Raises what finishing raised, once; it is closed either way, and a call after that returns quietly. May be
        cancelled: the closing goes on, and another call waits for it."""
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidError(f"close this {self._noun} on the event loop that opened it")
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), name=f"{self._name}/close")
        closing = self._closing
        await asyncio.wait([closing])
        if closing.cancelled():
            self._stop()  # by code that cancels every task: it may not even have begun
        await self._closed.wait()
        if self._close_reported:
            return
        self._close_reported = True
        if not closing.cancelled():
            closing.result()
        elif (unreported := self._unreported()) is not None:
            raise unreported

    async def _close(self) -> None:
        failure: SlateError | None = None
        try:
            if self._state == "open":
                self._become("closing")
                try:
                    await self._finish()
                except SlateError as error:
                    failure = error
            else:
                failure = self._unreported()
        finally:
            shutdown = self._stop()
        await asyncio.shield(shutdown)
        if failure is not None:
            raise failure

    def _stop(self) -> asyncio.Task[None]:
        """End all waits for it, and shut down."""
        if self._state in ("open", "closing"):
            self._become("closing")
            self._ended(None)
        return self._start_shutdown()

    async def wait_closed(self) -> None:
        """Wait until it is closed; raise the cause at once if it closes itself: `FencedError` when its role was taken
        over, else `ClosedError`. So a service learns of it without a request. `close` then waits for the rest."""
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidError(f"wait for this {self._noun} on the event loop that opened it")
        await self._ends.wait()
        if self._cause is not None:
            raise self._closed_failure()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await close_at_exit(self._name, self.close, error)

    def __del__(self) -> None:
        if getattr(self, "_state", "closed") == "open":
            warnings.warn(self._left_open(), ResourceWarning, 2, self)


async def close_all(handles: Sequence[tuple[Hashable, Closable]], deadline_s: float) -> None:
    """Close handles side by side, each with the store it is in; what has not finished after ``deadline_s`` is stopped.

    The first failure is raised when all have closed, with the others in its notes."""
    slots = FairSlots(CLOSED_AT_ONCE, CLOSED_AT_ONCE)
    failures: list[Exception] = []

    async def close(store: Hashable, handle: Closable) -> None:
        try:
            with anyio.move_on_after(end - loop.time()):
                async with slots.slot(store):
                    await handle.close()
                return
            logger.warning("%s: did not close within %g s; its tasks are cancelled", handle._name, deadline_s)
            handle._stop()
            await handle.close()
        except Exception as error:  # noqa: BLE001 - raised at the end
            failures.append(error)

    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    closing = Supervisor("slate/closing", lambda cause: None)
    try:
        await asyncio.gather(*(closing.run(handle._name, close(store, handle)) for store, handle in handles))
    finally:
        await closing.close()
    if failures:
        first, *others = failures
        for other in others:
            first.add_note(f"and beside it: {other!r}")
        raise first
