"""`KeepsCheckpoints`: the calls about checkpoints that a database's writer and its administration share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

from slate_async.arguments import Duration
from slate_async.engine.checkpoint import manage
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.errors import ClosedError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.manifest.driver import ManifestDriver

T = TypeVar("T")


class KeepsCheckpoints:
    """See the module docstring. Lifetimes are seconds from now or a timedelta; ``None`` is for ever."""

    def __init__(self, path: str, driver: ManifestDriver, runtime: Runtime) -> None:
        self._path = path
        self._driver = driver
        self._runtime = runtime

    @abstractmethod
    def _check(self) -> None:
        """Raise if the owner can no longer answer."""

    async def refresh_checkpoint(self, checkpoint: UUID | str, lifetime: Duration | None = None) -> CheckpointInfo:
        """Let a checkpoint live for ``lifetime`` from now. Raises `InvalidError` if it is gone or has expired.

        checkpoint: its id, or its name if no other has that"""
        self._check()
        return await self._while_open(
            manage.refresh(self._driver, self._runtime, checkpoint, path=self._path, lifetime=lifetime)
        )

    async def delete_checkpoint(self, checkpoint: UUID | str, *, force: bool = False) -> None:
        """Remove a checkpoint; what only it kept is then collected. Raises `InvalidError` if it is not there.

        checkpoint: its id, or its name if no other has that
        force: also one that a writer, a reader, a clone, or a change feed without a name for its hold made for itself.
        What that one still reads is then lost: for a clone that is gone and was never destroyed"""
        self._check()
        await self._while_open(manage.delete(self._driver, checkpoint, path=self._path, force=force))

    async def list_checkpoints(self) -> list[CheckpointInfo]:
        """All checkpoints in the order they were made, those that writers, readers and clones keep for themselves and
        expired ones that were not collected yet included."""
        self._check()
        return await self._while_open(manage.listed(self._driver, self._path))

    async def _new_checkpoint(self, extent: LogExtent, lifetime: Duration | None, name: str | None) -> CheckpointInfo:
        """One of the head, with the log up to ``extent``."""
        return await self._while_open(manage.create(self._driver, self._runtime, extent, lifetime=lifetime, name=name))

    async def _copy_checkpoint(self, source: UUID | str, lifetime: Duration | None, name: str | None) -> CheckpointInfo:
        """One of what ``source`` keeps."""
        return await self._while_open(
            manage.copy(self._driver, self._runtime, source, path=self._path, lifetime=lifetime, name=name)
        )

    async def _while_open(self, work: Awaitable[T]) -> T:
        """The result of ``work``; if the owner closes meanwhile, why it did."""
        try:
            return await work
        except ClosedError:
            self._check()
            raise
