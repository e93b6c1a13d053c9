"""`IngestJob` and `IngestTask`: a bulk ingest. Batches are taken in the caller's thread, one ahead of the upload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeAlias

import pyarrow as pa

from slate_async.arguments import Duration
from slate_async.database import ingest as asynchronous
from slate_async.engine.ingest.manage import IngestInfo, StreamBatch
from slate_async.engine.ingest.open import WAIT_S
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.watch import IngestMode
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.handle import Handle

Batches: TypeAlias = pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch | pa.Table]
Upload: TypeAlias = Callable[[AsyncIterator[object]], Awaitable[list[IngestedSst]]]


class _Handover(AsyncIterator[object]):
    """Gives the batches of a caller's thread to an upload in the loop. In the loop: made, given, ended."""

    def __init__(self, upload: Upload) -> None:
        self._queue: asyncio.Queue[object] = asyncio.Queue(1)
        self._task = asyncio.ensure_future(upload(self))

    async def __anext__(self) -> object:
        batch = await self._queue.get()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def give(self, batch: object) -> bool:
        """Wait until there is room for ``batch``. ``False`` if the upload has ended without it."""
        giving = asyncio.ensure_future(self._queue.put(batch))
        try:
            await asyncio.wait([giving, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving.cancel()
        return not self._task.done()

    async def result(self) -> list[IngestedSst]:
        """What the upload gives; no batch follows."""
        await self.give(None)
        return await self._task

    async def drop(self) -> None:
        """No result is wanted."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _upload(loop: LoopThread, upload: Upload, batches: Batches) -> list[IngestedSst]:
    handover = loop.call(_Handover, upload)
    try:
        for batch in [batches] if isinstance(batches, pa.RecordBatch | pa.Table) else batches:
            if not loop.run(handover.give, batch):
                break
        return loop.run(handover.result)
    except BaseException:
        loop.run(handover.drop)
        raise


class IngestTask(Handle[asynchronous.IngestTask]):
    """Made by `slate_async.sync.open_ingest_task`, never directly. As `slate_async.IngestTask`."""

    @property
    def spec(self) -> IngestSpec:
        """The job's."""
        return self._handle.spec

    def write(self, batches: Batches, *, duplicates: Duplicates = "error", digest: bool = False) -> list[IngestedSst]:
        """Upload ``batches`` as SSTs; what to tell the job's `IngestJob.commit`."""
        return _upload(
            self._loop, lambda given: self._handle.write(given, duplicates=duplicates, digest=digest), batches
        )


class IngestJob(Handle[asynchronous.IngestJob]):
    """Made by `slate_async.sync.open_ingest`, never directly. Methods and errors are those of
    `slate_async.IngestJob`."""

    @property
    def job_id(self) -> str:
        """Its name."""
        return self._handle.job_id

    @property
    def spec(self) -> IngestSpec:
        """What tasks must know. Raises `InvalidError` if the job has ended already."""
        return self._handle.spec

    def write(self, batches: Batches, *, duplicates: Duplicates = "error", digest: bool = False) -> list[IngestedSst]:
        """Upload ``batches`` here; `commit` takes them along."""
        return _upload(
            self._loop, lambda given: self._handle.write(given, duplicates=duplicates, digest=digest), batches
        )

    def commit(
        self,
        ssts: Iterable[IngestedSst] = (),
        *,
        batch: StreamBatch | None = None,
        wait: bool = True,
        timeout: Duration = WAIT_S,
        mode: IngestMode | None = None,
    ) -> IngestInfo:
        """Let everything that tasks have written into the database, as one step for every reader."""
        written = list(ssts)
        return self._loop.run(self._handle.commit, written, batch=batch, wait=wait, timeout=timeout, mode=mode)

    def wait(self, timeout: Duration = WAIT_S) -> IngestInfo:
        """Wait until what was committed is in the database."""
        return self._loop.run(self._handle.wait, timeout)

    def abort(self, *, unless_committed: bool = False) -> IngestInfo:
        """End the job; what became of it."""
        return self._loop.run(self._handle.abort, unless_committed=unless_committed)

    def info(self) -> IngestInfo:
        """The job as it is now."""
        return self._loop.run(self._handle.info)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
