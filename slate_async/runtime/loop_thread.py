"""`LoopThread`: one event loop in a thread of its own, for callers in any other thread.

A caller waits while the loop works for it. Invariant: no call outlives its caller's wait unseen: one whose caller is
interrupted (Ctrl-C) is cancelled, and the caller goes on once it has ended.

Ordering rule: at the interpreter's end the closers run, last one first, while worker threads still work; then the loop
ends.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from slate_async.errors import ClosedError, InvalidError

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger(__name__)
CLOSE_LIMIT_S = 60.0
"""At the interpreter's end, closing takes no longer."""
SIGNALS_S = 0.5
"""A caller that waits looks for signals so often, should one have come at the wrong time."""


class _Call(Generic[T]):
    """One call: made in a caller's thread, served in the loop's."""

    __slots__ = ("_abandoned", "_error", "_make", "_result", "_task", "done", "undo")

    def __init__(self, make: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]] | None) -> None:
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._abandoned = False
        self.undo = undo
        self.done = threading.Lock()
        self.done.acquire()

    def start(self) -> None:
        """Begin, in the loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def abandon(self) -> None:
        """Nobody wants the result any more: end it, or undo what it has made already. In the loop, after `start` if
        that was asked for at all."""
        self._abandoned = True
        if self._task is None:
            return
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        elif self._error is None and self.undo is not None:
            await self.undo(self._result)  # type: ignore[arg-type]  # it was made

    async def _serve(self) -> None:
        try:
            self._result = await self._make()
            if self._abandoned and self.undo is not None:
                await self.undo(self._result)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            self._error = error
        finally:
            self.done.release()

    def wait(self) -> None:
        """Until it has ended. A signal that comes just before a lock is waited for is seen only after that."""
        while not self.done.acquire(timeout=SIGNALS_S):
            pass

    def outcome(self) -> T:
        """What came of it. Raises what it raised."""
        error, self._error = self._error, None
        if isinstance(error, asyncio.CancelledError):
            raise ClosedError("the call was cancelled: its event loop is ending") from error
        try:
            if error is not None:
                raise error
        finally:
            del error  # whose traceback names this frame
        result, self._result = self._result, None
        return result  # type: ignore[return-value]  # it was made, or there is an error


Ask: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in the thread of a caller that waits, and gives what it returned or raises what it raised."""


@dataclass(frozen=True, slots=True)
class _Asked:
    context: Context
    function: Callable[[], Any]
    reply: asyncio.Future[Any]

    def answer(self) -> Callable[[], None]:
        """Run it, in the caller's thread; what is to be called in the loop then."""
        try:
            result = self.context.run(self.function)
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            return partial(self._settle, self.reply.set_exception, error)
        return partial(self._settle, self.reply.set_result, result)

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        if not self.reply.done():
            settle(outcome)


def _next_of(asked: SimpleQueue[_Asked | None]) -> _Asked | None:
    """The next one. A signal that comes just before it is waited for is seen only after that."""
    while True:
        try:
            return asked.get(timeout=SIGNALS_S)
        except Empty:
            continue


class LoopThread:
    """See the module docstring. ``name``: of the thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._ended = False
        self._closers: dict[int, Callable[[], Awaitable[None]]] = {}
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        _at_end(self.end)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def check(self) -> None:
        """Raise unless a caller may wait here for the loop."""
        if os.getpid() != self._process:
            raise InvalidError("this was opened in another process (fork); open it in this one")
        if threading.get_ident() == self._thread.ident:
            raise InvalidError(
                "a callback runs on the event loop's thread and must not call slate_async.sync; start a thread for that"
            )
        if self._ended:
            raise ClosedError("the interpreter is ending; nothing is open any more")

    @property
    def alive(self) -> bool:
        """Whether it works, for this process."""
        return not self._ended and os.getpid() == self._process

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``await function(...)`` gives in the loop. Interrupted, it is cancelled and waited for; a second
        interrupt ends that wait, too."""
        return self._wait(_Call(lambda: function(*args, **kwargs), None))

    def open(self, function: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[None]]) -> T:
        """As `run`; what is there in spite of an interrupt is given to ``undo``."""
        return self._wait(_Call(function, undo))

    def run_asking(self, make: Callable[[Ask], Awaitable[T]]) -> T:
        """What ``await make(ask)`` gives in the loop. What ``make`` gives to ``ask`` runs in the caller's thread
        meanwhile, in the context of the task that asks. Interrupted as `run`."""
        self.check()
        asked: SimpleQueue[_Asked | None] = SimpleQueue()

        async def ask(function: Callable[[], Any]) -> Any:
            reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            asked.put(_Asked(copy_context(), function, reply))
            return await reply

        async def whole() -> T:
            try:
                return await make(ask)
            finally:
                asked.put(None)

        call = _Call(whole, None)
        with self._started(call):
            while (step := _next_of(asked)) is not None:
                self._loop.call_soon_threadsafe(step.answer())
            call.wait()
        return call.outcome()

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``function(...)``, which does not wait, gives in the loop."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self._wait(_Call(called, None))

    def _wait(self, call: _Call[T]) -> T:
        self.check()
        with self._started(call):
            call.wait()
        return call.outcome()

    @contextmanager
    def _started(self, call: _Call[T]) -> Iterator[None]:
        """``call`` begins; if the block is interrupted, it is ended and waited for."""
        loop = self._loop
        try:
            loop.call_soon_threadsafe(call.start)
            yield
        except BaseException:
            end = _Call(call.abandon, None)  # one more call: the lock of the first may be taken already
            loop.call_soon_threadsafe(end.start)
            end.wait()
            raise

    def begin(self, make: Callable[[], Awaitable[Any]]) -> None:
        """Begin what nobody waits for; from any thread. Nothing once the loop is ending: then everything is closed."""
        if self.alive:
            self._loop.call_soon_threadsafe(_Call(make, None).start)

    # ---- the end

    def at_end(self, key: object, closer: Callable[[], Awaitable[None]]) -> None:
        """Await ``closer()`` at the interpreter's end, unless `forget` was called with ``key`` before."""
        self._closers[id(key)] = closer

    def forget(self, key: object) -> None:
        """See `at_end`."""
        self._closers.pop(id(key), None)

    def end(self) -> None:
        """Close everything, then the loop. Idempotent; nothing in a process that was forked."""
        if self._ended or os.getpid() != self._process:
            return
        self._ended = True
        call = _Call(self._close_all, None)
        self._loop.call_soon_threadsafe(call.start)
        if not call.done.acquire(timeout=CLOSE_LIMIT_S):
            logger.warning("not all databases could be closed within %g s", CLOSE_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_LIMIT_S)

    async def _close_all(self) -> None:
        while self._closers:
            _, closer = self._closers.popitem()
            try:
                await closer()
            except Exception:  # the others are closed all the same
                logger.exception("closing databases at the interpreter's end failed")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_LIMIT_S)
        await self._loop.shutdown_asyncgens()


def _at_end(function: Callable[[], None]) -> None:
    """Call it at the interpreter's end, before worker threads are refused, if there is a way to."""
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(function)
    except RuntimeError as error:
        raise ClosedError("the interpreter is ending; nothing can be opened any more") from error
