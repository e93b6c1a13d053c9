"""What the engine asks of a log, whichever protocol it follows.

Ordering rule of a takeover: claim the epoch in the manifest, then fence (or take the register), then replay, then
read the head again. Nothing that was concluded before that last read counts unless it still holds.

Rules 9 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from slate_async.codec.header import HEADER_BYTES, ObjectHeader
from slate_async.errors import FencedError
from slate_async.storage.manifest.state import ManifestState

CheckPlace: TypeAlias = Callable[[ManifestState], Awaitable[object]]
"""Raises `InvalidError` unless the marker in the log's place, read now, is that of the state (R10)."""


@dataclass(frozen=True, slots=True)
class LogObject:
    """One object of the log. ``data`` is the whole object, or only its header when the log holds SSTs."""

    id: int
    key: str
    size: int
    header: ObjectHeader
    data: bytes

    def without_data(self) -> LogObject:
        """The same, less its bytes."""
        return LogObject(self.id, self.key, self.size, self.header, b"")


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a takeover found, or a checkpoint holds of the log.

    state: the head everything below was validated against; replay starts from it
    objects: the log's data objects from ``state.log_start`` on, in order, fences and zombies left out; of a takeover
    without their ``data``, which its `Replay` was given
    next_id: where this writer's first object goes; every lower id is dead or replayed
    """

    state: ManifestState
    objects: tuple[LogObject, ...]
    next_id: int


class Replay(Protocol):
    """Takes a log in while it is read, so that it need not be in memory twice."""

    def begin(self, state: ManifestState) -> None:
        """What comes next is the log of ``state`` from its start on. What came before is void."""

    async def add(self, logged: LogObject) -> None:
        """The next data object, which may be put off until `drain`. Raises `CorruptionError`."""

    async def drain(self) -> None:
        """Take in what was put off. Raises `CorruptionError`."""


class NoReplay:
    """Ignores the log's objects, for callers that only fence."""

    def begin(self, state: ManifestState) -> None:
        """See `Replay`."""

    async def add(self, logged: LogObject) -> None:
        """See `Replay`."""

    async def drain(self) -> None:
        """See `Replay`."""


NO_REPLAY = NoReplay()


class Log(Protocol):
    """The log as its current writer uses it."""

    async def take_over(self, claimed: ManifestState, replay: Replay = NO_REPLAY) -> Inherited:
        """Fence every older writer and find what they left, which goes to ``replay``: what that holds counts once this
        has returned. ``claimed`` is the state the claim made.

        Raises `FencedError` when a newer writer claims meanwhile, `CorruptionError`, `UnavailableError`."""

    def key(self, log_id: int) -> str:
        """The key under which this writer puts object ``log_id``."""

    async def write(self, log_id: int, data: bytes) -> None:
        """Put object ``log_id`` for good. Raises `FencedError` or `UnavailableError` (outcome unknown);
        after either the log is finished."""

    async def publish(self, log_id: int) -> None:
        """Make every object up to ``log_id``, all written, part of what any successor inherits.

        Raises as `write` does."""

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """``(epoch, first position)`` of the epochs that own the log's positions, ascending; empty if ids alone say
        what belongs to the log."""


async def nothing_to_prove(state: ManifestState) -> None:
    """The `CheckPlace` of a log whose metadata lies in the same store."""


def check_claim(head: ManifestState | None, claimed: ManifestState) -> ManifestState:
    """Rule 9: ``head``, which must still name the claim that made ``claimed``. Raises `FencedError`."""
    if head is None or head.writer_token != claimed.writer_token:
        epoch = "none" if head is None else head.writer_epoch
        raise FencedError(f"writer epoch {epoch} took over from epoch {claimed.writer_epoch} while it was opening")
    return head


def copied_metadata(epoch: int, data: bytes) -> dict[str, str]:
    """User metadata of a log object: copies of epoch and body checksum, for a cheap look without the bytes."""
    return {"slate-epoch": str(epoch), "slate-crc32c": data[HEADER_BYTES - 8 : HEADER_BYTES - 4].hex()}
