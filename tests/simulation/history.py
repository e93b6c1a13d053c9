"""What the users of a database saw: writes, acknowledgements, views, reads. The checkers judge it.

The workload it is made for: every write is one atomic batch that changes some contended keys and puts one *marker*
row under a key of its own as its last row. So a scan shows exactly which writes a state contains, each with the
sequence number of its marker, and what the contended keys must hold follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.linearizability import NEVER


class Kind(Enum):
    """What a view promises."""

    OPENED = "opened"
    """What a writer found when it had taken over."""
    DURABLE = "durable"
    """Durable rows only: a prefix of the final order."""
    MEMORY = "memory"
    """Durable rows, then own rows that a takeover may undo."""
    FINAL = "final"
    """The end of the history, after everything settled."""


@dataclass(slots=True)
class Write:
    """One batch.

    id: unique in the history, names its marker
    writer, epoch: the process and the writer epoch it was given to
    changes: contended keys and their new values, ``None`` for a delete; values are unique in the history
    seq: sequence number of the marker, once known
    acked: when it was acknowledged as durable
    refused: whether it failed and is certainly not in
    expiring: keys with a time to live and what is left of them in the end: a value, or ``None`` if it is over by then
    ingested: it was given to no writer, but came as a bulk ingest: of no epoch, all its rows under one number
    """

    id: int
    writer: str
    epoch: int
    changes: Mapping[bytes, bytes | None]
    invoked: float
    seq: int | None = None
    acked: float = NEVER
    refused: bool = False
    expiring: Mapping[bytes, bytes | None] = field(default_factory=dict)
    ingested: bool = False

    @property
    def is_acked(self) -> bool:
        """Whether it was acknowledged as durable."""
        return self.acked != NEVER

    def __str__(self) -> str:
        state = "acknowledged" if self.is_acked else "refused" if self.refused else "unknown"
        return f"write {self.id} (seq {self.seq}, {self.writer}, epoch {self.epoch}, {state})"


@dataclass(frozen=True, slots=True)
class View:
    """One scan of everything.

    writes: (write id, sequence number of its marker), any order
    values: contended keys that are there
    at: when the scan ended; began: when the opening of the database began that it was made through, 0 if nobody noted
    """

    observer: str
    kind: Kind
    writes: tuple[tuple[int, int], ...]
    values: Mapping[bytes, bytes]
    epoch: int | None = None
    at: float = 0.0
    began: float = 0.0

    def ordered(self) -> list[tuple[int, int]]:
        """(sequence number, write id), ascending."""
        return sorted((seq, write) for write, seq in self.writes)


@dataclass(frozen=True, slots=True)
class Read:
    """A confirmed read of one contended key."""

    observer: str
    key: bytes
    value: bytes | None
    start: float
    end: float


@dataclass(slots=True)
class History:
    """Grows as the scenario runs. ``now`` is the virtual time of the world. Writes are numbered on from ``ids_from``,
    so that those of several databases differ."""

    now: Callable[[], float]
    ids_from: int = 0
    writes: dict[int, Write] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    snapshots: dict[tuple[str, str], object] = field(default_factory=dict)
    unstable: list[str] = field(default_factory=list)
    moments: list[tuple[int, View]] = field(default_factory=list)
    """What was there when the newest sequence number was that one."""

    @property
    def next_id(self) -> int:
        """The id of the write that comes next."""
        return self.ids_from + len(self.writes) + 1

    def begin(self, writer: str, epoch: int, changes: Mapping[bytes, bytes | None]) -> Write:
        """A write is about to be given to the database."""
        write = Write(self.next_id, writer, epoch, dict(changes), self.now())
        self.writes[write.id] = write
        return write

    def ack(self, write: Write) -> None:
        """It was acknowledged as durable."""
        write.acked = self.now()

    def view(
        self,
        observer: str,
        kind: Kind,
        writes: Sequence[tuple[int, int]],
        values: Mapping[bytes, bytes],
        epoch: int | None = None,
        began: float = 0.0,
    ) -> View:
        """A scan has ended."""
        view = View(observer, kind, tuple(writes), dict(values), epoch, self.now(), began)
        self.views.append(view)
        return view

    def read(self, observer: str, key: bytes, value: bytes | None, start: float) -> None:
        """A confirmed read has returned."""
        self.reads.append(Read(observer, key, value, start, self.now()))

    def snapshot_read(self, snapshot: str, query: str, result: object) -> None:
        """A read of a snapshot has returned; the same query must always give the same."""
        first = self.snapshots.setdefault((snapshot, query), result)
        if first != result:
            self.unstable.append(f"snapshot {snapshot}: {query} gave {first!r}, then {result!r}")

    @property
    def final(self) -> View:
        """The last view of kind `Kind.FINAL`."""
        finals = [view for view in self.views if view.kind is Kind.FINAL]
        if not finals:
            raise ValueError("the scenario recorded no final view")
        return finals[-1]
