"""A bulk ingest begun or resumed: what its driver does first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Self

from slate_async.arguments import Duration, seconds
from slate_async.engine.context import DatabaseContext
from slate_async.engine.create import find_or_create
from slate_async.engine.ingest import manage
from slate_async.engine.ingest.spec import IngestSpec
from slate_async.engine.ingest.takeover import OwnWriter
from slate_async.engine.ingest.watch import IngestMode, OnWait, WriterWatch, check_mode
from slate_async.errors import FencedError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.protocol import Clock
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.ingests import OthersWaitError
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.edits.writer import has_writer
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
WAIT_S = 120.0
"""A writer that died in the meantime is known to have within three of its heartbeats, 90 seconds."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """A job as it is asked for; see `Environment.open_ingest`."""

    job_id: str
    lifetime_ms: int
    create: bool
    replace: bool
    mode: IngestMode
    leased: bool
    on_wait: OnWait

    @classmethod
    def of(
        cls,
        job_id: str,
        lifetime: Duration,
        create: bool,
        replace: bool,
        *,
        mode: IngestMode,
        leased: bool,
        on_wait: OnWait | None,
    ) -> Self:
        """Raises `InvalidError` for what cannot be meant."""
        manage.check_job(job_id)
        lifetime_ms = max(1, round(seconds(lifetime, "lifetime") * 1000))
        return cls(job_id, lifetime_ms, create, replace, check_mode(mode), leased, on_wait or _unheard)


def _unheard(_: str) -> None:
    """The log says it, too."""


async def register_job(
    context: DatabaseContext, supervisor: Supervisor, options: IngestOptions, own: OwnWriter
) -> tuple[ManifestDriver, IngestSpec | None]:
    """Register the job; what it commits with, and what its tasks must know, as `manage.register` gives it. Before that
    it is known, in mode ``"auto"``, whether a writer lives."""
    driver = context.driver(supervisor)
    try:
        state, found = await find_or_create(context, driver, create=options.create)
        check_usable(state)
        state = await settle_place(context.ground, driver, state, found, context.runtime.ids.uuid)
        known = manage.job_info(state, options.job_id)
        if options.mode == "auto" and (known is None or not known.done):
            await _see_to_a_writer(context, driver, options, own)
        return driver, await _registered(context, driver, state, options, own)
    except BaseException:
        await run_to_completion(driver.close())
        raise


async def _see_to_a_writer(
    context: DatabaseContext, driver: ManifestDriver, options: IngestOptions, own: OwnWriter
) -> None:
    """Afterwards a writer lives, or none has the database open: of one that died the role is given back."""
    watch = WriterWatch(context, driver, poll_s(context.settings))
    life = await watch.until_judged(options.on_wait)
    if not life.free or not has_writer(await driver.existing()):
        return  # one that died has left its checkpoint
    logger.info("%s: writer epoch %d has died; its role is given back", context.name, life.epoch)
    try:
        await own.for_as_long_as(_nothing, instead_of=watch.token)
    except FencedError as fenced:
        logger.info("%s: another writer was quicker: %s", context.name, fenced)


async def _nothing(_: object) -> None:
    """To open and to close is all."""


async def _registered(
    context: DatabaseContext, driver: ManifestDriver, state: ManifestState, options: IngestOptions, own: OwnWriter
) -> IngestSpec | None:
    """What waits to be applied when a job that replaces begins is to be replaced, too. A driver that is to be the
    writer applies it itself; another one waits, and raises `IngestPendingError` if no writer does."""
    clock, settings, exclusive = context.runtime.clock, context.settings, options.mode == "exclusive"
    deadline = clock.monotonic() + WAIT_S
    while True:
        replaced = await _log_extent(context, driver, state) if options.replace else None
        try:
            return await manage.register(
                driver,
                context.runtime,
                settings,
                options.job_id,
                options.lifetime_ms,
                replaced,
                leased=options.leased,
            )
        except OthersWaitError as others:
            if clock.monotonic() >= deadline:
                raise
            logger.info("%s: ingest %s does not begin yet: %s", context.name, options.job_id, others)
        left_s = max(0.0, deadline - clock.monotonic())
        none_waits = partial(_until_none_waits, driver, clock, left_s, poll_s(settings))
        if exclusive or (options.mode == "auto" and not has_writer(await driver.existing())):
            try:
                await own.for_as_long_as(none_waits, if_free=not exclusive)
            except FencedError as fenced:
                logger.info("%s: another writer was quicker: %s", context.name, fenced)
        else:
            await none_waits(None)


async def _until_none_waits(
    driver: ManifestDriver, clock: Clock, timeout_s: float, poll_interval_s: float, _: object
) -> None:
    await manage.until_none_waits(driver, clock, timeout_s=timeout_s, poll_s=poll_interval_s)


async def _log_extent(context: DatabaseContext, driver: ManifestDriver, state: ManifestState) -> LogExtent:
    """How far the log goes now."""
    register = context.register(state)
    try:
        check = partial(context.ground.check_again, load_head=driver.load)
        return await find_extent(context.store, driver.load, register, check)
    finally:
        if register is not None:
            await run_to_completion(register.close())


def poll_s(settings: Settings) -> float:
    """So often a driver looks whether what it waits for has come, at most."""
    return min(settings.manifest_poll_interval_ms / 1000, 1.0)
