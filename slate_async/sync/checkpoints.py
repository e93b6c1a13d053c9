"""`Checkpoints`: what keeps a database readable as it was."""

from __future__ import annotations

import builtins
from uuid import UUID

from slate_async.arguments import Duration
from slate_async.database import checkpoints as asynchronous
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.engine.checkpoint.manage import Scope
from slate_async.runtime.loop_thread import LoopThread


class Checkpoints:
    """``db.checkpoints`` and ``admin.checkpoints``. Methods and errors are those of `slate_async.Checkpoints`."""

    def __init__(self, loop: LoopThread, checkpoints: asynchronous.Checkpoints) -> None:
        self._loop = loop
        self._checkpoints = checkpoints

    def create(
        self,
        *,
        scope: Scope = "all",
        force_flush: bool = True,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
    ) -> CheckpointInfo:
        """Keep the database as it is now readable until the checkpoint expires or is deleted."""
        return self._loop.run(
            self._checkpoints.create,
            scope=scope,
            force_flush=force_flush,
            lifetime=lifetime,
            source=source,
            name=name,
        )

    def refresh(self, checkpoint: UUID | str, lifetime: Duration | None = None) -> CheckpointInfo:
        """Let a checkpoint live for ``lifetime`` from now."""
        return self._loop.run(self._checkpoints.refresh, checkpoint, lifetime)

    def delete(self, checkpoint: UUID | str, *, force: bool = False) -> None:
        """Remove a checkpoint; what only it kept is then garbage."""
        self._loop.run(self._checkpoints.delete, checkpoint, force=force)

    def list(self) -> builtins.list[CheckpointInfo]:
        """All checkpoints in the order they were made."""
        return self._loop.run(self._checkpoints.list)
