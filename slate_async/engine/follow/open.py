"""Opening a database to read it: a follower of its head, or a checkpoint as it was.

Ordering rule (rules 13, 20, 22): manifest -> checkpoint of one's own -> log -> head again. Nothing is served before.

Rules 13, 20 and 22: docs/design/protocol-rules.md
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import Register
from slate_async.engine.checkpoint.load import load_checkpoint
from slate_async.engine.context import DatabaseContext, close_metadata
from slate_async.engine.create import follow_database
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.pins import ReaderPins
from slate_async.engine.follow.reader_state import ReaderState
from slate_async.engine.follow.source import CheckpointSource
from slate_async.engine.follow.tail import ContiguousTail, EpochPrefixedTail, Position, Tail
from slate_async.engine.read.read_point import ReadPoint
from slate_async.errors import InvalidError, UnavailableError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.settings import Settings
from slate_async.storage.log.extent import read_register
from slate_async.storage.log.reader import LogReader
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import find_checkpoint
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.ownership import check_ownership, proved_head
from slate_async.storage.manifest.state import Checkpoint, ManifestState

WITHOUT_PIN = "to read where nothing may be written, open it with pin=False"


@dataclass(frozen=True, slots=True)
class OpenedReader:
    """A database that is read, its tasks not yet started."""

    source: Follower | CheckpointSource
    driver: ManifestDriver
    settings: Settings
    register: Register | None
    yield_budget: YieldBudget


async def open_reading(
    context: DatabaseContext, supervisor: Supervisor, *, checkpoint: str | UUID | None, pin: bool
) -> OpenedReader:
    """See `Environment.open_reader`."""
    driver = context.driver(supervisor)
    register: Register | None = None
    try:
        head = await proved_head(context.ground, driver)
        settings = follow_database(context.settings, head)
        yield_budget = YieldBudget(context.runtime.clock)
        await check_ownership(context.store, head, driver.load)
        source: Follower | CheckpointSource
        if checkpoint is not None:
            found = find_checkpoint(head, checkpoint, context.runtime.clock.now_ms())
            source = await _checkpoint_source(context, settings, driver, found, yield_budget)
        else:
            check_usable(head)
            register = context.register(head)
            source = await _follower(context, settings, driver, register, head, yield_budget, pin=pin)
    except BaseException:
        await run_to_completion(close_metadata(driver, register))
        raise
    return OpenedReader(source, driver, settings, register, yield_budget)


@asynccontextmanager
async def read_now(context: DatabaseContext, supervisor: Supervisor) -> AsyncIterator[tuple[ReadPoint, ReaderState]]:
    """The database as a reader that pins nothing sees it now."""
    opened = await open_reading(context, supervisor, checkpoint=None, pin=False)
    try:
        reader_state = opened.source.reader_state
        yield ReadPoint(reader_state.view, reader_state.last_seq, context.runtime.clock.now_ms()), reader_state
    finally:
        await run_to_completion(close_metadata(opened.driver, opened.register))


async def _checkpoint_source(
    context: DatabaseContext,
    settings: Settings,
    driver: ManifestDriver,
    checkpoint: Checkpoint,
    yield_budget: YieldBudget,
) -> CheckpointSource:
    kept = await load_checkpoint(context.store, driver, checkpoint)
    reader_state = _reader_state(context, settings, kept.state, yield_budget)
    await reader_state.replay(kept.objects, Position(kept.next_id, reader_state.position.floor))
    return CheckpointSource(reader_state, driver, checkpoint)


async def _follower(
    context: DatabaseContext,
    settings: Settings,
    driver: ManifestDriver,
    register: Register | None,
    head: ManifestState,
    yield_budget: YieldBudget,
    *,
    pin: bool,
) -> Follower:
    pins: ReaderPins | None = None
    if pin:
        lifetime = settings.checkpoint_lifetime_ms
        pins = ReaderPins(driver, context.runtime, lifetime_ms=lifetime, name=context.name)
    try:
        state = head if pins is None else await _pinned(pins, head)
        reader_state = _reader_state(context, settings, state, yield_budget, pins)
        tail = tail_of(context, state, register)
        check_place = partial(context.ground.check_again, load_head=driver.load)
        follower = Follower(reader_state, tail, driver, pins, context.runtime.clock, check_place)
        await follower.catch_up()
    except BaseException:
        if pins is not None:
            await run_to_completion(_release(pins))
        raise
    return follower


async def _pinned(pins: ReaderPins, head: ManifestState) -> ManifestState:
    """See `ReaderPins.pin`; the error for a store that may only be read names the way out."""
    try:
        return await pins.pin(head)
    except InvalidError as error:
        if not isinstance(error.__cause__, MetaStoreInvalidError):
            raise
        raise InvalidError(
            "a reader makes a checkpoint, so that nothing it reads is deleted, and the store does not take it;"
            f" {WITHOUT_PIN}: {error}"
        ) from error


async def _release(pins: ReaderPins) -> None:
    with contextlib.suppress(UnavailableError):  # what stays expires
        await pins.close()


def _reader_state(
    context: DatabaseContext,
    settings: Settings,
    state: ManifestState,
    yield_budget: YieldBudget,
    pins: ReaderPins | None = None,
) -> ReaderState:
    return ReaderState(
        state,
        table_bytes=settings.reader_memtable_bytes,
        most_bytes=settings.replay_memory_bytes,
        offload=context.runtime.offload,
        ssts=context.ssts(state.database_id),
        yield_budget=yield_budget,
        on_view=None if pins is None else pins.watch,
    )


def tail_of(context: DatabaseContext, state: ManifestState, register: Register | None) -> Tail:
    """The log of the database, as others than its writer read it."""
    reader = LogReader(context.store, state.database_id, whole=state.wal_enabled)
    if register is None:
        return ContiguousTail(context.store, reader)

    async def committed() -> tuple[Sequence[EpochRange], int]:
        held = await read_register(context.store, register, state.log_start)
        return held.ranges, held.last_written

    return EpochPrefixedTail(reader, committed)
