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
from slate_async.errors import ConflictError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.marking import settle_place
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """A job as it is asked for; see `Environment.open_ingest`."""

    job_id: str
    lifetime_ms: int
    create: bool
    replace: bool

    @classmethod
    def of(cls, job_id: str, lifetime: Duration, create: bool, replace: bool) -> Self:
        """Raises `InvalidError` for what cannot be meant."""
        manage.check_job(job_id)
        return cls(job_id, max(1, round(seconds(lifetime, "lifetime") * 1000)), create, replace)


async def register_job(
    context: DatabaseContext, supervisor: Supervisor, options: IngestOptions
) -> tuple[ManifestDriver, IngestSpec | None]:
    """Register the job; what it commits with, and what its tasks must know, as `manage.register` gives it."""
    driver = context.driver(supervisor)
    try:
        state, found = await find_or_create(context, driver, create=options.create)
        check_usable(state)
        state = await settle_place(context.ground, driver, state, found, context.runtime.ids.uuid)
        return driver, await _registered(context, driver, state, options)
    except BaseException:
        await run_to_completion(driver.close())
        raise


async def _registered(
    context: DatabaseContext, driver: ManifestDriver, state: ManifestState, options: IngestOptions
) -> IngestSpec | None:
    """What waits to be applied when a job that replaces begins is waited for: it is to be replaced, too. Raises
    `IngestPendingError` if no writer applies it."""
    clock, settings = context.runtime.clock, context.settings
    deadline = clock.monotonic() + WAIT_S
    while True:
        replaced = await _log_extent(context, driver, state) if options.replace else None
        try:
            return await manage.register(
                driver, context.runtime, settings, options.job_id, options.lifetime_ms, replaced
            )
        except ConflictError as conflict:
            if clock.monotonic() >= deadline:
                raise
            logger.info("%s: ingest %s does not begin yet: %s", context.name, options.job_id, conflict)
        left_s = max(0.0, deadline - clock.monotonic())
        await manage.until_none_waits(driver, clock, timeout_s=left_s, poll_s=poll_s(settings))


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
