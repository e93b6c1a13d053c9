"""The compactor of a process that only compacts: what it asks of that process, and its task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from slate_async.engine.compaction.compactor import Compactor
from slate_async.errors import ClosedError, SlateError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Ids
from slate_async.runtime.supervisor import CANCELLED, Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
CLOSE_LIMIT_S = 10.0
"""Closing waits no longer for the role to be released; the next compactor then waits a little for its turn."""


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """A process that only compacts, as a `CompactorHost`: it reads the head for each round, and looks at every log."""

    driver: ManifestDriver
    ids: Ids

    def new_token(self) -> str:
        """See `CompactorHost`."""
        return self.ids.token()

    async def head(self) -> ManifestState | None:
        """See `CompactorHost`."""
        return await self.driver.load()

    def log_due(self) -> bool:
        """See `CompactorHost`."""
        return True

    def committed(self) -> None:
        """See `CompactorHost`. There is no writer here to learn of it."""


class CompactorTask:
    """``compactor``, which has claimed the role, at work until `close`.

    guard: open while nothing has ended the compactor
    ended: hears at once of the cause that ends it before
    """

    def __init__(
        self,
        compactor: Compactor,
        name: str,
        supervisor: Supervisor,
        guard: LoopGuard,
        ended: Callable[[BaseException], None],
    ) -> None:
        self._compactor = compactor
        self._name = name
        self._guard = guard
        self._ended = ended
        self._task = supervisor.spawn("compactor", self._run(), critical=False)

    async def _run(self) -> None:
        try:
            await self._compactor.run()
        except asyncio.CancelledError:
            if self._guard.open:
                self._ended(ClosedError(CANCELLED))
            raise
        except Exception as error:  # noqa: BLE001 - whatever ended it is what its owner closes with
            self._ended(error)

    async def close(self) -> None:
        """Stop, and let the next compactor have the role at once. Not worth a failure, nor a long wait."""
        self._task.cancel()
        await asyncio.wait([self._task])
        try:
            with anyio.move_on_after(CLOSE_LIMIT_S):
                await self._compactor.release()
        except SlateError as error:
            logger.info(
                "%s: the compactor role was not released, so the next compactor waits a little: %s", self._name, error
            )
