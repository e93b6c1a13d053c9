"""Edits of change feeds' subscriptions (see `slate_async.storage.manifest.edits.protocol` for what an edit is).

A subscription is a checkpoint that says what its feed still needs: the rows above its mark, in the SSTs of the version
it names and in the log from its position on. Invariant: a mark never goes back, and what is above it is all there while
the checkpoint is. So a feed goes on exactly, whatever was compacted meanwhile. The checkpoint's id is its consumer's: a
feed that takes a named subscription over gives it another id, and the feed before no longer finds its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.errors import ConflictError, InternalError, NotFoundError
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import THIS_VERSION, Checkpoint, FeedMark, ManifestState, SstRef


def check_exact(state: ManifestState, seq: int) -> None:
    """Raise `InvalidError` unless every version of every row above ``seq`` is in ``state``."""
    if seq < state.history_floor:
        raise NotFoundError(
            f"changes are kept from sequence number {state.history_floor} on, and were asked for from {seq} on: what"
            " lies between was compacted; the setting retention_ms says how long changes are kept, a subscription"
            " keeps them for its feed"
        )


def subscription_named(state: ManifestState, name: str) -> Checkpoint | None:
    """The subscription of that name, expired or not."""
    return next(
        (checkpoint for checkpoint in state.checkpoints if checkpoint.owner == "feed" and checkpoint.name == name), None
    )


@dataclass(frozen=True, slots=True)
class OpenSubscription:
    """Retain what a feed from ``seq`` on needs of the state as it is.

    snapshot: what was compacted is not asked for: of it the feed gives what is left
    instead_of: a subscription that goes in the same step, whether it is there or not
    """

    id: UUID
    now_ms: int
    expire_ms: int | None
    seq: int
    name: str | None = None
    snapshot: bool = False
    instead_of: UUID | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a usable state that has all of it. Its mark is its id."""
        if state.checkpoint(self.id) is not None:
            return None
        check_usable(state)
        if not self.snapshot:
            check_exact(state, self.seq)
        others = tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.id != self.instead_of)
        if self.name is not None and any(other.owner == "feed" and other.name == self.name for other in others):
            raise ConflictError(f"another feed has just made the subscription {self.name!r}; open the feed again")
        mark = FeedMark(self.seq, state.last_seq, state.log_start, state.log_floor)
        made = Checkpoint(
            self.id,
            THIS_VERSION,
            self.now_ms,
            "feed",
            state.log_start,
            self.expire_ms,
            name=self.name,
            feed=mark,
        )
        return replace(state, checkpoints=(*others, made))


@dataclass(frozen=True, slots=True)
class TakeSubscription:
    """Become the consumer of subscription ``id``, which is ``new_id`` from then on."""

    id: UUID
    new_id: UUID
    expire_ms: int | None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies while it is there. Its mark is the new id."""
        if state.checkpoint(self.new_id) is not None:
            return None
        check_usable(state)
        found = subscription_with_id(state, self.id)
        return _replaced(state, found, replace(found, id=self.new_id, expire_ms=self.expire_ms))


@dataclass(frozen=True, slots=True)
class MoveSubscription:
    """Let subscription ``id`` stand at ``mark``, and live until ``expire_ms``. Once only the log is needed, it lets go
    of the SSTs it had and names the version that this makes."""

    id: UUID
    mark: FeedMark
    expire_ms: int | None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies while it is there. Its mark is that it stands there, and lives as long."""
        found = subscription_with_id(state, self.id)
        if found.feed is None:
            raise InternalError(f"checkpoint {self.id} is no feed's")
        later = tuple(sst for sst in found.feed.ingests if sst.max_seq > self.mark.seq)
        moved = replace(found, feed=replace(self.mark, ingests=later), expire_ms=self.expire_ms)
        if moved != found and self.mark.seq >= self.mark.log_seq:
            moved = replace(moved, ref=THIS_VERSION, log_start=min(self.mark.log_position, state.log_start))
        return None if moved == found else _replaced(state, found, moved)


def keep_for_feeds(checkpoints: tuple[Checkpoint, ...], ssts: tuple[SstRef, ...]) -> tuple[Checkpoint, ...]:
    """``checkpoints``, with ``ssts`` of an ingest that is applied kept for every feed: it is to find them as they are,
    however late it comes."""
    return tuple(
        checkpoint
        if checkpoint.feed is None
        else replace(checkpoint, feed=replace(checkpoint.feed, ingests=(*checkpoint.feed.ingests, *ssts)))
        for checkpoint in checkpoints
    )


def subscription_with_id(state: ManifestState, subscription_id: UUID) -> Checkpoint:
    """The subscription of that id. One that has expired counts until a garbage collector removes it. Raises
    `InvalidError`."""
    found = state.checkpoint(subscription_id)
    if found is None:
        raise NotFoundError("the feed's subscription no longer exists")
    return found


def _replaced(state: ManifestState, old: Checkpoint, new: Checkpoint) -> ManifestState:
    return replace(
        state, checkpoints=tuple(new if checkpoint is old else checkpoint for checkpoint in state.checkpoints)
    )
