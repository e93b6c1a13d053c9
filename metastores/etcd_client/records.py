"""What is asked of an etcd and what it answers, without gRPC: a simulated one answers the same.

A revision is a number that rises with each transaction that changed something, of the whole etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Entry(NamedTuple):
    """A key with its value. ``created``, ``modified``: revisions that made it and wrote it last; ``lease``: 0: none."""

    key: bytes
    value: bytes
    created: int
    modified: int
    lease: int = 0


class RangeAnswer(NamedTuple):
    """Entries in the order of their keys, as they were at ``revision``. ``more``: there are others beyond the limit."""

    revision: int
    entries: Sequence[Entry]
    more: bool = False


class ModifiedAt(NamedTuple):
    """Holds iff the key was written last at that revision; 0: iff it is not there."""

    key: bytes
    revision: int


class ValueIs(NamedTuple):
    """Holds iff the key has that value."""

    key: bytes
    value: bytes


class Put(NamedTuple):
    """Write a key. ``lease``: with which it ends; 0: none."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key, or with ``end`` all from it up to before that."""

    key: bytes
    end: bytes | None = None


class Get(NamedTuple):
    """Read a key, or with ``end`` all from it up to before that."""

    key: bytes
    end: bytes | None = None


Condition: TypeAlias = ModifiedAt | ValueIs
Operation: TypeAlias = Put | Delete | Get


class TxnAnswer(NamedTuple):
    """``held``: all conditions did, so ``then`` was done; else ``otherwise``. ``read``: what its `Get` found, in their
    order. ``revision``: of the etcd after it."""

    revision: int
    held: bool
    read: Sequence[Sequence[Entry]]


class Event(NamedTuple):
    """A key that was written, or with ``entry`` ``None`` deleted, at ``revision``."""

    key: bytes
    revision: int
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """All events up to ``revision`` that had not been given, in the order of their revisions; those of one revision
    are given together. None: nothing happened up to there."""

    revision: int
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """What one endpoint says of itself. ``size``, ``used``: bytes of its database, and those of them in use."""

    version: str
    member: int
    leader: int
    raft_term: int
    revision: int
    size: int
    used: int
    errors: Sequence[str] = ()


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``."""
    whole = prefix.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\x00"
