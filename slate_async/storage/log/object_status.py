"""The status of each object under ``log/``: what it is to the database now. Pure.

Contiguous: from ``log_start`` on, without a gap, an object counts unless its epoch is below one seen before. What lies
behind a gap may become part of the log, or not. Epoch-prefixed: the writer's register says whose each position is, and
how far the log is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from slate_async.codec.header import ObjectKind
from slate_async.errors import CorruptionError
from slate_async.storage.log.names import parse_contiguous, parse_epoch_prefixed
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.manifest.state import LogProtocol, ManifestState


class LogObjectStatus(StrEnum):
    """See the module docstring."""

    VALID = "valid"
    """Part of the log: replayed when the database is opened."""
    FENCE = "fence"
    """Keeps older writers out; stays for ever."""
    ZOMBIE = "zombie"
    """Of a writer that was fenced, at a position behind the fence; ignored."""
    DEAD = "dead range"
    """Of an epoch that does not own its position; ignored."""
    COMPACTED = "compacted"
    """Below the log's start: its rows are in SSTs; a checkpoint may need it."""
    PENDING = "pending"
    """Not acknowledged: behind a gap, or past what the register commits."""


class LogName(NamedTuple):
    """What a key says: the position, and for the epoch-prefixed log the epoch."""

    position: int
    epoch: int | None


class Seen(NamedTuple):
    """A log object. ``epoch``: of its header."""

    name: LogName
    epoch: int
    kind: ObjectKind


def log_name(log_protocol: LogProtocol, key: str) -> LogName | None:
    """What ``key`` says; ``None`` if it is not a log object's of that protocol."""
    try:
        if log_protocol == "contiguous":
            return LogName(parse_contiguous(key), None)
        epoch, position = parse_epoch_prefixed(key)
    except CorruptionError:
        return None
    return LogName(position, epoch)


def classify(state: ManifestState, register: WriterRegister | None, objects: Sequence[Seen]) -> list[LogObjectStatus]:
    """The status of each of ``objects``: all of them, in the order of their positions.

    register: the writer's, of an epoch-prefixed log; ``None`` if it has none yet"""
    if state.log_protocol == "epoch_prefixed":
        held = EMPTY if register is None else register
        return [_by_register(found, state.log_start, held) for found in objects]
    walk = ContiguousWalk(state.log_start, state.log_floor)
    return [_by_walk(found, state.log_start, walk) for found in objects]


def _by_walk(seen: Seen, log_start: int, walk: ContiguousWalk) -> LogObjectStatus:
    fence = seen.kind is ObjectKind.FENCE
    if seen.name.position < log_start:
        return LogObjectStatus.FENCE if fence else LogObjectStatus.COMPACTED
    if seen.name.position != walk.next_id:
        return LogObjectStatus.PENDING
    if walk.offer(seen.name.position, seen.epoch) is Verdict.ZOMBIE:
        return LogObjectStatus.ZOMBIE
    return LogObjectStatus.FENCE if fence else LogObjectStatus.VALID


def _by_register(seen: Seen, log_start: int, register: WriterRegister) -> LogObjectStatus:
    position, epoch = seen.name
    if position < log_start:
        return LogObjectStatus.COMPACTED
    if register.owner(position) != epoch:
        return LogObjectStatus.DEAD
    if position <= register.last_written:
        return LogObjectStatus.VALID
    return LogObjectStatus.PENDING if epoch == register.epoch else LogObjectStatus.DEAD
