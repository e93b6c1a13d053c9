"""How garbage collection of a database starts: the manifest is found and proved to be of this place, then its register.

It claims no role: any number of garbage collectors of a database may run, and none disturbs another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

from metastores.protocol import Register
from slate_async.engine.context import DatabaseContext
from slate_async.engine.gc.sweeper import Limits, Sweeper
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.ownership import check_ownership, proved_head


@dataclass(frozen=True, slots=True)
class OpenedGc:
    """The sweeper of one database, and the clients of its metadata. ``register``: the writer's, if its log has one."""

    sweeper: Sweeper
    driver: ManifestDriver
    register: Register | None

    @classmethod
    def of(cls, context: DatabaseContext, driver: ManifestDriver, register: Register | None) -> Self:
        """Of the database at ``context``, with clients that somebody has opened."""
        settings = context.settings
        limits = Limits(
            settings.gc_min_age_ms,
            settings.gc_clock_skew_ms,
            settings.gc_max_deletes_per_round,
            settings.gc_stalled_compaction_ms,
        )
        check = partial(context.ground.check_again, load_head=driver.load)
        sweeper = Sweeper(context.store, driver, register, context.runtime, limits, check_place=check)
        return cls(sweeper, driver, register)


async def open_gc(context: DatabaseContext, supervisor: Supervisor) -> OpenedGc:
    """See `Environment.open_gc`."""
    driver = context.driver(supervisor)
    try:
        head = await proved_head(context.ground, driver)
        await check_ownership(context.store, head, driver.load)  # by another's manifest all that is here is garbage
        register = context.register(head)
    except BaseException:
        await run_to_completion(driver.close())
        raise
    return OpenedGc.of(context, driver, register)
