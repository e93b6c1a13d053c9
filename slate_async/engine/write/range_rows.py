"""Rows that delete a range of keys: a delete of the range's first key whose value says where the range ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from slate_async.arguments import BytesLike
from slate_async.engine.read.bounds import key_range, successor_of_prefix
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.state import WriterState
from slate_async.errors import InvalidError, UnavailableError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.range_deletes import AllowRangeDeletes
from slate_async.storage.manifest.features import RANGE_DELETES_FEATURE
from slate_async.types import FIRST_KEY, MAX_KEY_BYTES, NO_END

MOST_RANGE_DELETES = 4_096
"""So many range deletes a database has at a time that compaction has not used up: each version of the manifest names
them, and reads search among them."""


def range_to_delete(start: BytesLike | None, end: BytesLike | None) -> tuple[bytes, bytes]:
    """Key and value of the row that deletes ``[start, end)``. Raises `InvalidError` for what holds no key."""
    try:
        span = key_range(start, end, None)
    except InvalidError as error:
        raise InvalidError(str(error), outcome="not_applied") from None
    for bound, name in ((span.start, "start"), (span.end, "end")):
        if bound is not None and len(bound) > MAX_KEY_BYTES:
            raise InvalidError(
                f"the {name} of a range to delete has at most {MAX_KEY_BYTES} bytes, not {len(bound)}",
                outcome="not_applied",
            )
    first = span.start or FIRST_KEY
    if span.end is not None and span.end <= first:
        raise InvalidError(
            f"the range to delete holds no key: its end {span.end[:64]!r} is not above its start {first[:64]!r}",
            outcome="not_applied",
        )
    return first, NO_END if span.end is None else span.end


def range_of_prefix(prefix: BytesLike) -> tuple[bytes, bytes | None]:
    """The range of the keys that begin with ``prefix``. Raises `InvalidError` for what is not bytes-like."""
    if prefix is None:
        raise InvalidError("prefix is bytes-like, not None", outcome="not_applied")
    try:
        span = key_range(None, None, prefix)
    except InvalidError as error:
        raise InvalidError(str(error), outcome="not_applied") from None
    return span.start or b"", span.end


def prefixed_end(until: bytes, prefix: bytes) -> bytes:
    """``until``, the value of such a row among the keys below ``prefix``, as a value among all keys."""
    if until != NO_END:
        return prefix + until
    return successor_of_prefix(prefix) or NO_END


async def allow_range_deletes(
    state: WriterState, pins: WriterPins, driver: ManifestDriver, count: int
) -> Callable[[], None]:
    """Before ``count`` range deletes are applied: see that every release that reads the database knows them, and that
    there are not too many. Others may be applied meanwhile, so the step that applies these calls what is returned, and
    that raises, too. Raises `InvalidError`, `UnavailableError`, `FencedError`; nothing is applied then."""
    if not state.manifest.wal_enabled:
        raise InvalidError(
            "a database without a write-ahead log (wal_enabled=False) has no range deletes; delete key by key",
            outcome="not_applied",
        )
    _check_number(state, count)
    if RANGE_DELETES_FEATURE not in state.manifest.required_features:
        try:
            async with pins.lock:
                state.adopt(await pins.pin(await driver.commit(AllowRangeDeletes(state.epoch))))
        except UnavailableError as error:
            raise UnavailableError(f"the first range delete was not applied: {error}", outcome="not_applied") from error
    return partial(_check_number, state, count)


def _check_number(state: WriterState, count: int) -> None:
    """Raise `UnavailableError` if there are too many with ``count`` more."""
    known = state.range_deletes
    if known + count > MOST_RANGE_DELETES:
        raise UnavailableError(
            f"{known} range deletes wait to be used up by compaction, and there may be {MOST_RANGE_DELETES}; compact"
            " the database, or delete larger ranges",
            outcome="not_applied",
        )
