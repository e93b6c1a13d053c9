"""Which log objects are the log: pure functions over object lists.

Contiguous: ids without gaps from ``log_start``; an object whose epoch is below one seen at a lower id, or below the
manifest's ``log_floor``, is a zombie's and is ignored.
Epoch-prefixed: (e, n) belongs iff ``starting_sst(e) <= n < starting_sst(next epoch)``; the descending walk of the
manifest design applies inside those ranges, so a zombie's object never stands in for a lost one of the live writer.

Rule 12: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class Verdict(Enum):
    """What a takeover makes of an object at the next id."""

    VALID = auto()
    """Part of the log."""
    ZOMBIE = auto()
    """A fenced writer's; ignored."""
    HIGHER = auto()
    """A newer writer's: the writer that walks is fenced."""
    OWN = auto()
    """The walker's own epoch: its fence from an earlier attempt."""


@dataclass(slots=True)
class ContiguousWalk:
    """The state of one walk from ``next_id`` upwards. ``epoch`` is the walker's, ``None`` for a mere look."""

    next_id: int
    floor: int
    epoch: int | None = None

    def offer(self, log_id: int, epoch: int) -> Verdict:
        """Judge the object at ``log_id``, which must be `next_id`, and step past it unless it ends the walk."""
        if log_id != self.next_id:
            raise ValueError(f"the walk stands at {self.next_id}, not {log_id}")
        if self.epoch is not None and epoch == self.epoch:
            return Verdict.OWN
        if self.epoch is not None and epoch > self.epoch:
            return Verdict.HIGHER
        self.next_id += 1
        if self.ignores(epoch):
            return Verdict.ZOMBIE
        self.floor = epoch
        return Verdict.VALID

    def ignores(self, epoch: int) -> bool:
        """Whether an object of ``epoch`` behind what was seen so far is a zombie's."""
        return epoch < self.floor


class EpochRange(NamedTuple):
    """Positions one epoch owns: from ``starting_sst`` to the next epoch's. ``last_known_sst`` is where a closed
    epoch ended; ``None`` while it is open."""

    epoch: int
    starting_sst: int
    last_known_sst: int | None = None


def owner_of(log_id: int, ranges: Sequence[EpochRange]) -> int | None:
    """The epoch whose range holds ``log_id``; ``ranges`` ascend. ``None`` below the first range."""
    for entry in reversed(ranges):
        if log_id >= entry.starting_sst:
            return entry.epoch
    return None


def recover_epoch_prefixed(
    objects: Iterable[tuple[int, int]], ranges: Sequence[EpochRange], *, last_compacted: int
) -> list[tuple[int, int]]:
    """The ``(epoch, id)`` pairs that are the log above ``last_compacted``, newest first.

    Walks down; a gap below drops everything above it, for an acknowledgement covers all that came before it."""
    present = set(objects)
    newest_first = sorted(
        (pair for pair in present if pair[1] > last_compacted and owner_of(pair[1], ranges) == pair[0]),
        key=lambda pair: pair[1],
        reverse=True,
    )
    log: list[tuple[int, int]] = []
    for pair in newest_first:
        if log and pair[1] != log[-1][1] - 1:
            log = []
        log.append(pair)
    if log and log[-1][1] != last_compacted + 1:
        return []
    return log
