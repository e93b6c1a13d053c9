"""Short scans: the next rows of a range from what memory and the block cache hold, and this machine has at hand.

Streams, tasks and columns pay for themselves over hundreds of rows. A scan of a few rows asks every source for its
first keys of the range instead, and is done if all of them can answer without waiting.

Ordering rule: sources come newest first, so of a key's rows the first source's counts (`slate_async.read.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from slate_async.read.bounds import KeyRange
from slate_async.read.look import Look
from slate_async.types import RowHit, Stretch

LEAST_ASKED = 8
"""Of several sources each is asked for twice its share of the rows and so many more: most of them are not needed."""

MOST_SOURCES = 64
"""More sources are too many to ask at one go."""

MOST_READ = 8
"""So many blocks, of all levels together, may be read that this machine has at hand: a third of a millisecond."""

FirstRows: TypeAlias = tuple[list[tuple[bytes, Any]], bytes | None]
"""Keys with their rows in scan order, and the last key looked at, ``None`` if nothing comes after it."""


def first_rows(look: Look, span: KeyRange, count: int, reverse: bool, whole: bool) -> FirstRows | None:
    """At most ``count`` live rows of ``span``, in ``reverse`` its last ones, the last one first; ``None`` if that takes
    more than a look. A row is its value, with ``whole`` a `RowHit`.

    No rows before a last key: all that was met is hidden."""
    view, max_seq, now_ms = look
    levels = view.levels
    sources: list[Callable[..., Stretch | None]] = [table.first_rows for table in view.memtables if table.last_seq]
    if not 0 < len(levels) <= MOST_READ:
        sources += [level.first_rows for level in levels]
    else:
        sources += [partial(level.first_rows, reading=MOST_READ // len(levels)) for level in levels]
    if len(sources) > MOST_SOURCES:
        return None
    asked = count if len(sources) < 2 else min(count, LEAST_ASKED + 2 * count // len(sources))
    filled: list[Stretch] = []
    for first_rows_of in sources:
        stretch = first_rows_of(*span, asked, max_seq, now_ms, reverse, whole)
        if stretch is None:
            return None
        if stretch[0]:
            filled.append(stretch)
    if len(filled) == 1:
        pairs, hides, ended = filled[0]
        if not hides:
            return pairs, None if ended else pairs[-1][0]
    return _merged(filled, count, reverse)


def _merged(newest_first: Sequence[Stretch], count: int, reverse: bool) -> FirstRows:
    """The newest row of each key, up to where a stretch stops that has not ended."""
    stops = [pairs[-1][0] for pairs, _, ended in newest_first if not ended]
    bound = (max(stops) if reverse else min(stops)) if stops else None
    newest: dict[bytes, bytes | RowHit | None] = {}
    for pairs, _, _ in reversed(newest_first):
        newest.update(pairs)
    found: list[tuple[bytes, Any]] = []
    for key in sorted(newest, reverse=reverse):
        if bound is not None and (key < bound if reverse else key > bound):
            break
        row = newest[key]
        if row is not None:
            if len(found) == count:
                return found, found[-1][0]
            found.append((key, row))
    return found, bound
