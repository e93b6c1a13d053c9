"""Edits that say which place is the database's (see `storage.manifest.edits.protocol` for what an edit is)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.errors import ConflictError
from slate_async.storage.manifest.edits.ingests import without_registered
from slate_async.storage.manifest.edits.protocol import check_database
from slate_async.storage.manifest.features import MARKER_FEATURE
from slate_async.storage.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """The place that holds the marker of store ``store_id`` is the database's."""

    database_id: UUID
    store_id: UUID

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies once in a database's life. Its mark is ``marked``: ``None`` also if another opening was first."""
        check_database(state, self.database_id)
        return None if state.marked else replace(state, marked=True, store_id=self.store_id)


@dataclass(frozen=True, slots=True)
class AdoptPlace:
    """As `MarkPlace`, whatever place was the database's before.

    looked_at: the state whose objects were looked for in the place
    ended_ms: when processes that work on the database, perhaps in another place, end: writer and compactor are fenced,
    registered jobs end, and no SST that was begun before is taken any more, because it may be in the other place;
    ``None``: no process ends
    """

    store_id: UUID
    looked_at: ManifestState
    ended_ms: int | None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies unless another place was adopted meanwhile, or the database needs other objects now: they may have
        been put in another place. Its mark is the store id."""
        check_database(state, self.looked_at.database_id)
        if state.marked and state.store_id == self.store_id:
            return None
        if state.store_id != self.looked_at.store_id:
            raise ConflictError(
                "another place was adopted meanwhile; see which one holds all objects of the database, and adopt"
                " that one",
                outcome="not_applied",
            )
        if self.ended_ms is not None and _needed(state) != _needed(self.looked_at):
            raise ConflictError(
                "the database changed while its place was looked at; close its writer and compactor, and adopt it"
                " again",
                outcome="not_applied",
            )
        features = state.required_features
        adopted = replace(
            state,
            marked=True,
            store_id=self.store_id,
            required_features=features if state.has_marker else (*features, MARKER_FEATURE),
        )
        if self.ended_ms is None:
            return adopted
        adopted = replace(without_registered(adopted, self.ended_ms), sst_floor=state.version + 1)
        if _untouched_mirror(state):
            return adopted
        return replace(
            adopted,
            writer_epoch=state.writer_epoch + 1,
            writer_token="",
            compactor_epoch=state.compactor_epoch + 1,
            compactor_token="",
            checkpoints=tuple(checkpoint for checkpoint in adopted.checkpoints if checkpoint.owner != "writer"),
        )


def at_the_place_of(contents: ManifestState, state: ManifestState) -> ManifestState:
    """``contents``, which come of another database's state, with what proves the place of ``state``."""
    features = [feature for feature in contents.required_features if feature != MARKER_FEATURE]
    if state.has_marker:
        features.append(MARKER_FEATURE)
    return replace(contents, store_id=state.store_id, marked=state.marked, required_features=tuple(features))


def _needed(state: ManifestState) -> tuple[object, ...]:
    """Whose objects, and which, an adoption looks for."""
    return state.writer_epoch, state.log_start, state.log_last_seen, state.l0, state.runs


def _untouched_mirror(state: ManifestState) -> bool:
    """Whether nobody writes or compacts here: epochs of its own would make a mirror a database of its own."""
    shown = state.mirrored
    epochs = state.writer_epoch, state.compactor_epoch
    return shown is not None and epochs == (shown.writer_epoch, shown.compactor_epoch)
