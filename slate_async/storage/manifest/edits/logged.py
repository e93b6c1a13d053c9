"""Without a WAL the log's objects are SSTs: they may leave the log as they are, and stand in L0 under their keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.errors import ConflictError, FencedError
from slate_async.storage.manifest.history import sampled
from slate_async.storage.manifest.state import ManifestState, SstRef


@dataclass(frozen=True, slots=True)
class LogIntoL0:
    """The log's objects from ``from_position``, where the log must start, up to ``to_position``. ssts: newest first"""

    from_position: int
    to_position: int
    ssts: tuple[SstRef, ...]

    def into(self, state: ManifestState, log_floor: int, now_ms: int) -> ManifestState:
        """``state`` with them in L0. Raises `ConflictError` if a compactor took of the log meanwhile."""
        if state.log_start != self.from_position:
            raise ConflictError(
                f"the log was compacted up to {state.log_start} meanwhile; try again", outcome="not_applied"
            )
        newest = self.ssts[0].max_seq if self.ssts else state.last_seq
        return replace(
            state,
            log_start=max(state.log_start, self.to_position + 1),
            log_last_seen=max(state.log_last_seen, self.to_position),
            log_floor=max(state.log_floor, log_floor),
            last_seq=max(state.last_seq, newest),
            last_tick_ms=max(state.last_tick_ms, now_ms),
            l0=(*self.ssts, *state.l0),
        )


@dataclass(frozen=True, slots=True)
class TakeLogIntoL0:
    """All of the log that an opening found, fences included, so that nobody reads those again.

    token: of the claim that it was found under; now_ms: when its newest row was written"""

    token: str
    log: LogIntoL0
    now_ms: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff that claim is the newest, and the log starts where it did. Its mark is ``log_start``."""
        if state.writer_token != self.token:
            raise FencedError(f"writer epoch {state.writer_epoch} took over", outcome="not_applied")
        if state.log_start > self.log.to_position:
            return None
        taken = self.log.into(state, state.writer_epoch, self.now_ms)
        return replace(taken, seq_times=sampled(state, taken.last_seq, taken.last_tick_ms))
