"""Edits that make, lengthen and remove checkpoints (see `storage.manifest.edits.protocol` for what an edit is).

A checkpoint names the very version that first holds it, or what its source names; so it can never name a version that
was collected, for the source is looked for in the state being edited.

Rule 27: docs/design/protocol-rules.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.errors import ConflictError, InvalidError, NotFoundError
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import THIS_VERSION, Checkpoint, CheckpointOwner, ManifestState


@dataclass(frozen=True, slots=True)
class CreateCheckpoint:
    """Keep the database as it is, or what checkpoint ``source`` keeps, readable as checkpoint ``id``.

    now_ms: the caller's clock; ``expire_ms`` of the new one, ``None`` for never
    log_end, log_ranges: of a new state: the last position of the log that belongs to it (``None``: all to come) and the
    epochs that own its positions; a source's are taken from the source
    instead_of: checkpoints that go in the same step, whether they are there or not
    of: the database and the store id of the place whose log ends there; ``None``: no log was looked at
    """

    id: UUID
    owner: CheckpointOwner
    now_ms: int
    expire_ms: int | None
    name: str | None = None
    source: UUID | None = None
    log_end: int | None = None
    log_ranges: tuple[tuple[int, int], ...] = ()
    instead_of: tuple[UUID, ...] = ()
    of: tuple[UUID, UUID | None] | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a usable state that has the source, alive, of the database and the place that were looked at: the
        log of another one does not go so far, and a reader that opened it would miss the rest. Its mark is its id."""
        if state.checkpoint(self.id) is not None:
            return None
        check_usable(state)
        if self.of is not None and self.of != (state.database_id, state.store_id):
            raise ConflictError(
                "the database was recreated, or another place adopted for it, while its log was looked at; open it"
                " again",
                outcome="not_applied",
            )
        if self.source is not None:
            made = self._copy_of(living(state, self.source, self.now_ms))
            return replace(state, checkpoints=self._others(state, made))
        log_end = None if self.log_end is None else max(self.log_end, state.log_start - 1)
        made = Checkpoint(
            self.id,
            THIS_VERSION,
            self.now_ms,
            self.owner,
            state.log_start,
            self.expire_ms,
            log_end,
            self.log_ranges,
            name=self.name,
        )
        seen = state.log_last_seen if log_end is None else max(state.log_last_seen, log_end)
        return replace(state, checkpoints=self._others(state, made), log_last_seen=seen)

    def _copy_of(self, source: Checkpoint) -> Checkpoint:
        if source.log_end is None:
            raise InvalidError(
                f"checkpoint {source.id} is a {source.owner}'s own and moves with it; make one of the database itself"
            )
        return replace(
            source,
            id=self.id,
            create_ms=self.now_ms,
            expire_ms=self.expire_ms,
            owner=self.owner,
            epoch=0,
            name=self.name,
        )

    def _others(self, state: ManifestState, made: Checkpoint) -> tuple[Checkpoint, ...]:
        return (*(checkpoint for checkpoint in state.checkpoints if checkpoint.id not in self.instead_of), made)


@dataclass(frozen=True, slots=True)
class RefreshCheckpoint:
    """Let checkpoint ``id`` live until ``expire_ms`` (``None``: for ever)."""

    id: UUID
    now_ms: int
    expire_ms: int | None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a living checkpoint: a reader of a later manifest may have found an expired one removed."""
        found = living(state, self.id, self.now_ms)
        if found.expire_ms == self.expire_ms:
            return None
        longer = replace(found, expire_ms=self.expire_ms)
        return replace(
            state, checkpoints=tuple(longer if checkpoint is found else checkpoint for checkpoint in state.checkpoints)
        )


@dataclass(frozen=True, slots=True)
class DeleteCheckpoints:
    """Remove checkpoints; those that are not there are no error. Applies to destroyed databases, too."""

    ids: frozenset[UUID]

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that none of them is there."""
        kept = tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.id not in self.ids)
        return None if len(kept) == len(state.checkpoints) else replace(state, checkpoints=kept)


def living(state: ManifestState, checkpoint_id: UUID, now_ms: int | None) -> Checkpoint:
    """The checkpoint of that id. Raises `InvalidError` if it is missing, or expired at ``now_ms``, if that is given."""
    found = state.checkpoint(checkpoint_id)
    if found is None:
        raise NotFoundError(f"there is no checkpoint {checkpoint_id}; `list-checkpoints` shows those there are")
    if now_ms is not None and found.expired(now_ms):
        raise NotFoundError(f"checkpoint {checkpoint_id} has expired; make another one")
    return found


def find_checkpoint(state: ManifestState, wanted: str | UUID, now_ms: int | None) -> Checkpoint:
    """The checkpoint with that id or name, alive at ``now_ms`` (``None``: alive or not).

    Raises `InvalidError` if there is none, or several of the name."""
    checkpoint_id = wanted if isinstance(wanted, UUID) else uuid_of(wanted)
    if checkpoint_id is not None and (isinstance(wanted, UUID) or state.checkpoint(checkpoint_id) is not None):
        return living(state, checkpoint_id, now_ms)
    named = [
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.name == wanted and (now_ms is None or not checkpoint.expired(now_ms))
    ]
    if not named and any(checkpoint.name == wanted for checkpoint in state.checkpoints):
        raise NotFoundError(f"checkpoint {wanted!r} has expired; make another one")
    if not named:
        raise NotFoundError(f"there is no checkpoint {wanted!r}; `list-checkpoints` shows those there are")
    if len(named) > 1:
        ids = ", ".join(str(checkpoint.id) for checkpoint in named)
        raise InvalidError(f"several checkpoints are named {wanted!r}; say which one by its id: {ids}")
    return named[0]


def uuid_of(text: str) -> UUID | None:
    """The id that ``text`` spells, in whatever form; ``None`` if it is none."""
    try:
        return UUID(text)
    except ValueError:
        return None
