"""Log objects that are missing although the log continues past them, judged before a hole counts as the log's end.

What is known of the end is the manifest's ``log_last_seen``, or what the writer's register commits. Positions up to
there were in the store once, for good, until the log's start moved past them; so one that is missed is lost, unless a
head read *afterwards* says that it was compacted meanwhile (rule 13), or the marker, read after that, that this is
another place (R10).

Rules 13 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.log.names import PREFIX, contiguous_key, epoch_key, parse_contiguous
from slate_async.storage.log.recovery import EpochRange, owner_of
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import ManifestState

ENOUGH = 1_000
"""A listing goes on past what is known of the end for so many keys: stores give as many to one request."""

BESIDE_ROWS_BYTES = 256
"""A log object of one block has no more than its rows."""


@dataclass(frozen=True, slots=True)
class MissingObject:
    """A position whose object is not there, its key, and the last position known."""

    position: int
    key: str
    known_end: int


@dataclass(frozen=True, slots=True)
class LogLook:
    """What a listing showed. end: the last position of the log that is there without a gap before it, or one before
    its start; newest: position and key of the last one up to there that is more than a fence; missing: the first one
    that is not there, if that was there once; row_bytes: what the rows of those
    take as they are stored, at least"""

    end: int
    newest: tuple[int, str] | None
    missing: MissingObject | None
    row_bytes: int = 0


async def look_at_log(store: ObjectStore, state: ManifestState, register: WriterRegister | None) -> LogLook:
    """List the log of ``state``, as far as its end is known by that or by ``register``, both read before.

    Raises `CorruptionError` for names that are no log object's, `UnavailableError`."""
    if register is None:
        return await _look_contiguous(store, state)
    newest: tuple[int, str] | None = None
    row_bytes = 0
    for position, key, size in await _expected(store, state.log_start, register):
        if size is None:
            return LogLook(position - 1, newest, MissingObject(position, key, register.last_written))
        newest = position, key
        row_bytes += _row_bytes(size)
    return LogLook(max(register.last_written, state.log_start - 1), newest, None, row_bytes)


def _row_bytes(size: int) -> int:
    """What the rows of a log object of ``size`` bytes take as they are stored, at least."""
    return max(0, size - BESIDE_ROWS_BYTES)


async def _look_contiguous(store: ObjectStore, state: ManifestState) -> LogLook:
    position, known_end = state.log_start, state.log_last_seen
    seen = row_bytes = 0
    newest: tuple[int, str] | None = None
    async for info in store.list(PREFIX, start_after=contiguous_key(position - 1)):
        seen += 1
        if parse_contiguous(info.key) != position or (seen >= ENOUGH and position > known_end):
            break
        if info.size > HEADER_BYTES:
            newest = position, info.key
            row_bytes += _row_bytes(info.size)
        position += 1
    missing = MissingObject(position, contiguous_key(position), known_end) if position <= known_end else None
    return LogLook(position - 1, newest, missing, row_bytes)


async def _expected(store: ObjectStore, log_start: int, register: WriterRegister) -> list[tuple[int, str, int | None]]:
    """Each committed position from ``log_start`` on, its key, and its size if it is there. Positions that the register
    has forgotten the owner of were compacted."""
    owners = list(_owners(log_start, register))
    sizes: dict[str, int] = {}
    for epoch in dict.fromkeys(epoch for _, epoch in owners):
        first = min(position for position, owner in owners if owner == epoch)
        async for info in store.list(f"{PREFIX}{epoch:018}.", start_after=epoch_key(epoch, first - 1)):
            sizes[info.key] = info.size
    keys = [(position, epoch_key(epoch, position)) for position, epoch in owners]
    return [(position, key, sizes.get(key)) for position, key in keys]


def _owners(log_start: int, register: WriterRegister) -> Iterator[tuple[int, int]]:
    ranges: Sequence[EpochRange] = register.ranges
    for position in range(log_start, register.last_written + 1):
        epoch = owner_of(position, ranges)
        if epoch is not None:
            yield position, epoch


async def judge_missing(
    missing: MissingObject,
    seen: ManifestState,
    load_head: Callable[[], Awaitable[ManifestState | None]],
    check_place: Callable[[ManifestState], Awaitable[object]] | None = None,
) -> ManifestState:
    """The head to look from again, if what was missed need not be there any more. ``seen``: the state that the end was
    known from. ``check_place`` raises if the marker, read now, says that this is another place.

    Raises `CorruptionError` if the object is lost, `ConfigError` for a wrong place, `UnavailableError`."""
    head = await load_head()
    if head is None:
        raise NotFoundError("there is no database any more: its manifest is missing")
    if head.database_id != seen.database_id or head.log_start > missing.position:
        return head
    if check_place is not None:
        await check_place(head)
    raise CorruptionError(
        f"is missing, though the log went on to position {missing.known_end} at least", object_name=missing.key
    )
