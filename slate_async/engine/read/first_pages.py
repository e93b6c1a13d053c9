"""The first pages of a scan: rows of a range from what memory and the block cache hold, or can be read without waiting.

Streams, tasks and columns pay for themselves over hundreds of rows. A scan of a few rows asks every source for its
first keys of the range instead, and is done if all of them can answer without waiting. Each is asked for its share of
the rows (`slate_async.engine.read.shares`); one that turns out to hold more of the range is asked again, by itself.

Ordering rule: sources come newest first, so of a key's rows the first source's counts (`engine.read.sources`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias, cast

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.shares import LEAST_ASKED
from slate_async.engine.read.sources import Run, TableSource
from slate_async.engine.read.view import ReadView
from slate_async.runtime.gather import gather
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.reader import MissingError
from slate_async.types import RowHit, RowPage

MOST_SOURCES = 64
"""More sources are too many to ask at one go."""

MOST_READ = 8
"""So many blocks may be read in one step without waiting: a third of a millisecond."""

SOURCES_PER_STEP = 4
"""To give a turn after each source takes a tenth of a scan's time, and meanwhile its blocks may go from a small cache.
"""

REFILLS_AT_ONCE = 3
MOST_REFILLS = 64
"""So often sources are asked again before a page is content with fewer rows; at once one block is read each time."""

FirstPage: TypeAlias = tuple[list[tuple[bytes, Any]], bytes | None]
"""Keys with their rows in scan order, and the last key looked at, ``None`` if nothing comes after it."""


def first_page(point: ReadPoint, span: KeyRange, count: int, reverse: bool, whole: bool) -> FirstPage | None:
    """At most ``count`` live rows of ``span``, in ``reverse`` its last ones, the last one first; ``None`` if that takes
    waiting, or longer. A row is its value, with ``whole`` a `RowHit`.

    No rows before a last key: all that was met is hidden."""
    view, max_seq, now_ms = point
    if not view.has_pages(span):
        return None
    if len(view.levels) == 1:  # in most cases by itself
        for table in view.memtables:
            if table.last_seq:
                break
        else:
            page = view.levels[0].first_rows(*span, count, max_seq, now_ms, reverse, whole, MOST_READ)
            if page is None:
                return None
            pairs, hides, ended = page
            if not hides:
                return pairs, None if ended else pairs[-1][0]
    steps = _steps(point, span, count, reverse, whole, at_once=True)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("FirstPage | None", done.value)


async def first_page_yielding(
    point: ReadPoint, span: KeyRange, count: int, reverse: bool, whole: bool, yield_budget: YieldBudget
) -> FirstPage | None:
    """As `first_page` where that takes longer: keys of memtables are put in order, indexes are loaded, and
    more blocks read, within the budget. ``None`` if the rows are not on this machine, or an object is missing.

    Raises `CorruptionError`, `UnavailableError`."""
    view, max_seq, _ = point
    if len(view.memtables) + len(view.levels) > MOST_SOURCES or not view.has_pages(span):
        return None
    for table, limit in view.memory(max_seq):
        for _ in table.order_steps(limit):
            if yield_budget.exhausted():
                await yield_budget.yield_now()
    firsts = list(_firsts(view.levels, span, reverse))
    try:
        loads = [source.load() for source in firsts]
        # held until all was asked: a small cache may have no room for all indexes
        held = [await load for load in loads] if all(source.loaded for source in firsts) else await gather(loads)
    except MissingError:
        return None  # streams ask again, and know what to do
    steps = _steps(point, span, count, reverse, whole, at_once=False)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            del held
            return cast("FirstPage | None", done.value)
        if yield_budget.exhausted():
            await yield_budget.yield_now()


def _firsts(levels: Sequence[Run], span: KeyRange, reverse: bool) -> Iterator[TableSource]:
    """What comes first in each level."""
    for level in levels:
        numbers = level.within(*span)
        if numbers:
            yield level.table(numbers[-1 if reverse else 0]).source


def _sources(view: ReadView) -> list[tuple[int, Memtable | Run]]:
    """What may hold rows, newest first, by its number among memtables and levels."""
    sources: list[tuple[int, Memtable | Run]] = [pair for pair in enumerate(view.memtables) if pair[1].last_seq]
    sources += enumerate(view.levels, len(view.memtables))
    return sources


def _steps(
    point: ReadPoint, span: KeyRange, count: int, reverse: bool, whole: bool, *, at_once: bool
) -> Generator[None, None, FirstPage | None]:
    """`first_page` in steps of some sources each, which may read `MOST_READ` blocks; ``at_once``: all together may read
    little more."""
    view, max_seq, now_ms = point
    sources = _sources(view)
    if len(sources) > MOST_SOURCES:
        return None
    asked = view.shares.asked(count)
    blocks = MOST_READ // max(1, len(view.levels)) if at_once else MOST_READ
    filled: list[tuple[int, RowPage]] = []
    for number, source in sources:
        page = source.first_rows(*span, asked[number], max_seq, now_ms, reverse, whole, blocks)
        if page is None:
            return None
        if page[0]:
            filled.append((number, page))
        if number % SOURCES_PER_STEP == SOURCES_PER_STEP - 1:
            yield
    refills, blocks = (REFILLS_AT_ONCE, 1) if at_once else (MOST_REFILLS, MOST_READ)
    for refill in range(refills + 1):
        found, bound = _merged([page for _, page in filled], count, reverse)
        if bound is None or len(found) >= count or refill == refills:
            break
        missing = min(count, count - len(found) + LEAST_ASKED)
        numbered = dict(sources)
        beyond = KeyRange(span.start, bound) if reverse else KeyRange(bound + b"\0", span.end)
        for at, (number, (pairs, hides, ended)) in enumerate(filled):
            if not ended and pairs[-1][0] == bound:
                page = numbered[number].first_rows(*beyond, missing, max_seq, now_ms, reverse, whole, blocks)
                if page is None:
                    return found, bound
                filled[at] = number, (pairs + page[0], hides or page[1], page[2])
                yield
    view.shares.met(found, filled, refill > 0)
    return found, bound


def _merged(newest_first: Sequence[RowPage], count: int, reverse: bool) -> FirstPage:
    """The newest row of each key, up to where a page stops that has not ended."""
    if len(newest_first) == 1:
        pairs, hides, ended = newest_first[0]
        if not hides and len(pairs) <= count:
            return pairs, None if ended else pairs[-1][0]
    stops = [pairs[-1][0] for pairs, _, ended in newest_first if not ended]
    bound = (max(stops) if reverse else min(stops)) if stops else None
    newest: dict[bytes, bytes | RowHit | None] = {}
    for pairs, _, _ in reversed(newest_first):
        newest.update(pairs)
    keys = sorted(newest)
    if bound is not None:
        keys = keys[bisect_left(keys, bound) :] if reverse else keys[: bisect_right(keys, bound)]
    if reverse:
        keys.reverse()
    if any(hides for _, hides, _ in newest_first):
        keys = [key for key in keys if newest[key] is not None]
    if len(keys) > count:
        bound = keys[count - 1]
        del keys[count:]
    return list(zip(keys, map(newest.__getitem__, keys), strict=True)), bound
