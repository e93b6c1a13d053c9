"""`Checkpoints`: the checkpoints of a database, as its writer and its administration offer them."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from uuid import UUID

from slate_async.arguments import Duration
from slate_async.engine.checkpoint import manage
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.engine.checkpoint.manage import Scope
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.manifest.driver import ManifestDriver

FindExtent: TypeAlias = Callable[[Scope, bool], Awaitable[LogExtent]]
"""How far the log goes that a new checkpoint keeps, from the ``scope`` and ``force_flush`` it was asked for with."""


class Checkpoints:
    """``db.checkpoints`` and ``admin.checkpoints``: what keeps a database readable as it was.

    Lifetimes are seconds from now or a timedelta; ``None`` is for ever.

    Errors of every method: `InvalidError` for wrong arguments, or when there is no database; `ClosedError` after
    closing; `UnavailableError`, `CorruptionError`."""

    def __init__(self, driver: ManifestDriver, runtime: Runtime, guard: LoopGuard, log_extent: FindExtent) -> None:
        self._driver = driver
        self._runtime = runtime
        self._guard = guard
        self._log_extent = log_extent

    async def create(
        self,
        *,
        scope: Scope = "all",
        force_flush: bool = True,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
    ) -> CheckpointInfo:
        """Keep the database as it is now readable, for readers and clones, until the checkpoint expires or is deleted.

        scope: of a writer: ``"all"`` holds everything written by the call, ``"durable"`` what is acknowledged as
        durable by then. An administration holds what is in the store by the call: all that was acknowledged as durable.
        What a writer has acknowledged as ``flushed`` only (see the setting ``ack``) counts once it is committed
        force_flush: of a writer and scope ``"all"``: flush now; else wait until what was written is flushed anyway
        lifetime: seconds or a timedelta from now; ``None`` for ever
        source: id or name of a checkpoint to keep as it is instead; nothing is flushed for that
        name: for people; several may have the same

        Raises besides what a flush raises, and `InvalidError` for a source that does not exist or has expired, and for
        a destroyed database."""
        self._guard.check()
        manage.check_request(scope, lifetime, source, name)
        driver, runtime = self._driver, self._runtime
        if source is not None:
            copied = manage.copy(driver, runtime, source, lifetime=lifetime, name=name)
            return await self._guard.while_open(copied)
        extent = await self._log_extent(scope, force_flush)
        return await self._guard.while_open(manage.create(driver, runtime, extent, lifetime=lifetime, name=name))

    async def refresh(self, checkpoint: UUID | str, lifetime: Duration | None = None) -> CheckpointInfo:
        """Let a checkpoint live for ``lifetime`` from now. Raises `InvalidError` if it does not exist or has expired.

        checkpoint: its id, or its name if no other has that"""
        self._guard.check()
        return await self._guard.while_open(manage.refresh(self._driver, self._runtime, checkpoint, lifetime=lifetime))

    async def delete(self, checkpoint: UUID | str, *, force: bool = False) -> None:
        """Remove a checkpoint; what only it kept is then garbage. Raises `InvalidError` if it is not there.

        checkpoint: its id, or its name if no other has that
        force: also one that a writer, a reader, a clone, or a change feed without a named subscription made for itself.
        What that one still reads is then lost. Use it for a clone that was deleted without `destroy`"""
        self._guard.check()
        await self._guard.while_open(manage.delete(self._driver, checkpoint, force=force))

    async def list(self) -> builtins.list[CheckpointInfo]:
        """All checkpoints in the order they were made. Those of writers, readers and clones are among them, and
        expired ones that were not collected yet."""
        self._guard.check()
        return await self._guard.while_open(manage.listed(self._driver))
