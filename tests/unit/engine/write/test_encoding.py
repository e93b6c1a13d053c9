"""Where rows are encoded, and making an SST of a memtable that is cancelled on the way."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from slate_async.engine.write.encoding import INLINE_BYTES, Encoder
from slate_async.storage.memtable import Memtable
from slate_async.types import PUT
from tests.support.sst_readers import CountingOffload

T = TypeVar("T")


class StuckOffload:
    """Never answers."""

    async def run(self, call: Callable[[], T]) -> T:
        await asyncio.Event().wait()
        return call()


async def test_a_cancelled_flush_leaves_no_generator_to_the_garbage_collector() -> None:
    """The loop would close it in a task of its own, whose failure nobody awaits."""
    table = Memtable()
    table.append_batch([b"k"], [bytes(INLINE_BYTES)], bytes([PUT]), 1, None, 0)
    encoder = Encoder(UUID(int=1), 1, 256, "none", 10, StuckOffload())
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=lambda generator: left.append(generator.__qualname__))
    try:
        task = asyncio.create_task(encoder.sst(table, object_id=bytes(16), manifest_version=1))
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del task
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []


async def test_a_segment_of_many_tiny_rows_is_not_encoded_on_the_loop() -> None:
    offload = CountingOffload()
    encoder = Encoder(UUID(int=1), 1, 256, "none", 10, offload)
    for rows, calls in ((1000, 0), (20_000, 1)):
        table = Memtable()
        table.append_batch([b"k"] * rows, [b""] * rows, bytes(rows), 1, None, 0)
        assert await encoder.segment(table, 0, rows, nbytes=rows, log_id=1, manifest_version=1)
        assert offload.calls == calls
