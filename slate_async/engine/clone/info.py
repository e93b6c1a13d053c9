"""What callers learn of a clone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from slate_async.storage.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class CloneInfo:
    """A finished clone.

    path: where it is, without credentials
    parent: whose SSTs it shares
    checkpoint_id: the checkpoint that holds them in the parent, until the clone is detached or destroyed
    """

    path: str
    database_id: UUID
    parent: str
    checkpoint_id: UUID | None

    @classmethod
    def of(cls, path: str, parent: str, state: ManifestState) -> Self:
        """What ``state``, of the clone at ``path``, says."""
        held = next((entry.checkpoint_id for entry in state.parents if entry.checkpoint_id is not None), None)
        return cls(path, state.database_id, parent, held)
