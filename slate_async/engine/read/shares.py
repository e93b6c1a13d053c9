"""`Shares`: how much of the first pages of scans each source of a view has.

Sources may be very unequal: a memtable of a few keys that were written again and again, a run of all keys. Each is
asked for what it had lately, and some more. The parts may add up to more than the whole, for a key may be in several
sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from slate_async.types import RowPage

LEAST_ASKED = 8
SPARE = 1.25
"""A source is asked for so many times its share of the rows, and `LEAST_ASKED` more: to ask once more costs as much as
dozens of rows."""
PAGES_PER_LESSON = 16


class Shares:
    """Of one view; its sources are numbered newest first."""

    __slots__ = ("_pages", "_parts")

    def __init__(self, sources: int) -> None:
        self._parts = [min(1.0, 2 / sources)] * sources if sources else []
        self._pages = 0

    def asked(self, count: int) -> list[int]:
        """How many rows each source is asked for by a scan of ``count``."""
        spare = SPARE * count
        return [min(count, LEAST_ASKED + int(spare * part)) for part in self._parts]

    def met(self, found: Sequence[tuple[bytes, Any]], pages: Iterable[tuple[int, RowPage]], short: bool) -> None:
        """A scan has ``found`` these rows in the ``pages`` of the sources numbered beside them; ``short``: of some
        too few. Learns of it now and then."""
        self._pages += 1
        if not found or not (short or self._pages % PAGES_PER_LESSON == 0):
            return
        first, last = sorted((found[0][0], found[-1][0]))
        lately = [0.0] * len(self._parts)
        for number, (pairs, _, _) in pages:
            lately[number] = min(1.0, sum(first <= key <= last for key, _ in pairs) / len(found))
        self._parts = [(part + now) / 2 for part, now in zip(self._parts, lately, strict=True)]
