"""Short scans: the next rows of a range from what memory and the block cache hold.

Streams, tasks and columns pay for themselves over hundreds of rows. A scan of a few rows asks every source for its
first keys of the range instead, and is done if all of them can answer without waiting.

Ordering rule: sources come newest first, so of a key's rows the first source's counts (`slate_async.read.sources`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias, cast

from slate_async.memtable import Memtable
from slate_async.read.bounds import KeyRange
from slate_async.read.sources import Run
from slate_async.types import NO_KEYS, Stretch

Pair: TypeAlias = tuple[bytes, bytes]


LEAST_ASKED = 8
"""Of several sources each is asked for twice its share of the rows and so many more: most of them are not needed."""

MOST_SOURCES = 64
"""More sources are too many to ask at one go."""

FirstRows: TypeAlias = tuple[Iterator[Pair], int, bytes | None]
"""Pairs of key and value in key order, how many, and the last key looked at, ``None`` if nothing comes after it."""


def first_rows(
    memtables: Sequence[tuple[Memtable, int]],
    levels: Sequence[Run],
    span: KeyRange,
    count: int,
    max_seq: int,
    now_ms: int,
) -> FirstRows | None:
    """At most ``count`` live rows from the start of ``span``; ``None`` if that takes more than a look.

    Memtables come with the highest sequence number to see of each. No rows before a last key: all that was met is
    hidden."""
    start, end = span
    sources = len(memtables) + len(levels)
    if sources > MOST_SOURCES:
        return None
    asked = count if sources < 2 else min(count, LEAST_ASKED + 2 * count // sources)
    filled: list[Stretch] = []
    for table, limit in memtables:
        stretch = table.first_rows(start, end, asked, limit, now_ms)
        if stretch is None:
            return None
        if stretch[0]:
            filled.append(stretch)
    for run in levels:
        stretch = _first_of_run(run, start, end, asked, max_seq, now_ms)
        if stretch is None:
            return None
        if stretch[0]:
            filled.append(stretch)
    if len(filled) == 1:
        keys, values, hides, ended = filled[0]
        if not hides:
            return zip(keys, cast("list[bytes]", values)), len(keys), None if ended else keys[-1]  # noqa: B905
    return _merged(filled, count)


def _first_of_run(
    run: Run, start: bytes | None, end: bytes | None, count: int, max_seq: int, now_ms: int
) -> Stretch | None:
    number, stop = run.first_from(start), len(run)
    while number < stop and (end is None or run.table(number).first_key < end):
        stretch = run.table(number).source.first_rows(start, end, count, max_seq, now_ms)
        number += 1
        if stretch is None:
            return None
        if stretch[0]:
            if number < stop and stretch[3] and (end is None or run.table(number).first_key < end):
                return (*stretch[:3], False)
            return stretch
    return NO_KEYS


def _merged(newest_first: list[Stretch], count: int) -> FirstRows:
    """The newest row of each key, up to where a stretch stops that has not ended."""
    bound = min((keys[-1] for keys, _, _, ended in newest_first if not ended), default=None)
    newest: dict[bytes, bytes | None] = {}
    for keys, values, _, _ in reversed(newest_first):
        newest.update(zip(keys, values, strict=True))
    keys = sorted(newest)
    if bound is not None:
        del keys[bisect_right(keys, bound) :]
    pairs = []
    for place, key in enumerate(keys, 1):
        value = newest[key]
        if value is not None:
            pairs.append((key, value))
            if len(pairs) == count:
                return iter(pairs), count, None if bound is None and place == len(keys) else key
    return iter(pairs), len(pairs), bound
