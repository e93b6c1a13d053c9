"""Where a read looks: `Table` and `Run` are sorted tables with their key ranges, `TableSource` is what one can do.

Ordering rule: sources are asked newest first, and a key's newest version is in the first source that has one,
because sequence numbers rise with the age order of the sources.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from slate_async.codec.columns import Columns
from slate_async.errors import InternalError
from slate_async.storage.format.sst import SstMeta
from slate_async.storage.sst.around import Around
from slate_async.storage.sst.passing import Passing
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, NO_KEYS, NeedsIO, RowHit, RowPage

BEYOND_ALL_KEYS = b"\xff" * (MAX_KEY_BYTES + 1)
"""Greater than any key, for the end of a range that has none."""


class TableSource(Protocol):
    """A sorted, immutable table whose parts are loaded on demand. Errors of the store and `CorruptionError` pass."""

    @property
    def key(self) -> str:
        """The object it is read from."""

    @property
    def size(self) -> int:
        """Bytes stored."""

    @property
    def loaded(self) -> bool:
        """Whether index and filter are in memory."""

    async def load(self) -> SstMeta:
        """Bring index and filter in; concurrent calls share one load, a failed one may be called again."""

    def probe(
        self, key: bytes, key_hash: int, max_seq: int, reading: bool = False, passing: Passing | None = None
    ) -> RowHit | NeedsIO | None:
        """The newest version up to ``max_seq``, or `NEEDS_IO` when something is not in memory. With ``reading`` a block
        may be read without waiting, which takes some ten microseconds. Never suspends. ``passing``: of a call for many
        keys, which ascend; indexes that somebody holds are in memory then, too."""

    def around(self, key: bytes, most_rows: int) -> Around | None:
        """The keys around ``key`` that one block alone may hold, of about ``most_rows`` rows at most; ``None`` if there
        are none, or that is not known."""

    def chain(self, key: bytes, key_hash: int, max_seq: int, most: int, reading: int) -> list[RowHit] | NeedsIO:
        """The newest version up to ``max_seq``, and behind an operand the older ones, down to the newest that is none;
        `NEEDS_IO` as of `probe`, and of more than ``most``. ``reading``: so many blocks may be read without waiting."""

    async def get(self, key: bytes, key_hash: int, max_seq: int) -> RowHit | None:
        """As `probe`, reading what is missing; concurrent reads of one block share one request."""

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: int = 0,
    ) -> RowPage | None:
        """The first keys of ``[start, end)`` in scan order, at most ``count`` of them, as a reader up to ``max_seq``
        sees them at ``now_ms``, with values or ``whole`` rows; none only if there are none. ``None`` when that is not
        in memory, or takes longer than a page should. ``reading``: so many blocks may be read without waiting."""

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> AsyncIterator[Columns]:
        """All versions of the keys in ``[start, end)``, sorted; in reverse the batches come from the end, the rows
        inside a batch ascending. A key's versions may be spread over neighbouring batches."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A source and the keys it may hold: ``first_key`` to ``last_key``, both inclusive; ``expires`` unless it is known
    that no row of it does; ``max_seq``: no row of it is newer."""

    first_key: bytes
    last_key: bytes
    source: TableSource
    expires: bool = True
    max_seq: int = MAX_SEQ


class KeySpan(Protocol):
    """Keys from ``first_key`` to ``last_key``, both inclusive; ``max_seq``: no row of them is newer."""

    @property
    def max_seq(self) -> int: ...

    @property
    def first_key(self) -> bytes: ...

    @property
    def last_key(self) -> bytes: ...


_first_key, _last_key = attrgetter("first_key"), attrgetter("last_key")
LISTED_AT_ONCE = 1024
"""A run may have 100,000 tables: with each search so many last keys are listed, until searching these is faster."""


class Run:
    """Tables with disjoint key ranges in key order: at most one of them holds a given key.

    A subclass may make a table when it is first asked for. It starts from ``spans``, the keys of each."""

    __slots__ = ("_last_keys", "_spans", "_tables")

    def __init__(self, tables: Sequence[Table]) -> None:
        self._spans: Sequence[KeySpan] = tables
        self._tables: list[Table | None] = list(tables)
        self._last_keys: list[bytes] = []

    def __len__(self) -> int:
        return len(self._spans)

    def _make(self, number: int) -> Table:
        """Table ``number``, which is not made yet."""
        raise InternalError(f"table {number} of a run was never given")

    def table(self, number: int) -> Table:
        """Table ``number``, counted from 0 in key order."""
        return self._tables[number] or self._make(number)

    def spans(self, numbers: range) -> Sequence[KeySpan]:
        """The keys of the tables ``numbers``."""
        return self._spans[numbers.start : numbers.stop]

    def extents(self, first: int, stop: int) -> tuple[list[bytes], list[int]]:
        """The first key of each of the tables from ``first`` to ``stop`` (exclusive), and the bytes of each."""
        tables = [self.table(number) for number in range(first, stop)]
        return [table.first_key for table in tables], [table.source.size for table in tables]

    @property
    def tables(self) -> list[Table]:
        """All of them: for runs that are known to be short."""
        return [self.table(number) for number in range(len(self))]

    @property
    def expires(self) -> bool:
        """Whether it may hold rows that expire."""
        return any(table.expires for table in self.tables)

    def reads(self, key: str) -> bool:
        """Whether the object ``key`` is one of its sources."""
        return any(table.source.key == key for table in self.tables)

    def same_as(self, other: Run) -> bool:
        """Whether both are the same tables."""
        return self is other or self._spans == other._spans

    def _first_ending_at(self, key: bytes) -> int:
        """The number of the first table whose last key is ``key`` or above; of none, how many there are."""
        listed, spans = self._last_keys, self._spans
        if len(listed) < len(spans):
            listed += [span.last_key for span in spans[len(listed) : len(listed) + LISTED_AT_ONCE]]
            if len(listed) < len(spans):
                return bisect_left(spans, key, key=_last_key)
        return bisect_left(listed, key)

    def find(self, key: bytes) -> Table | None:
        """The table that may hold ``key``."""
        number = self._first_ending_at(key)
        if number == len(self._spans) or self._spans[number].first_key > key:
            return None
        return self._tables[number] or self._make(number)

    def first_from(self, start: bytes | None) -> int:
        """The number of the first table that may hold keys of ``start`` or above; of none, how many there are."""
        return 0 if start is None else self._first_ending_at(start)

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: int = 0,
    ) -> RowPage | None:
        """As of a `TableSource`, of all tables together."""
        numbers = self.within(start, end)
        for number in reversed(numbers) if reverse else numbers:
            source = self.table(number).source
            page = source.first_rows(start, end, count, max_seq, now_ms, reverse, whole, reading)
            if page is None:
                return None
            reading = 0  # the next table is for another page
            if page[0]:
                more = number > numbers.start if reverse else number + 1 < numbers.stop
                return (*page[:2], False) if more else page
        return NO_KEYS

    def gap(self, key: bytes) -> tuple[bytes, bytes]:
        """The range ``[start, end)`` around ``key``, which no table may hold, that no table holds keys of."""
        number = self.first_from(key)
        start = self._spans[number - 1].last_key + b"\0" if number else b""
        return start, self._spans[number].first_key if number < len(self._spans) else BEYOND_ALL_KEYS

    def within(self, start: bytes | None, end: bytes | None) -> range:
        """The numbers of the tables that overlap ``[start, end)``, in key order."""
        stop = len(self._spans) if end is None else bisect_left(self._spans, end, key=_first_key)
        return range(self.first_from(start), stop)
