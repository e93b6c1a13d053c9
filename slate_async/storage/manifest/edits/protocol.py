"""Edits: pure functions from a state to its successor, safe to apply again after any conflict.

Each edit leaves a mark in the state it makes (an epoch owner's token, a log position). Applied to a state that
already carries its mark it returns ``None``: it is in. That, and not anything the store answered, is what
resolves an unknown outcome. An edit that can no longer apply raises.

Rule R21: docs/design/protocol-rules.md
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from slate_async import commits
from slate_async.errors import FencedError, InvalidError, NotFoundError
from slate_async.storage.manifest.state import ManifestState


class Edit(commits.Edit[ManifestState], Protocol):
    """One change of the manifest. ``apply`` leaves ``ref`` of the state as it is."""


def check_usable(state: ManifestState) -> None:
    """Raise `InvalidError` unless the database can be opened."""
    if state.removed:
        raise NotFoundError("the database was destroyed; open it to write to make another one in its place")
    if state.destroyed_at_ms is not None:
        raise NotFoundError(
            "the database was destroyed and waits to be removed; run `slate destroy` or a garbage collector"
        )
    if not state.initialized:
        raise InvalidError(
            "the database is a clone or mirror whose initialization has not finished; finish or destroy it"
        )


def check_database(state: ManifestState, database_id: UUID) -> None:
    """Raise `InvalidError` unless ``state`` is of that database."""
    if state.database_id != database_id:
        raise NotFoundError(f"database {database_id} was destroyed, and another one made in its place")


def check_looked_at(state: ManifestState, of: tuple[UUID, UUID | None] | None) -> None:
    """Raise `FencedError` unless ``state`` is of the database, and in the place, that were looked at before a role is
    claimed (R21)."""
    if of is not None and of != (state.database_id, state.store_id):
        raise FencedError(
            "the database was recreated, or another place adopted for it, while it was being opened; open it again",
            outcome="not_applied",
        )


def check_writer(state: ManifestState, epoch: int) -> None:
    """Raise `FencedError` unless ``epoch`` is still the writer's."""
    if state.writer_epoch != epoch:
        raise fenced(state, epoch)


class DestroyedError(FencedError):
    """The newer owner took the role over to destroy the database."""


def fenced(state: ManifestState, epoch: int) -> FencedError:
    """The error of the writer of ``epoch``, which ``state`` no longer names."""
    if state.destroyed_at_ms is not None:
        return DestroyedError("the database was destroyed")
    return FencedError(f"writer epoch {state.writer_epoch} took over from epoch {epoch}")
