"""What consumers of the change feed have written down, and whether that is what was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import slate_async as slate
from tests.simulation.checkers import Violation
from tests.simulation.history import History, Write
from tests.simulation.scenarios.engine.rows import MARKER
from tests.simulation.scenarios.engine.workload import put_expiring

Row = tuple[int, str, bytes, bytes | None]
"""Sequence number, "put" or "delete", key, value."""


@dataclass(slots=True)
class Consumed:
    """What one consumer has written down.

    subscription: the name of its subscription, if it has one; pin: whether its reader pins anything
    snapshot_seq: rows up to there are a snapshot
    acknowledged: the highest acknowledgement that was begun, and the highest that came back written down
    turn: of the process that may write
    """

    subscription: str | None
    pin: bool
    rows: list[Row] = field(default_factory=list)
    snapshot_seq: int = 0
    seq: int = 0
    begun: bool = False
    acknowledged: tuple[int, int] = (0, 0)
    turn: int = 0

    def forget(self) -> None:
        """Begin anew."""
        self.rows, self.snapshot_seq, self.seq, self.begun = [], 0, 0, False


def check_consumed(history: History, consumed: Consumed, name: str) -> None:
    """What was written down is what the final order says: exactly, above the snapshot; of that, what was there."""
    expected = [row for seq, write in history.final.ordered() for row in _rows_of(history.writes[write], seq)]
    above = [row for row in expected if row[0] > consumed.snapshot_seq]
    found = [row for row in consumed.rows if row[0] > consumed.snapshot_seq]
    if any(later[0] < earlier[0] for earlier, later in pairwise(consumed.rows)):
        raise Violation("feed", f"{name} was given {consumed.rows}, which is not in order")
    found.sort(key=lambda row: (row[0], row[2]))  # those of an ingest come in any order
    if found != above:
        wrong = next((pair for pair in zip(found, above, strict=False) if pair[0] != pair[1]), (len(found), len(above)))
        raise Violation("feed", f"{name} was given {wrong[0]} where {wrong[1]} was written")
    _check_snapshot([row for row in expected if row[0] <= consumed.snapshot_seq], consumed, name)


def _check_snapshot(before: list[Row], consumed: Consumed, name: str) -> None:
    found = [row for row in consumed.rows if row[0] <= consumed.snapshot_seq]
    newest = {row[2]: row for row in before}
    there = [row for row in before if newest[row[2]] is row and row[1] == "put"]
    lasting = [row for row in there if row[3] != b"expired"]
    if [row for row in found if row[3] != b"expired"] != lasting or not set(found) <= set(there):
        raise Violation("feed", f"{name} was given {found} as a snapshot of {there}")


def _rows_of(write: Write, seq: int) -> list[Row]:
    """The rows of a write whose marker has number ``seq``, in their order; those of an ingest in that of their keys."""
    batch = slate.WriteBatch()
    rows: list[tuple[str, bytes, bytes | None]] = [
        ("put" if value is not None else "delete", key, value) for key, value in write.changes.items()
    ]
    put_expiring(batch, write.expiring)
    rows += [("put", key, value) for key, value in zip(batch._keys, batch._values, strict=True)]
    rows.append(("put", MARKER + b"%06d" % write.id, b""))
    if write.ingested:
        return [(seq, *row) for row in sorted(rows, key=lambda row: row[1])]
    return [(seq - len(rows) + 1 + number, *row) for number, row in enumerate(rows)]
