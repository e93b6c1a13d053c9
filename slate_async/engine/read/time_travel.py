"""Time travel: which sequence number was the newest at a time, when a number was, and whether that is still exact.

Versions of a key above the manifest's ``history_floor`` are all kept, and the newest one at it, so a read at any number
from there on shows what a read then would have shown. Below, it is refused. So it is at a time before the manifest's
``expiry_floor_ms``: rows that had expired by then are dropped, and a read before then would have shown them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.view import ReadView
from slate_async.errors import InvalidError, NotFoundError
from slate_async.storage.manifest.history import seq_written_by
from slate_async.storage.manifest.state import ManifestState, SeqTime

TimeLike: TypeAlias = datetime | float
"""A datetime with its time zone, or seconds since the epoch."""


def as_of(
    point: ReadPoint,
    state: ManifestState,
    samples: Sequence[SeqTime],
    *,
    seq: int | None = None,
    time: TimeLike | None = None,
) -> ReadPoint:
    """What ``point`` shows as of a sequence number or a time, one of the two; expiry is judged at that time.

    ``point`` is of now; ``samples`` are times known besides those of ``state``, ascending. Raises `InvalidError` for a
    time to come, or one before what is kept."""
    if (seq is None) == (time is None):
        raise InvalidError("as_of() takes either seq= or time=")
    if time is not None:
        at_ms = _time_ms(time, point.now_ms, state.created_ms)
        found = min(point.max_seq, _seq_at(state, samples, point.view, at_ms))
    else:
        assert seq is not None
        found = _checked(seq, point.max_seq)
        at_ms = min(_time_of(state, samples, point.view, found, point.now_ms), point.now_ms)  # clocks may run ahead
        if found == point.max_seq:
            at_ms = max(at_ms, state.expiry_floor_ms)  # the newest it still was then
    if found < state.history_floor:
        raise NotFoundError(
            f"history is kept from sequence number {state.history_floor} on, and this is as of {found}; the setting"
            " retention_ms says how long later ones are kept"
        )
    if at_ms < state.expiry_floor_ms:
        raise NotFoundError(
            f"rows that had expired by {iso_time(state.expiry_floor_ms / 1000)} are dropped, and some of them lived at"
            " that time; the setting retention_ms says how long later ones are kept"
        )
    return ReadPoint(point.view, found, at_ms)


def time_to_seq(point: ReadPoint, state: ManifestState, samples: Sequence[SeqTime], time: TimeLike) -> int:
    """The highest sequence number known to be written at ``time`` or before; 0 if there was none. Arguments as of
    `as_of`. Exact where the rows of that time are in the log, else as fine as the manifest's samples.

    Raises `InvalidError` for a time to come, before the database was made, or before what is known."""
    known = _known_from(state)
    first_ms = state.created_ms if known is None else min(state.created_ms, known.time_ms)
    at_ms = _time_ms(time, point.now_ms, first_ms)
    if known is not None and state.history_floor and at_ms < known.time_ms:
        raise NotFoundError(f"times are known from {iso_time(known.time_ms / 1000)} on, of sequence number {known.seq}")
    return min(point.max_seq, _seq_at(state, samples, point.view, at_ms))


def seq_to_time(point: ReadPoint, state: ManifestState, samples: Sequence[SeqTime], seq: int) -> float:
    """By which time, in seconds since the epoch, ``seq`` was written for sure. Arguments and precision as of
    `time_to_seq`.

    Raises `InvalidError` for what is no number of a row, is not here yet, or is older than what is known."""
    if _checked(seq, point.max_seq) == 0:
        raise InvalidError("sequence numbers of rows begin with 1")
    known = _known_from(state)
    if known is not None and state.history_floor and seq < known.seq:
        raise NotFoundError(
            f"the time of sequence number {seq} is not known any more; times are known from sequence number"
            f" {known.seq} on"
        )
    return _time_of(state, samples, point.view, seq, point.now_ms) / 1000


def iso_time(seconds: float) -> str:
    """ISO 8601, in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def check_seq(seq: int) -> None:
    """Raise `InvalidError` unless ``seq`` can be a sequence number."""
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
        raise InvalidError(f"a sequence number is a whole number from 0 on, not {seq!r}")


def _known_from(state: ManifestState) -> SeqTime | None:
    """The oldest sample. Once there is a ``history_floor``, older samples were dropped; before that nothing is
    older."""
    return state.seq_times[0] if state.seq_times else None


def _time_ms(time: TimeLike, now_ms: int, first_ms: int) -> int:
    """Raises `InvalidError` unless it lies between the two."""
    at_ms = _milliseconds(time)
    if at_ms > now_ms:
        raise InvalidError("the time to look back to is in the future")
    if at_ms < first_ms:
        raise InvalidError("the time to look back to is before the database was created")
    return at_ms


def _milliseconds(time: TimeLike) -> int:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidError("a time is a datetime with a time zone, or seconds since the epoch")
        time = time.timestamp()
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 2**53:
        raise InvalidError(f"a time is a datetime with a time zone, or seconds since the epoch, not {time!r}")
    return int(time * 1000 + 0.001)  # whole milliseconds are not whole as seconds; what is finer is cut off


def _checked(seq: int, newest: int) -> int:
    check_seq(seq)
    if seq > newest:
        raise InvalidError(f"sequence number {seq} is not here yet, the newest is {newest}; wait for it, then read")
    return seq


def _seq_at(state: ManifestState, samples: Sequence[SeqTime], view: ReadView, at_ms: int) -> int:
    """The highest number known to be written by then; exact where the rows of that time are in memory."""
    known = [sample.seq for sample in samples if sample.time_ms <= at_ms]
    in_memory = [table.seq_written_by(at_ms) for table in view.memtables]
    return max([seq_written_by(state, at_ms), *known, *in_memory])


def _time_of(state: ManifestState, samples: Sequence[SeqTime], view: ReadView, seq: int, now_ms: int) -> int:
    """When ``seq`` had been written for sure; exact where its row is in memory."""
    for table in view.memtables:
        if len(table) and table.first_seq <= seq <= table.last_seq:
            return table.time_of(seq)
    later = [sample.time_ms for sample in samples if sample.seq >= seq]
    if seq <= state.last_seq:
        later.append(state.last_tick_ms)
        number = bisect_left(state.seq_times, seq, key=lambda sample: sample.seq)
        later += [sample.time_ms for sample in state.seq_times[number : number + 1]]
    return min(later, default=now_ms)
