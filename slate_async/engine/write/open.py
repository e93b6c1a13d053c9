"""Opening a database as its writer: find or create the manifest, claim the epoch, take the log over, replay.

Ordering rule (rules 9, 16, R21): head and marker -> settings -> the place, an SST, the log's end, the register -> claim
-> replay and fence -> read the head again. The log orders replay and fence: a contiguous one is fenced where its replay
ends, an epoch-prefixed one is replayed after its register was taken. A writer that cannot serve claims nothing, so an
opening that fails fenced no writer, unless it is its replay that fails: rows that take more than
``replay_memory_bytes`` though their log objects do not. Nothing is served before the end.

Rules 9, 16, 21 and R21: docs/design/protocol-rules.md
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import anyio

from metastores.protocol import Register
from slate_async.codec.compression import Compression
from slate_async.engine.context import DatabaseContext, close_metadata
from slate_async.engine.create import find_or_create, follow_database
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.ingest_applier import log_references
from slate_async.engine.write.l0_flusher import LONG_LOG
from slate_async.engine.write.pins import WriterPins
from slate_async.engine.write.replay import Replayed, Replayer
from slate_async.engine.write.writer import Writer
from slate_async.errors import (
    ConfigError,
    ConflictError,
    CorruptionError,
    SlateError,
    UnavailableError,
)
from slate_async.objectstore.probe import PROBE_FOLDER
from slate_async.objectstore.watched import WatchedStore
from slate_async.runtime.concurrent import gather_pair, run_to_completion
from slate_async.runtime.contact import Contact
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.settings import Settings
from slate_async.storage.liveness.heartbeat import Heartbeat
from slate_async.storage.log.choose import log_of
from slate_async.storage.log.extent import read_register
from slate_async.storage.log.missing import LogLook, judge_missing, look_at_log
from slate_async.storage.log.protocol import Inherited, Log, LogObject
from slate_async.storage.log.reader import LogReader
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.logged import LogIntoL0, TakeLogIntoL0
from slate_async.storage.manifest.edits.protocol import check_looked_at, check_usable
from slate_async.storage.manifest.edits.writer import ClaimWriter, PassFences, UnpinWriter, WriterPin
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.ownership import check_ownership
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.reader import SstReader

logger = logging.getLogger(__name__)
GIVE_BACK_LIMIT_S = 3.0
"""An opening that failed takes no longer to give back what its claim pinned."""
TAKEOVERS = 8
"""How often a log whose start moves during its replay is taken over anew."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A claimed, replayed database, its tasks not yet started."""

    writer: Writer
    driver: ManifestDriver
    settings: Settings
    register: Register | None
    heartbeat: Heartbeat | None = None


async def open_writer(
    context: DatabaseContext,
    supervisor: Supervisor,
    *,
    create: bool,
    properties: Mapping[str, str] | None = None,
    if_free: bool = False,
    instead_of: str | None = None,
    token: str | None = None,
) -> Opened:
    """Claim and recover the database of ``context``, creating it if it is missing and ``create``.

    if_free: only if no writer has it open; else `FencedError`
    instead_of: only if the newest writer is the one of this token (the empty one: none); else `FencedError`
    token: of the claim; by default a new one

    Raises `InvalidError` (missing, foreign, another's place, contradictory settings, unfit store), `FencedError`
    (another writer claimed meanwhile), `CorruptionError`, `UnavailableError` (also when all of it takes longer than the
    setting ``takeover_deadline_ms``)."""
    deadline_ms = context.settings.takeover_deadline_ms
    with anyio.move_on_after(deadline_ms / 1000):
        return await _open(
            context,
            supervisor,
            create=create,
            properties=properties,
            if_free=if_free,
            instead_of=instead_of,
            token=context.runtime.ids.token() if token is None else token,
        )
    raise UnavailableError(
        f"{context.name} was not open within {deadline_ms} ms; open it again, with a larger takeover_deadline_ms if its"
        " log is long",
        outcome="unknown",
    )


async def _open(
    context: DatabaseContext,
    supervisor: Supervisor,
    *,
    create: bool,
    properties: Mapping[str, str] | None,
    if_free: bool,
    instead_of: str | None,
    token: str,
) -> Opened:
    Compression.of(context.settings.compression)  # an extra that is missing fails now, not at the first flush
    _check_replayable(context.settings)
    driver = context.driver(supervisor, deadline_ms=context.settings.takeover_deadline_ms)
    register: Register | None = None
    heartbeat: Heartbeat | None = None
    pin: WriterPin | None = None
    try:
        checked = await _checked(context, driver, create=create, properties=properties)
        register, settings = checked.register, checked.settings
        pin = WriterPin(context.runtime.ids.uuid(), context.runtime.clock.now_ms())
        claimed = await driver.commit(_claim(checked, pin, token, if_free=if_free, instead_of=instead_of))
        heartbeat = _start_heartbeat(
            context, supervisor, claimed, driver.contact
        )  # before a replay, which may take long
        pins = WriterPins(claimed, pin.id, driver, context.runtime)
        yield_budget = YieldBudget(context.runtime.clock)
        try:
            opened = await take_over(context, settings, claimed, pins, driver, register, supervisor, yield_budget)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; the writer before this opening is fenced by now, so open it again with that mended",
                outcome=error.outcome,
            ) from error
    except BaseException:
        if heartbeat is not None:
            heartbeat.stop()
        await run_to_completion(_give_up(context, driver, register, pin, token))
        raise
    driver.commits.deadline_ms = settings.retry_deadline_ms
    return replace(opened, heartbeat=heartbeat)


async def _give_up(
    context: DatabaseContext, driver: ManifestDriver, register: Register | None, pin: WriterPin | None, token: str
) -> None:
    """End an opening of which no writer comes. ``pin`` is given back if there was a claim, in by now or not: one that
    stays looks like a writer's that died, and standbys wait for its beats. Not worth a failure, nor a long wait."""
    try:
        if pin is not None:
            with anyio.move_on_after(GIVE_BACK_LIMIT_S):
                await driver.commit(UnpinWriter(0, _pins_of(driver.head, pin.id, token), 0))
    except SlateError as error:
        logger.info("%s: the pin of an opening that failed stays until the next one: %s", context.name, error)
    finally:
        await close_metadata(driver, register)


def _pins_of(head: ManifestState | None, pin: UUID, token: str) -> frozenset[UUID]:
    """The pin of the claim of ``token``, and those that it has besides as far as ``head`` knows."""
    if head is None or head.writer_token != token:
        return frozenset((pin,))
    epoch = head.writer_epoch
    own = (kept.id for kept in head.checkpoints if kept.owner == "writer" and kept.epoch == epoch)
    return frozenset((pin, *own))


# ---- before the claim


def _check_replayable(settings: Settings) -> None:
    """What this writer puts in a log object, the next writer with the same settings can decode."""
    least = max(2 * settings.max_value_bytes, 4 * settings.flush_bytes)
    if settings.decode_memory_bytes < least:
        raise ConfigError(
            f"decode_memory_bytes is {settings.decode_memory_bytes}: a writer needs {least} to replay its own log,"
            " twice max_value_bytes and four times flush_bytes; raise it, or lower those",
            outcome="not_applied",
        )
    least = max(settings.max_unflushed_bytes, settings.decode_memory_bytes)
    if settings.replay_memory_bytes < least:
        raise ConfigError(
            f"replay_memory_bytes is {settings.replay_memory_bytes}: a writer needs {least} to replay its own log, as"
            " much as max_unflushed_bytes and decode_memory_bytes; raise it, or lower those",
            outcome="not_applied",
        )


@dataclass(frozen=True, slots=True)
class _Checked:
    """A database that can be opened here. ``log_end``: the last position that its log was found to have."""

    state: ManifestState
    settings: Settings
    register: Register | None
    log_end: int


def _claim(checked: _Checked, pin: WriterPin, token: str, *, if_free: bool, instead_of: str | None) -> ClaimWriter:
    settings, state = checked.settings, checked.state
    return ClaimWriter(
        token,
        settings.flush_parallelism,
        pin,
        settings.retention_ms,
        settings.compaction_style,
        if_free,
        instead_of=instead_of,
        heartbeat_interval_ms=settings.heartbeat_interval_ms or None,
        of=(state.database_id, state.store_id),
        log_end=checked.log_end,
    )


async def _checked(
    context: DatabaseContext, driver: ManifestDriver, *, create: bool, properties: Mapping[str, str] | None
) -> _Checked:
    """Everything that can be checked without claiming: a writer that could not serve fences no other."""
    state, found = await find_or_create(context, driver, create=create, properties=properties)
    follow_database(context.settings, state)
    check_usable(state)
    state = await settle_place(context.ground, driver, state, found, context.runtime.ids.uuid)
    settings = follow_database(context.settings, state)  # another database may have been made in its place
    looked_at = state.database_id, state.store_id
    await _check_writable(context)
    register = context.register(state)
    try:
        for _ in range(TAKEOVERS):
            check_usable(state)
            held = None if register is None else await read_register(context.store, register, state.log_start)
            look, _ = await gather_pair(
                look_at_log(context.store, state, held), check_ownership(context.store, state, driver.load)
            )
            if look.missing is None:
                _check_room(context, settings, state, look)
                await _check_newest(context, state, look)
                return _Checked(state, settings, register, look.end)
            state = await judge_missing(
                look.missing, state, driver.load, partial(context.ground.check_again, load_head=driver.load)
            )
            check_looked_at(state, looked_at)
        raise UnavailableError(
            f"{context.name}: the log's start moved during each of {TAKEOVERS} looks at it; open again"
        )
    except BaseException:
        if register is not None:
            await run_to_completion(register.close())
        raise


def _check_room(context: DatabaseContext, settings: Settings, state: ManifestState, look: LogLook) -> None:
    """Rows take more memory than their log objects have bytes: what is too much as it is stored is so once replayed.
    What becomes too much only by decompression, the replay finds. Without a WAL nothing is replayed."""
    if state.wal_enabled and look.row_bytes > settings.replay_memory_bytes:
        raise ConfigError(
            f"{context.name}: the log has {look.row_bytes} stored bytes of rows that no SST holds yet, and"
            f" replay_memory_bytes is {settings.replay_memory_bytes}; raise it to the writer's max_unflushed_bytes, or"
            " further. That writer was not fenced",
            outcome="not_applied",
        )


async def _check_newest(context: DatabaseContext, state: ManifestState, look: LogLook) -> None:
    """The newest log object is this database's, and of a format this release knows. It may be compacted by now."""
    if look.newest is not None:
        await LogReader(context.store, state.database_id, whole=False).read(*look.newest)


async def _check_writable(context: DatabaseContext) -> None:
    """Where the claim is not a put into the same store, it does not tell whether anything may be put there."""
    if not context.ground.elsewhere:
        return
    key = f"{PROBE_FOLDER}/{context.runtime.ids.token()}"
    await context.store.put(key, b"")
    with contextlib.suppress(SlateError):  # collectors take what is left
        await context.store.delete([key])


# ---- after it


async def take_over(
    context: DatabaseContext,
    settings: Settings,
    claimed: ManifestState,
    pins: WriterPins,
    driver: ManifestDriver,
    register: Register | None,
    supervisor: Supervisor,
    yield_budget: YieldBudget,
) -> Opened:
    """What follows the claim: take the log over, which replays it, and make the writer, whose tasks are a part of
    ``supervisor``.

    Raises `FencedError`, `CorruptionError`, `ConfigError` if this is its place no more, `UnavailableError`."""
    context = replace(context, store=WatchedStore(context.store, driver.contact))
    log = log_of(
        claimed,
        context.store,
        register,
        driver.load,
        context.runtime,
        settings,
        whole=claimed.wal_enabled,
        check_place=partial(context.ground.check_again, load_head=driver.load),
    )
    inherited, replayed = await _take_over(context, settings, claimed, log, driver)
    inherited, replayed = await _pass_fences(claimed, inherited, replayed, driver)
    tasks = supervisor.part(replayed.memtables.signals.failed)
    writer = _writer(context, settings, inherited, replayed, pins, log, driver, tasks, yield_budget)
    try:
        await writer.pin()
    except BaseException:
        await run_to_completion(tasks.close())
        raise
    logger.info(
        "%s: writer epoch %d, log position %d, %d log objects replayed",
        context.name,
        claimed.writer_epoch,
        inherited.next_id,
        len(inherited.objects),
    )
    return Opened(writer, driver, settings, register)


def _start_heartbeat(
    context: DatabaseContext, supervisor: Supervisor, claimed: ManifestState, contact: Contact
) -> Heartbeat | None:
    if claimed.heartbeat_interval_ms is None:
        return None
    clock, interval_ms = context.runtime.clock, claimed.heartbeat_interval_ms
    store = WatchedStore(context.store, contact)
    heartbeat = Heartbeat(
        context.name, store, clock, claimed.database_id, claimed.writer_epoch, interval_ms, sent=context.sent
    )
    supervisor.spawn("heartbeat", heartbeat.run())
    return heartbeat


async def _take_over(
    context: DatabaseContext, settings: Settings, claimed: ManifestState, log: Log, driver: ManifestDriver
) -> tuple[Inherited, Replayed]:
    """Take the log over and replay it; again if what was to be replayed went meanwhile (rule 21: without a WAL a
    compactor moves the log's start while a writer opens)."""
    replayer = _replayer(context, settings, claimed)
    clock = context.runtime.clock
    for _ in range(TAKEOVERS):
        began = clock.monotonic()
        inherited = await log.take_over(claimed, replayer)
        try:
            return inherited, await replayer.finish(inherited, clock.monotonic() - began)
        except CorruptionError:
            head = await driver.load()
            if head is None or head.log_start == inherited.state.log_start:
                raise
            logger.info("%s: the log's start moved to %d during its replay", context.name, head.log_start)
    raise UnavailableError(f"{context.name}: the log's start moved during each of {TAKEOVERS} replays; open again")


async def _pass_fences(
    claimed: ManifestState, inherited: Inherited, replayed: Replayed, driver: ManifestDriver
) -> tuple[Inherited, Replayed]:
    """After a log without rows in which older writers' fences lie before ours: let it start behind all of them, so that
    no number of openings makes the next one read more. SSTs among many fences move to L0 as they are. With other rows,
    that is done by the flush or compaction that takes them out of the log."""
    state, end, token = inherited.state, inherited.next_id - 1, claimed.writer_token
    fences = end + 1 - state.log_start - len(inherited.objects)
    if not inherited.objects:
        if fences <= state.fence_width:
            return inherited, replayed
        return replace(inherited, state=await driver.commit(PassFences(token, end))), replayed
    if state.wal_enabled or fences < LONG_LOG:
        return inherited, replayed
    refs = tuple(ref for _, ref in await log_references(replayed.log_ssts))
    edit = TakeLogIntoL0(token, LogIntoL0(state.log_start, end, refs), replayed.last_tick_ms)
    try:
        moved = await driver.commit(edit)
    except ConflictError as conflict:  # by a compactor, which takes the fences, too
        logger.info("%s: the log was not taken into L0: %s", driver.name, conflict)
        return inherited, replayed
    return replace(inherited, state=moved), replace(replayed, log_ssts=[])


def _replayer(context: DatabaseContext, settings: Settings, claimed: ManifestState) -> Replayer:
    ssts = context.ssts(claimed.database_id)

    def open_sst(logged: LogObject) -> SstReader:
        return ssts.open_log(logged.key, logged.size, logged.header.object_id)

    return Replayer(
        epoch=claimed.writer_epoch,
        table_bytes=settings.l0_sst_bytes,
        segment_bytes=settings.flush_bytes,
        offload=context.runtime.offload,
        open_sst=open_sst,
        decoding=context.cache.decoding,
        most_bytes=settings.replay_memory_bytes,
    )


def _writer(
    context: DatabaseContext,
    settings: Settings,
    inherited: Inherited,
    replayed: Replayed,
    pins: WriterPins,
    log: Log,
    driver: ManifestDriver,
    supervisor: Supervisor,
    yield_budget: YieldBudget,
) -> Writer:
    encoder = Encoder(
        inherited.state.database_id,
        pins.epoch,
        settings.block_bytes,
        settings.compression,
        settings.filter_bits_per_key,
        context.runtime.offload,
    )
    return Writer(
        inherited=inherited,
        replayed=replayed,
        log=log,
        driver=driver,
        pins=pins,
        store=context.store,
        ssts=context.ssts(inherited.state.database_id),
        encoder=encoder,
        runtime=context.runtime,
        settings=settings,
        supervisor=supervisor,
        yield_budget=yield_budget,
    )
