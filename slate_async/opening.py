"""Opening a database as its writer: find or create the manifest, claim the epoch, take the log over, replay.

Ordering rule (rule 9, rule 16): claim -> fence -> replay -> read the head again. Nothing is served before that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from metastores.protocol import Register
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.format.compression import Compression
from slate_async.log.choose import log_of
from slate_async.log.protocol import Inherited, Log, LogObject
from slate_async.manifest.belonging import check_belonging
from slate_async.manifest.creation import create_first
from slate_async.manifest.driver import ManifestDriver
from slate_async.manifest.edits import ClaimWriter, WriterPin, check_usable
from slate_async.manifest.lifecycle import MakeAgain
from slate_async.manifest.state import ManifestState
from slate_async.place import Place, close_metadata
from slate_async.runtime.concurrent import to_the_end
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.turns import FairTurns
from slate_async.settings import Settings
from slate_async.sst.reader import SstReader
from slate_async.write.encoding import Encoder
from slate_async.write.pins import WriterPins
from slate_async.write.replay import Replayed, replay
from slate_async.write.writer import Writer

logger = logging.getLogger(__name__)
TAKEOVERS = 8
"""How often a log whose start moves during its replay is taken over anew."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A claimed, replayed database, its tasks not yet started."""

    writer: Writer
    driver: ManifestDriver
    settings: Settings
    register: Register | None


async def open_writer(
    place: Place,
    supervisor: Supervisor,
    *,
    create: bool,
    properties: Mapping[str, str] | None = None,
    if_free: bool = False,
) -> Opened:
    """Claim and recover the database at ``place``, creating it if it is missing and ``create``.

    if_free: only if no writer has it open; else `FencedError`

    Raises `InvalidError` (missing, foreign, contradictory settings, unfit store), `FencedError` (another writer
    claimed meanwhile), `CorruptionError`, `UnavailableError`."""
    Compression.of(place.settings.compression)  # an extra that is missing is told now, not at the first flush
    driver = place.driver(supervisor, deadline_ms=place.settings.takeover_deadline_ms)
    register: Register | None = None
    try:
        state = await find_or_create(place, driver, create=create, properties=properties)
        settings = follow_database(place.settings, state)
        check_usable(state)
        pin = WriterPin(place.runtime.ids.uuid(), place.runtime.clock.now_ms())
        claim = ClaimWriter(
            place.runtime.ids.token(),
            settings.flush_parallelism,
            pin,
            settings.retention_ms,
            settings.compaction,
            if_free,
        )
        looking = supervisor.spawn("look at an SST", check_belonging(place.store, state, driver.load), critical=False)
        claimed = await driver.commit(claim)
        await looking  # before the log is touched
        register = place.register(state)
        log = log_of(claimed, place.store, register, driver.load, place.runtime, settings, whole=claimed.wal_enabled)
        inherited, replayed = await _take_over(place, settings, claimed, log, driver)
        pins = WriterPins(claimed, pin.id, driver, place.runtime)
        writer = _writer(place, settings, inherited, replayed, pins, log, driver, supervisor)
        await writer.settle()
    except BaseException:
        await to_the_end(close_metadata(driver, register))
        raise
    logger.info(
        "%s: writer epoch %d, log position %d, %d log objects replayed",
        place.name,
        claimed.writer_epoch,
        inherited.next_id,
        len(inherited.objects),
    )
    driver.deadline_ms = settings.retry_deadline_ms
    return Opened(writer, driver, settings, register)


async def find_or_create(
    place: Place, driver: ManifestDriver, *, create: bool, properties: Mapping[str, str] | None = None
) -> ManifestState:
    """The head of the database at ``place``, which is made if it is missing and ``create``. Claims nothing.

    Raises `InvalidError` (missing, foreign, contradictory settings, unfit store), `UnavailableError`."""
    state = await driver.load()
    if state is None and not create:
        raise InvalidError(f"there is no database at {place.name}; open it with create=True to make one")
    if state is None or (state.removed and create):
        return await _create(place, driver, state, properties)
    return state


async def _create(
    place: Place, driver: ManifestDriver, removed: ManifestState | None, properties: Mapping[str, str] | None
) -> ManifestState:
    """A database where there is none, or only ``removed``, what is left of a destroyed one."""
    settings = place.settings
    if removed is not None:
        settings = settings.replace(log_protocol=settings.log_protocol or removed.log_protocol)
    first = ManifestState(
        database_id=place.runtime.ids.uuid(),
        log_protocol=settings.log_protocol or "contiguous",
        wal_enabled=settings.wal_enabled is not False,
        created_ms=place.runtime.clock.now_ms(),
        properties=MappingProxyType(dict(properties or {})),
    )
    if settings.ack == "flushed" and first.log_protocol == "contiguous":
        raise InvalidError("ack 'flushed' exists only with log_protocol 'epoch_prefixed'")
    if removed is not None:
        return await driver.commit(MakeAgain(first))
    return await create_first(first, driver, place.store, place.metadata, place.name, place.runtime.ids)


def follow_database(settings: Settings, state: ManifestState) -> Settings:
    """``settings`` with what was fixed at creation filled in. Raises `InvalidError` on a contradiction."""
    for name in ("log_protocol", "wal_enabled"):
        wanted, fixed = getattr(settings, name), getattr(state, name)
        if wanted is not None and wanted != fixed:
            raise InvalidError(f"{name} is fixed when a database is created: this one has {fixed!r}, not {wanted!r}")
    if settings.log_protocol is not None and settings.wal_enabled is not None:
        return settings
    return settings.replace(log_protocol=state.log_protocol, wal_enabled=state.wal_enabled)


async def _take_over(
    place: Place, settings: Settings, claimed: ManifestState, log: Log, driver: ManifestDriver
) -> tuple[Inherited, Replayed]:
    """Take the log over and replay it; again if what was to be replayed went meanwhile (rule 21: without a WAL a
    compactor moves the log's start while a writer opens)."""
    for _ in range(TAKEOVERS):
        inherited = await log.take_over(claimed)
        try:
            return inherited, await _replay(place, settings, inherited, claimed.writer_epoch)
        except CorruptionError:
            head = await driver.load()
            if head is None or head.log_start == inherited.state.log_start:
                raise
            logger.info("%s: the log's start moved to %d during its replay", place.name, head.log_start)
    raise UnavailableError(f"{place.name}: the log's start moved during each of {TAKEOVERS} replays; open again")


async def _replay(place: Place, settings: Settings, inherited: Inherited, epoch: int) -> Replayed:
    ssts = place.ssts(inherited.state.database_id)

    def open_sst(one: LogObject) -> SstReader:
        return ssts.open_log(one.key, one.size, one.header.object_id)

    return await replay(
        inherited,
        epoch=epoch,
        table_bytes=settings.l0_sst_bytes,
        segment_bytes=settings.flush_bytes,
        offload=place.runtime.offload,
        open_sst=open_sst,
    )


def _writer(
    place: Place,
    settings: Settings,
    inherited: Inherited,
    replayed: Replayed,
    pins: WriterPins,
    log: Log,
    driver: ManifestDriver,
    supervisor: Supervisor,
) -> Writer:
    encoder = Encoder(
        inherited.state.database_id,
        pins.epoch,
        settings.block_bytes,
        settings.compression,
        settings.filter_bits_per_key,
        place.runtime.offload,
    )
    return Writer(
        inherited=inherited,
        replayed=replayed,
        log=log,
        driver=driver,
        pins=pins,
        store=place.store,
        ssts=place.ssts(inherited.state.database_id),
        encoder=encoder,
        runtime=place.runtime,
        settings=settings,
        supervisor=supervisor,
        turns=FairTurns(place.runtime.clock),
    )
