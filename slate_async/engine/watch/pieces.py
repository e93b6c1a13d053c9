"""What is dispatched to watchers: `Piece`, changes that follow one another, and `Place`, how far something has got.

Rows of one ingest share a number. A writer and a change feed give them in the order of their keys, so a place inside
an ingest is a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slate_async.engine.changes.change import Change

CHANGE_BYTES = 400
"""About what a `Change` takes beside its key and value: the tuple, two floats, a number, two bytes objects."""

KEPT_BYTES = 64 << 20
"""So much is kept in memory for watchers that fall behind, until a subscription retains what they need."""


class Place(NamedTuple):
    """All rows up to number ``seq`` are done with; of the ingest of number ``seq + 1``, those up to ``key``, if that is
    not empty."""

    seq: int
    key: bytes = b""

    def covers(self, change: Change) -> bool:
        """Whether ``change`` is done with."""
        if change.seq <= self.seq:
            return True
        return bool(self.key) and change.seq == self.seq + 1 and change.key <= self.key


def place_after(change: Change, seq: int) -> Place:
    """Where something is that has got as far as ``change``; ``seq``: all rows up to it are done with."""
    return Place(seq) if change.seq <= seq else Place(change.seq - 1, change.key)


@dataclass(frozen=True, slots=True)
class Piece:
    """All ``changes`` from ``begin`` to ``end``, perhaps none."""

    changes: Sequence[Change]
    begin: Place
    end: Place

    def above(self, place: Place) -> Piece:
        """The part behind ``place``."""
        if place <= self.begin:
            return self
        return Piece([change for change in self.changes if not place.covers(change)], place, max(place, self.end))

    def matching(self, prefix: bytes) -> Sequence[Change]:
        """The changes of keys that begin with ``prefix``."""
        return [change for change in self.changes if change.touches(prefix)] if prefix else self.changes


def size_of(changes: Sequence[Change]) -> int:
    """About what ``changes`` take, in bytes."""
    return sum(len(change.key) + len(change.value or b"") for change in changes) + len(changes) * CHANGE_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """How many changes, of how many bytes, a watcher may leave waiting; as many of the newest are kept for those that
    come or come back."""

    rows: int
    nbytes: int


class Recent:
    """The newest pieces, within limits, one after another: all changes behind ``floor``.

    keep: what is behind it stays beyond the limits, up to `KEPT_BYTES`; ``None``: nothing does"""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces: deque[tuple[Piece, int]] = deque()
        self._rows = 0
        self.nbytes = 0
        self.floor = Place(0)
        self.keep: Place | None = None

    def restart(self, place: Place) -> None:
        """Nothing is kept; what comes next follows ``place``."""
        self._pieces.clear()
        self._rows = self.nbytes = 0
        self.floor = place

    def add(self, piece: Piece) -> None:
        """Keep ``piece``, and let the oldest go for that."""
        if piece.begin < self.floor:
            self.restart(piece.end)
            return
        nbytes = size_of(piece.changes)
        self._pieces.append((piece, nbytes))
        self._rows += len(piece.changes)
        self.nbytes += nbytes
        self.trim()

    @property
    def pressed(self) -> bool:
        """Whether more is kept than the limits allow."""
        return bool(self._pieces) and (self._rows > self._limits.rows or self.nbytes > self._limits.nbytes)

    def trim(self) -> None:
        """Let the oldest go that are beyond the limits, and not to be kept."""
        while self.pressed:
            oldest, freed = self._pieces[0]
            if self.keep is not None and oldest.end > self.keep and self.nbytes <= KEPT_BYTES:
                return
            self._pieces.popleft()
            self._rows -= len(oldest.changes)
            self.nbytes -= freed
            self.floor = oldest.end

    def after(self, place: Place) -> Iterator[Piece]:
        """The pieces behind ``place``, which is not below the floor."""
        found: list[Piece] = []
        for piece, _ in reversed(self._pieces):
            if piece.end <= place:
                break
            found.append(piece.above(place))
        yield from reversed(found)
