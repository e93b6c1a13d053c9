"""What is true of a table: who appended and deleted which rows, what they were answered, and what was seen.

Each row has a number of its own, so a row that is there twice, or comes back, is recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tests.simulation.checkers import Violation


@dataclass(slots=True)
class Append:
    """Rows of one append, maybe sent several times under one ``append_id``.

    acknowledged, refused: it is in, for certain, or certainly not; neither: nobody knows"""

    rows: tuple[int, ...]
    acknowledged: bool = False
    refused: bool = False


@dataclass(slots=True)
class Upsert:
    """One row with a key, put in the place of others with it."""

    row: int
    key: int
    acknowledged: bool = False
    refused: bool = False


@dataclass(slots=True)
class Ledger:
    """See the module docstring.

    deleting, deleted: rows that somebody has begun to delete, and those of acknowledged deletes
    """

    appends: list[Append] = field(default_factory=list)
    deleting: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    upserts: list[Upsert] = field(default_factory=list)
    _next: int = 0

    def count(self, name: str, more: int = 1) -> None:
        """So many more of ``name``."""
        self.counts[name] = self.counts.get(name, 0) + more

    def new(self, rows: int) -> Append:
        """The next append, of so many rows."""
        first, self._next = self._next, self._next + rows
        made = Append(tuple(range(first, first + rows)))
        self.appends.append(made)
        return made

    def new_upsert(self, key: int) -> Upsert:
        """The next upsert of ``key``."""
        made = Upsert(self._next, key)
        self._next += 1
        self.upserts.append(made)
        return made

    def upserted(self) -> dict[int, list[Upsert]]:
        """Those that are in, by key."""
        by_key: dict[int, list[Upsert]] = {}
        for upsert in self.upserts:
            if upsert.acknowledged:
                by_key.setdefault(upsert.key, []).append(upsert)
        return by_key

    def keys_seen(self, who: str, found: Sequence[tuple[int, int]], before: Collection[int]) -> None:
        """Judge the rows and keys of a scan that began when upserts of the keys ``before`` were acknowledged.

        Raises `Violation`."""
        rows = {upsert.row: upsert for upsert in self.upserts}
        keys = [key for _, key in found]
        if twice := sorted(key for key in set(keys) if keys.count(key) > 1):
            raise Violation("one-row-a-key", f"{who} saw several rows with the keys {twice}")
        for row, key in found:
            if row not in rows or rows[row].key != key or rows[row].refused:
                raise Violation("foreign", f"{who} saw row {row} with key {key}, which nobody put there")
        if lost := set(before) - set(keys):
            raise Violation("lost", f"{who} did not see a row with the keys {sorted(lost)}")

    def acknowledged(self) -> list[Append]:
        """Appends that are in."""
        return [append for append in self.appends if append.acknowledged]

    def seen(
        self, who: str, found: Sequence[int], before: Sequence[Append], deleted: set[int], *, final: bool = False
    ) -> None:
        """Judge a scan that began when the appends ``before`` were acknowledged, and the deletes of ``deleted``.

        Raises `Violation`."""
        there = set(found)
        if len(there) < len(found):
            raise Violation("twice", f"{who} saw {sorted(row for row in there if found.count(row) > 1)} more than once")
        if back := there & deleted:
            raise Violation("came-back", f"{who} saw {sorted(back)}, which were deleted before")
        for append in before:
            lost = set(append.rows) - there - self.deleting
            if lost:
                raise Violation("lost", f"{who} did not see {sorted(lost)} of {append.rows}")
        for append in self.appends:
            some = there & set(append.rows)
            if some and append.refused and final:
                raise Violation("refused", f"{who} saw {sorted(some)}, of an append that was refused")
            if some and set(append.rows) - there - self.deleting:
                raise Violation("torn", f"{who} saw only {sorted(some)} of {append.rows}")
