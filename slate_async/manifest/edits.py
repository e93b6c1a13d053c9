"""Edits: pure functions from a state to its successor, safe to apply again after any conflict.

Each edit leaves a mark in the state it makes (an epoch owner's token, a log position). Applied to a state that
already carries its mark it returns ``None``: it is in. That, and not anything the store answered, is what
resolves an unknown outcome. An edit that can no longer apply raises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from slate_async.errors import ConflictError, FencedError, InternalError, InvalidError
from slate_async.manifest.state import ManifestState, SstRef


class Edit(Protocol):
    """One change of the manifest."""

    def apply(self, state: ManifestState) -> ManifestState | None:
        """The successor of ``state`` (its ``ref`` still the old one), or ``None`` when the edit is in already.

        Raises `FencedError` when its role was taken over, `ConflictError` when it can never apply again."""


def check_usable(state: ManifestState) -> None:
    """Raise `InvalidError` unless the database can be opened."""
    if state.destroyed_at_ms is not None:
        raise InvalidError("the database was destroyed; create another one, or re-create it explicitly")
    if not state.initialized:
        raise InvalidError("the database is a clone whose initialization has not finished; finish or destroy it")


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Become the writer: the next epoch, owned by ``token``. ``parallelism`` widens every later fence."""

    token: str
    parallelism: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to any usable state."""
        if state.writer_token == self.token:
            return None
        check_usable(state)
        return replace(
            state,
            writer_epoch=state.writer_epoch + 1,
            writer_token=self.token,
            fence_width=max(state.fence_width, self.parallelism),
        )


@dataclass(frozen=True, slots=True)
class AddL0:
    """Move log positions ``from_position`` to ``to_position`` (inclusive) out of the log into L0.

    Its mark is ``log_start``: whether *its SST is listed* would be the wrong test, since a compaction may have
    eaten it by then, and adding it again would bring deleted rows back.
    """

    epoch: int
    from_position: int
    to_position: int
    sst: SstRef | None
    last_seq: int
    last_tick_ms: int
    log_floor: int
    base_version: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's and the log still starts at ``from_position``."""
        if state.writer_epoch != self.epoch:
            raise FencedError(f"writer epoch {state.writer_epoch} took over from epoch {self.epoch}")
        if state.log_start > self.to_position:
            return None
        if state.log_start != self.from_position:
            raise InternalError(
                f"a flush of log positions {self.from_position} to {self.to_position} meets a log that starts at"
                f" {state.log_start}"
            )
        if self.sst is not None and self.base_version < state.sst_floor:
            raise ConflictError(
                f"{self.sst.location} was begun before manifest version {state.sst_floor}; it may be deleted already",
                outcome="not_applied",
            )
        return replace(
            state,
            log_start=self.to_position + 1,
            log_last_seen=max(state.log_last_seen, self.to_position),
            log_floor=max(state.log_floor, self.log_floor),
            last_seq=max(state.last_seq, self.last_seq),
            last_tick_ms=max(state.last_tick_ms, self.last_tick_ms),
            l0=state.l0 if self.sst is None else (self.sst, *state.l0),
        )
