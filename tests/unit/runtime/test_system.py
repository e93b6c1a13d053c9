"""`slate_async.runtime.system`: its worker threads."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from slate_async.errors import ClosedError
from slate_async.runtime import system
from slate_async.runtime.protocol import Runtime


async def meet(runtime: Runtime, count: int) -> None:
    """Raises unless so many pieces of one read are decoded at once."""
    barrier = threading.Barrier(count)
    try:
        async with asyncio.timeout(10):
            await asyncio.gather(*(runtime.reading.run(lambda: barrier.wait(5)) for _ in range(count)))
    finally:
        barrier.abort()


async def test_two_pieces_of_a_read_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    runtime = system.system_runtime()
    await meet(runtime, 2)
    with pytest.raises(threading.BrokenBarrierError):
        await meet(runtime, 3)
    await runtime.offload.run(lambda: None)
    system.end_threads(runtime)
    for offload in (runtime.offload, runtime.blocking, runtime.reading):
        with pytest.raises(ClosedError):
            await offload.run(lambda: None)


@pytest.mark.parametrize(("processors", "threads"), [(1, None), (8, 1)])
def test_one_processor_and_a_number_of_threads_are_what_they_are(
    processors: int, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    runtime = system.system_runtime(threads)
    assert runtime.reading is runtime.offload
    system.end_threads(runtime)
