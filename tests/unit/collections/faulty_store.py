"""A store that loses, refuses and delays puts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from slate_async.errors import UnavailableError
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectExistsError, PutMode
from slate_async.types import Buffer
from tests.engine import StoreInHand


class FaultyStore(StoreInHand):
    """Every request takes some turns of the loop; puts of pending batches are lost, unanswered, or land late."""

    rng: random.Random
    late: set[asyncio.Task[None]]
    faults = True

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        await self._turns(4)
        if not key.startswith(self.watch) or not self.faults:
            return await self.inner.put(key, data, mode=mode, metadata=metadata)
        fault = self.rng.random()
        if fault < 0.1:
            raise UnavailableError("refused", outcome="not_applied")
        if fault < 0.2:
            raise UnavailableError("request lost", outcome="unknown")
        if fault < 0.35:
            task = asyncio.get_running_loop().create_task(self._land(key, data, mode))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
            raise UnavailableError("late", outcome="unknown")
        etag = await self.inner.put(key, data, mode=mode, metadata=metadata)
        await self._turns(4)
        if fault < 0.5:
            raise UnavailableError("answer lost", outcome="unknown")
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        await self._turns(4)
        return await self.inner.get(key, byte_range)

    async def _land(self, key: str, data: Any, mode: PutMode) -> None:
        await self._turns(self.rng.choice((10, 100, 800)))
        with contextlib.suppress(ObjectExistsError):
            await self.inner.put(key, data, mode=mode)

    async def _turns(self, most: int) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)
