"""Checkpoints that live for as long as tasks read them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import slate_async as slate
from slate_async.spark.renewing import renewed
from slate_async.spark.worker import this_worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """A checkpoint that readers lengthen to ``lifetime_s`` from then on, whenever a quarter of it has passed.

    made_ms: wall clock: when it had its whole life before it"""

    path: str
    metastore: str | None
    checkpoint: UUID
    lifetime_s: float
    made_ms: int


async def make_checkpoint(path: str, metastore: str | None, lifetime_s: float, environment: slate.Environment) -> Lease:
    """A checkpoint of now. Raises what `Admin.checkpoints.create` raises."""
    made_ms = environment.runtime.clock.now_ms()
    async with environment.open_admin(path, metastore=metastore) as admin:
        made = await admin.checkpoints.create(lifetime=lifetime_s, name="spark read")
    return Lease(path, metastore, made.id, lifetime_s, made_ms)


async def drop_checkpoint(environment: slate.Environment, lease: Lease) -> None:
    """Delete a checkpoint that no task reads any more. If that fails, it stays until it expires."""
    try:
        async with environment.open_admin(lease.path, metastore=lease.metastore) as admin:
            await admin.checkpoints.delete(lease.checkpoint)
    except slate.SlateError as error:
        logger.warning("checkpoint %s stays until it expires: %s", lease.checkpoint, error)


@asynccontextmanager
async def keep_checkpoint(environment: slate.Environment, lease: Lease) -> AsyncGenerator[None, None]:
    """Lengthen the checkpoint inside the block, when it is time and no other task did.

    A task that cannot renew logs a warning and tries again; if the checkpoint was deleted, the read itself fails. See
    `renewed`."""
    clock, quarter_s = environment.runtime.clock, lease.lifetime_s / 4

    async def lengthen() -> None:
        try:
            await _lengthen(environment, lease, clock.now_ms() / 1000 + 3 * quarter_s)
        except slate.SlateError as error:
            logger.warning("checkpoint %s was not lengthened: %s", lease.checkpoint, error)

    async with renewed(clock, lease.lifetime_s, lease.made_ms, lengthen):
        yield


async def _lengthen(environment: slate.Environment, lease: Lease, until_s: float) -> None:
    """If the checkpoint would go before ``until_s``, seconds since the epoch."""
    async with environment.open_admin(lease.path, metastore=lease.metastore) as admin:
        found = [held for held in await admin.checkpoints.list() if held.id == lease.checkpoint]
        if not found or (found[0].expire_time is not None and found[0].expire_time <= until_s):
            await admin.checkpoints.refresh(lease.checkpoint, lease.lifetime_s)


@contextmanager
def held_checkpoint(path: str, metastore: str | None, lifetime_s: float) -> Iterator[str]:
    """The id of a checkpoint of now, which this process lengthens inside the block and deletes after it. If the process
    dies, it expires ``lifetime_s`` later at most. Raises what `Admin.checkpoints.create` raises."""

    async def keep(environment: slate.Environment) -> None:
        async with keep_checkpoint(environment, lease):
            await asyncio.Event().wait()

    worker = this_worker()
    lease = worker.run(partial(make_checkpoint, path, metastore, lifetime_s))
    keeper = worker.start(keep)
    try:
        yield str(lease.checkpoint)
    finally:
        keeper.cancel()
        worker.run(partial(drop_checkpoint, lease=lease))
