"""`Backlog`: what a writer has appended and the controller has not taken in yet. Of too much, appends wait.

Readers and the controller list what is pending, so its length is bounded by writers. The head is looked at only when
the bound is met.
"""

from __future__ import annotations

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.writer.puts import WriterContext
from slate_async.errors import ClosedError, UnavailableError


class Backlog:
    """Of one writer. ``uppers``: of what it finds pending, when it is opened and later."""

    def __init__(self, context: WriterContext, uppers: dict[Frontier, None]) -> None:
        self._context = context
        self._uppers = uppers

    def add(self, upper: Frontier) -> None:
        """One more append, up to ``upper``."""
        self._uppers[upper] = None

    @property
    def is_full(self) -> bool:
        """Whether no more is to be appended before `room` says so."""
        return len(self._uppers) >= self._context.max_pending

    async def room(self) -> None:
        """Wait until fewer than ``max_pending`` appends are pending. Raises `UnavailableError` past the deadline, and
        `ClosedError` if the collection was deleted; nothing was appended."""
        context = self._context
        clock = context.runtime.clock
        end = clock.monotonic() + context.deadline_ms / 1000
        while True:
            head = await context.answered("a look at the head", context.versions.poll, "not_applied")
            if head.deleted:
                raise ClosedError(f"{context.name} was deleted", outcome="not_applied")
            for upper in [upper for upper in self._uppers if upper <= head.upper]:
                del self._uppers[upper]
            if not self.is_full:
                return
            if clock.monotonic() >= end:
                raise UnavailableError(
                    f"{len(self._uppers)} appends to {context.name} wait for its controller, which max_pending"
                    " allows at most; does one run?",
                    outcome="not_applied",
                )
            await clock.sleep(context.poll_interval_ms / 1000)
