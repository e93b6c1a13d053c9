"""Which log objects are garbage: a pure judgement of names and sizes.

Kept are positions from the head's ``log_start`` on, those of checkpoints, log objects that became SSTs as they are,
and every fence. A fence at a deleted id would be a place where a writer that slept since before could acknowledge
(rule 11); none can be mistaken, for nothing else in a log is as small.

Epoch-prefixed: an object at a position that another epoch owns is a zombie's. What the writer's register no longer
knows the owner of, it has forgotten because it was compacted; a newer state than the one judged by says so, and may
have a checkpoint that needs it.

Rules 11, 18 and 22: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.storage.log.names import parse_contiguous, parse_epoch_prefixed
from slate_async.storage.log.recovery import EpochRange, owner_of
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import Checkpoint, ManifestState

COMPACTED = "its rows are in SSTs, and no checkpoint needs this part of the log"
OF_A_ZOMBIE = "its position in the log belongs to another writer epoch"


class HeldLog(NamedTuple):
    """Log positions a checkpoint needs, ``first`` to ``last`` (``None``: all there are), and which epoch's objects (no
    ranges: any epoch's)."""

    first: int
    last: int | None
    ranges: tuple[EpochRange, ...]

    def holds(self, log_id: int, epoch: int | None) -> bool:
        if log_id < self.first or (self.last is not None and log_id > self.last):
            return False
        return epoch is None or not self.ranges or owner_of(log_id, self.ranges) == epoch


def held_log(checkpoint: Checkpoint) -> HeldLog:
    """The part of the log that stays because of ``checkpoint``."""
    ranges = tuple(EpochRange(epoch, first) for epoch, first in checkpoint.log_ranges)
    return HeldLog(checkpoint.log_start, checkpoint.log_end, ranges)


class LogJudge:
    """Judges log objects by a committed state.

    keys: SSTs that something names, log objects among them
    register: of an epoch-prefixed log, read after ``state`` was committed and before the log was listed
    """

    def __init__(self, state: ManifestState, keys: frozenset[str], register: WriterRegister | None) -> None:
        self._start = state.log_start
        self._contiguous = state.log_protocol == "contiguous"
        self._held: Sequence[HeldLog] = tuple(held_log(checkpoint) for checkpoint in state.checkpoints)
        self._keys = keys
        self._register = register

    def why_garbage(self, info: ObjectInfo) -> str | None:
        """Why the object may go; ``None`` if it stays, as anything does that is not a log object."""
        place = self._place(info.key)
        if place is None or info.size <= HEADER_BYTES or info.key in self._keys:
            return None
        epoch, log_id = place
        if any(held.holds(log_id, epoch) for held in self._held):
            return None
        if log_id < self._start:
            return COMPACTED
        return OF_A_ZOMBIE if epoch is not None and self._is_lost(epoch, log_id) else None

    def _place(self, key: str) -> tuple[int | None, int] | None:
        """Epoch (of an epoch-prefixed log) and position."""
        try:
            return (None, parse_contiguous(key)) if self._contiguous else parse_epoch_prefixed(key)
        except CorruptionError:
            return None

    def _is_lost(self, epoch: int, log_id: int) -> bool:
        """Whether a closed epoch's object lies where another epoch's range is (rule 18)."""
        register = self._register
        if register is None or epoch >= register.epoch:
            return False
        return register.owner(log_id) not in (None, epoch)
