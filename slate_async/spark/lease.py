"""Keeping a checkpoint alive while tasks read it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import slate_async as slate

logger = logging.getLogger(__name__)


@asynccontextmanager
async def keep_checkpoint(
    environment: slate.Environment, path: str, metastore: str | None, checkpoint: UUID, lifetime_s: float
) -> AsyncGenerator[None, None]:
    """Lengthen the checkpoint to ``lifetime_s`` from then on whenever a quarter of it has passed inside the block.

    A task that is shorter than that commits nothing. One that cannot lengthen it says so in the log and tries again;
    if the checkpoint is gone, the read itself fails."""

    async def lengthen() -> None:
        while True:
            await asyncio.sleep(lifetime_s / 4)
            try:
                async with environment.open_admin(path, metastore=metastore) as admin:
                    await admin.refresh_checkpoint(checkpoint, lifetime_s)
            except slate.SlateError as error:
                logger.warning("checkpoint %s was not lengthened: %s", checkpoint, error)

    keeper = asyncio.create_task(lengthen(), name=f"keep checkpoint {checkpoint}")
    try:
        yield
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
