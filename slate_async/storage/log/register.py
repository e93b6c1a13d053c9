"""The value of the writer's register: which writer may write, which positions each epoch owns, and what is committed.

Only writers write it (compactors and readers only read), so a busy writer and a compactor never contend. All changes
are pure functions here; the caller compares-and-sets.

Rules 15 and 16: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from slate_async.errors import CorruptionError
from slate_async.storage.log.recovery import EpochRange, owner_of

FORMAT = 1


@dataclass(frozen=True, slots=True)
class WriterRegister:
    """epoch, token: the current owner, as claimed in the manifest
    ranges: positions of each epoch, ascending; the last one is open
    last_written: every object up to here is in the log for good
    """

    epoch: int
    token: str
    ranges: tuple[EpochRange, ...]
    last_written: int

    def claim(
        self, epoch: int, token: str, *, inherited_end: int, log_start: int, held_from: int | None = None
    ) -> WriterRegister:
        """Hand over to ``epoch``: close the old epoch's range at ``inherited_end``, drop what no reader needs any more:
        what is below ``held_from``, by default ``log_start``.

        Rule 16: the new range starts behind both what is inherited and what the manifest has compacted."""
        held_from = log_start if held_from is None else held_from
        start = max(inherited_end, log_start - 1) + 1
        closed = (*self.ranges[:-1], self.ranges[-1]._replace(last_known_sst=inherited_end)) if self.ranges else ()
        ends = [*(later.starting_sst for later in closed[1:]), start]
        needed = tuple(
            entry
            for entry, end in zip(closed, ends, strict=False)  # of no ranges there is one end too many
            if end > max(held_from, entry.starting_sst)
        )
        return WriterRegister(epoch, token, (*needed, EpochRange(epoch, start)), start - 1)

    def publish(self, log_id: int) -> WriterRegister:
        """Commit every position up to ``log_id``. Rule 15: never backwards."""
        return replace(self, last_written=max(self.last_written, log_id))

    @property
    def owners(self) -> tuple[tuple[int, int], ...]:
        """``(epoch, first position)`` of each range."""
        return tuple((entry.epoch, entry.starting_sst) for entry in self.ranges)

    def owner(self, log_id: int) -> int | None:
        """The epoch that owns a position, ``None`` for compacted ones."""
        return owner_of(log_id, self.ranges)


EMPTY = WriterRegister(0, "", (), 0)


def encode(register: WriterRegister) -> bytes:
    """As a MessagePack map; see ``docs/format/writer-register.md``."""
    return msgspec.msgpack.encode(
        {
            "format": FORMAT,
            "epoch": register.epoch,
            "token": register.token,
            "ranges": [list(entry) for entry in register.ranges],
            "last_written": register.last_written,
        }
    )


def decode(data: bytes) -> WriterRegister:
    """The value back. Raises `CorruptionError`."""
    try:
        body = msgspec.msgpack.decode(data)
        if body["format"] != FORMAT:
            raise CorruptionError(f"unknown register format {body['format']}", object_name="writer register")
        ranges = tuple(EpochRange(*entry) for entry in body["ranges"])
        register = WriterRegister(body["epoch"], body["token"], ranges, body["last_written"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"the writer register does not decode: {error}", object_name="writer register") from error
    _check_ascending(ranges)
    return register


def _check_ascending(ranges: Sequence[EpochRange]) -> None:
    for earlier, later in pairwise(ranges):
        if later.epoch <= earlier.epoch or later.starting_sst < earlier.starting_sst:
            raise CorruptionError("the writer register's epochs are out of order", object_name="writer register")
