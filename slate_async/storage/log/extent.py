"""Where the log ends, found without being its writer: everything acknowledged before the look lies up to there.

Rule 13: what was concluded from names holds iff a head read afterwards still has ``log_start`` at or below the lowest
of them; else the look is dropped and starts anew from that head.

Rules 13, 22 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from metastores.protocol import Register
from slate_async.errors import CorruptionError, NotFoundError, UnavailableError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.storage.log import register as codec
from slate_async.storage.log.listing import LogMovedError, contiguous_run, has_log
from slate_async.storage.log.missing import MissingObject, judge_missing
from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.protocol import CheckPlace, nothing_to_prove
from slate_async.storage.log.recovery import EpochRange, owner_of
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.manifest.state import LogProtocol, ManifestState

LOOKS = 16
"""How often a log that is compacted while it is looked at is looked at anew."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """end: last position of the log; one less than the first when it is empty
    ranges: for the epoch-prefixed log, ``(epoch, first position)`` of the epochs that own its positions, ascending
    of: the database, and the store id of its place, whose log it is; ``None``: of no log that was looked at
    """

    end: int
    ranges: tuple[tuple[int, int], ...] = ()
    of: tuple[UUID, UUID | None] | None = field(default=None, compare=False)


def log_keys(
    log_protocol: LogProtocol, ranges: Sequence[tuple[int, int]], first: int, last: int
) -> list[tuple[int, str]]:
    """``(position, key)`` of the log objects from ``first`` to ``last``, both inclusive; ``ranges`` as in `LogExtent`.

    Raises `CorruptionError` for a position that no epoch owns."""
    if log_protocol == "contiguous":
        return [(log_id, contiguous_key(log_id)) for log_id in range(first, last + 1)]
    owners = [EpochRange(epoch, start) for epoch, start in ranges]
    keys: list[tuple[int, str]] = []
    for log_id in range(first, last + 1):
        epoch = owner_of(log_id, owners)
        if epoch is None:
            raise CorruptionError(f"no epoch owns position {log_id}", object_name="epoch ranges of the log")
        keys.append((log_id, epoch_key(epoch, log_id)))
    return keys


async def find_extent(
    store: ObjectStore,
    load_head: Callable[[], Awaitable[ManifestState | None]],
    register: Register | None,
    check_place: CheckPlace = nothing_to_prove,
) -> LogExtent:
    """The log's extent now. ``register``: the writer's, for an epoch-prefixed log; ``check_place``: see `CheckPlace`.

    Raises `InvalidError` (no database, another place), `CorruptionError` (an object is missing), `UnavailableError`."""
    state = await _existing(load_head)
    for _ in range(LOOKS):
        if register is not None:
            held = await read_register(store, register, state.log_start)
            return LogExtent(held.last_written, held.owners, (state.database_id, state.store_id))
        try:
            run = await contiguous_run(store, state.log_start, state.fence_width)
        except LogMovedError as moved:
            state = await _after_gap(store, load_head, state, moved, check_place)
            continue
        end = state.log_start + len(run) - 1
        if end < state.log_last_seen:
            missing = MissingObject(end + 1, contiguous_key(end + 1), state.log_last_seen)
            state = await judge_missing(missing, state, load_head, check_place)
            continue
        head = await _existing(load_head)
        if head.log_start == state.log_start:
            await check_place(head)  # that nothing more is there counts only if this is the place (R10)
            return LogExtent(end, of=(head.database_id, head.store_id))
        state = head
    raise UnavailableError(f"the log's start moved during each of {LOOKS} looks at it; try again")


async def _existing(load_head: Callable[[], Awaitable[ManifestState | None]]) -> ManifestState:
    head = await load_head()
    if head is None:
        raise NotFoundError("there is no database any more: its manifest is missing")
    return head


async def _after_gap(
    store: ObjectStore,
    load_head: Callable[[], Awaitable[ManifestState | None]],
    state: ManifestState,
    moved: LogMovedError,
    check_place: CheckPlace,
) -> ManifestState:
    """The head to look from. A listing that overtook its put only made the object look missing, and so does a newer
    writer with a wider window. Otherwise raises as `judge_missing`."""
    missing = MissingObject(moved.missing, contiguous_key(moved.missing), moved.known_end)
    try:
        await store.head(missing.key)
        there = True
    except ObjectNotFoundError:
        there = False
    head = await _existing(load_head)
    if there or head.fence_width != state.fence_width:
        return head

    async def read_after_it() -> ManifestState:
        return head

    return await judge_missing(missing, state, read_after_it, check_place)


async def read_register(store: ObjectStore, register: Register, log_start: int) -> WriterRegister:
    """What the writer's register holds. It is there whenever a log is: read again if it was made between the two looks.

    Raises `CorruptionError` if it was lost, `UnavailableError`."""
    for _ in range(2):
        cell = await translated(register.read())
        if cell is not None:
            return codec.decode(cell.value)
        if not await has_log(store, log_start):
            return EMPTY
    raise CorruptionError("is missing, though there is a log", object_name="writer register")
