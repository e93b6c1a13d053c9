"""`CheckpointInfo`: what a user learns of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from slate_async.storage.manifest.state import Checkpoint, CheckpointOwner


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint: one state of the database, kept readable.

    manifest_id: number of the manifest version it keeps
    create_time, expire_time: seconds since the Unix epoch; an ``expire_time`` of ``None`` is never
    name: the user's; several may have the same
    owner: ``"user"``, or the role that made it for itself: ``"writer"``, ``"reader"``, ``"clone"``, ``"feed"``,
    ``"ingest"``
    log_start, log_end: the log positions it keeps, inclusive; a ``log_end`` of ``None`` is open
    """

    id: UUID
    manifest_id: int
    create_time: float
    expire_time: float | None
    name: str | None
    owner: CheckpointOwner
    log_start: int
    log_end: int | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """The public view of ``checkpoint``."""
        return cls(
            checkpoint.id,
            checkpoint.ref.version,
            checkpoint.create_ms / 1000,
            None if checkpoint.expire_ms is None else checkpoint.expire_ms / 1000,
            checkpoint.name,
            checkpoint.owner,
            checkpoint.log_start,
            checkpoint.log_end,
        )
