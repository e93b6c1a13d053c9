"""Deleting in batches: bounded, counted and reported; or only recorded, for a dry run."""

from __future__ import annotations

from collections.abc import Callable

from slate_async.engine.gc.report import GarbageObject, GcProgress, GcStage
from slate_async.objectstore.protocol import ObjectStore

BATCH_KEYS = 500
"""S3 deletes up to 1,000 objects with one request; fewer keep it short."""


class Batch:
    """Garbage of one round, at most ``limit`` objects."""

    def __init__(
        self,
        store: ObjectStore,
        limit: int,
        *,
        dry_run: bool,
        on_progress: Callable[[GcProgress], None] | None = None,
    ) -> None:
        self._store = store
        self._limit = limit
        self._dry_run = dry_run
        self._on_progress = on_progress
        self._stage: GcStage = "log"
        self._taken: list[GarbageObject] = []
        self._deleted = 0
        self._deleted_bytes = 0
        self.truncated = False

    @property
    def taken(self) -> tuple[GarbageObject, ...]:
        """Everything taken so far."""
        return tuple(self._taken)

    async def begin(self, stage: GcStage) -> None:
        """What is taken from now on belongs to ``stage``; everything before it is deleted first."""
        await self.flush()
        self._stage = stage

    async def take(self, garbage: GarbageObject) -> bool:
        """Delete it with one of the next requests. ``False`` if the round has had enough; then it stays."""
        if len(self._taken) >= self._limit:
            self.truncated = True
            return False
        self._taken.append(garbage)
        if len(self._taken) - self._deleted >= BATCH_KEYS:
            await self.flush()
        return True

    async def flush(self) -> None:
        """Delete what was taken."""
        due = self._taken[self._deleted :]
        if not due:
            return
        if not self._dry_run:
            await self._store.delete([found.key for found in due])
        self._deleted += len(due)
        self._deleted_bytes += sum(found.size for found in due)
        if self._on_progress is not None:
            self._on_progress(GcProgress(self._stage, self._deleted, self._deleted_bytes))
