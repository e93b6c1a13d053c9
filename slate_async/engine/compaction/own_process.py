"""The compactor of a process that only compacts: what it asks of that process, and its task."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from slate_async.engine.compaction.compactor import Compactor
from slate_async.errors import SlateError
from slate_async.runtime.protocol import Ids
from slate_async.runtime.supervisor import Supervisor
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
        """See `CompactorHost`. Nobody else is there to hear of it."""


class CompactorTask:
    """``compactor``, which has claimed the role, at work until `close`.

    ended: hears of the cause if its work ends before that
    """

    def __init__(
        self, compactor: Compactor, name: str, supervisor: Supervisor, ended: Callable[[BaseException], None]
    ) -> None:
        self._compactor = compactor
        self._name = name
        self._tasks = supervisor.part(ended)
        self._tasks.spawn("compactor", compactor.run())

    async def close(self) -> None:
        """Stop, and let the next compactor have the role at once. Not worth a failure, nor a long wait."""
        await self._tasks.close()
        try:
            with anyio.move_on_after(CLOSE_LIMIT_S):
                await self._compactor.release()
        except SlateError as error:
            logger.info("%s: the compactor's role was not released: %s", self._name, error)
