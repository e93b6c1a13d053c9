"""Commit groups: the rows that become durable by one log object, and the handles that wait for it.

A group goes through these states, forward only; a waiter is a task in `CommitGroup.wait`:

==============  ====================================================  ==================================================
state           it begins when                                        a waiter that comes
==============  ====================================================  ==================================================
collecting      the group before it is cut                            waits; rows may still join the group
cut             its rows become a segment                             waits; no row joins any more
durable         the segment is acknowledged: `CommitGroup.resolve`    returns at once
failed          the writer ends first: `CommitGroup.fail`             gets an error of its own at once
==============  ====================================================  ==================================================

Three numbers are counted, and they differ:

- ``writes``: puts, deletes and batches that joined. Only the sequencer counts them, while the group is collecting.
- ``waiting``: waiters that came, cancelled ones included, none of them while it is durable or failed. Every
  `GROUP_COMMIT_WAITERS` of them call ``on_full``, for so many are worth a log object of their own. One write may have
  several waiters, or none.
- reported writes: those of which a waiter has got the failure. A group is `unreported` while it has failed and some
  write is not reported: its caller does not know of the loss yet. A waiter that is cancelled as the group fails has not
  got it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from slate_async.engine.write.completions import CompletionQueue
from slate_async.errors import InvalidError

GROUP_COMMIT_WAITERS = 256
"""So many waiting writes are worth a log object of their own, whatever else is in flight."""


def _nothing() -> None:
    """A group that is never flushed, such as that of a memtable's way into L0."""


class CommitGroup:
    """See the module docstring. ``on_full`` is called with every `GROUP_COMMIT_WAITERS`-th waiter."""

    __slots__ = ("_failure", "_loop", "_on_full", "_reported", "_waiters", "durable", "writes")

    def __init__(self, on_full: Callable[[], None] = _nothing) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_full = on_full
        self.durable = False
        self.writes = 0
        self._reported: set[int] = set()
        self._failure: Callable[[], BaseException] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @classmethod
    def resolved(cls) -> CommitGroup:
        """One that is durable: of what writes nothing while nothing else waits."""
        group = cls()
        group.resolve()
        return group

    @property
    def waiting(self) -> int:
        """How many waiters came."""
        return len(self._waiters)

    async def wait(self, write: int | None = None) -> None:
        """Return once durable; raise the failure otherwise. ``write``: whose failure is reported by that, a number
        of its own among those of the group; ``None`` if it is no write's."""
        if self.durable:
            return
        if self._failure is not None:
            self._report(write)
            raise self._failure()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise InvalidError("a write is waited for on the event loop that made it", outcome="unknown")
        waiter: asyncio.Future[None] = asyncio.Future(loop=loop)
        self._waiters.append(waiter)
        if not len(self._waiters) % GROUP_COMMIT_WAITERS:
            self._on_full()
        try:
            await waiter
        except asyncio.CancelledError:
            raise  # perhaps in the very turn in which it failed, which is not reported by that
        except BaseException:
            self._report(write)
            raise

    def _report(self, write: int | None) -> None:
        if write is not None:
            self._reported.add(write)

    def resolve(self, completions: CompletionQueue | None = None) -> None:
        """The rows are durable. Completes the waiting writes now, or in their turn among ``completions``."""
        self.durable = True
        waiters, self._waiters = self._waiters, []
        if completions is not None:
            completions.add(waiters)
            return
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: Callable[[], BaseException]) -> None:
        """The rows will not be acknowledged; ``failure`` makes an error, with its outcome, for each waiter."""
        self._failure = failure
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(failure())

    @property
    def unreported(self) -> bool:
        """Whether a write of it failed and no waiter of that one has the failure."""
        return self._failure is not None and len(self._reported) < self.writes


class WriteHandle:
    """What a write returns."""

    __slots__ = ("_create_ms", "_group", "seq")

    seq: int
    """Sequence number of the last row written; a batch of n rows has ``seq - n + 1`` to ``seq``."""
    _create_ms: int
    _group: CommitGroup

    @property
    def create_time(self) -> float:
        """Seconds since the Unix epoch, the creation time of its rows."""
        return self._create_ms / 1000

    def durable(self) -> Coroutine[Any, Any, None]:
        """Wait until the write is in the object store for good.

        Raises `FencedError`, `UnavailableError` or `ClosedError` if it will not be, with ``outcome``. May be awaited
        often and cancelled; the write goes on either way."""
        return self._group.wait(self.seq)

    @property
    def is_durable(self) -> bool:
        """Whether the write is in the object store for good already."""
        return self._group.durable

    def __repr__(self) -> str:
        return f"<WriteHandle seq={self.seq}{' durable' if self._group.durable else ''}>"


class NoRowsHandle(WriteHandle):
    """Of a batch without rows: durable when everything before it is. It stands for no write that could be lost."""

    __slots__ = ()

    def durable(self) -> Coroutine[Any, Any, None]:
        """See `WriteHandle.durable`."""
        return self._group.wait()


def handle_of(seq: int, create_ms: int, group: CommitGroup, kind: type[WriteHandle] = WriteHandle) -> WriteHandle:
    """The handle of a write. (An initializer of the class would take twice as long, a tenth of a put.)"""
    handle = kind()
    handle.seq = seq
    handle._create_ms = create_ms
    handle._group = group
    return handle
