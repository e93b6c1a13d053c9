"""What watchers were given, and whether that is what was written: every row once, in order, none but durable ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.simulation.checkers import Violation
from tests.simulation.history import History
from tests.simulation.scenarios.life.consumed import Row, _rows_of


@dataclass(slots=True)
class Watched:
    """What one watcher was given: what matches ``prefix`` above ``begin``, and by its own account all up to ``end``.

    known: what was checked of it in a life that a snapshot had begun is none of this"""

    name: str
    prefix: bytes
    begin: int
    end: int
    rows: list[Row] = field(default_factory=list)


def rows_by_seq(history: History) -> Mapping[int, list[Row]]:
    """What was written, by the number of each row."""
    found: dict[int, list[Row]] = {}
    for seq, write in history.final.ordered():
        for row in _rows_of(history.writes[write], seq):
            found.setdefault(row[0], []).append(row)
    return found


def check_watched(written: Mapping[int, list[Row]], watched: Watched) -> None:
    """What was given is what was written, in order; of the ingest that it ended within, a part."""
    name, given = watched.name, watched.rows
    if any((later[0], later[2]) < (earlier[0], earlier[2]) for earlier, later in pairwise(given)):
        raise Violation("watch", f"{name} was given {given}, which is not in order")
    expected = [
        row
        for seq, rows in sorted(written.items())
        if watched.begin < seq <= watched.end
        for row in sorted(rows, key=lambda row: row[2])
        if row[2].startswith(watched.prefix)
    ]
    found = sorted((row for row in given if row[0] <= watched.end), key=lambda row: (row[0], row[2]))
    if found != expected:
        wrong = next(
            (pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), (len(found), len(expected))
        )
        raise Violation(
            "watch", f"{name}, {watched.begin} to {watched.end}, was given {wrong[0]} where {wrong[1]} was written"
        )
    rest = [row for row in given if row[0] > watched.end]
    if len(set(rest)) < len(rest) or any(row not in written.get(row[0], []) for row in rest):
        raise Violation("watch", f"{name}, at {watched.end}, was also given {rest}")
