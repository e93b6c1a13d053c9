"""Appends: a large one beside Arrow's stream and one PUT, single rows and many in flight beside bare PUTs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import count

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from slate_async.collections.codec.life import Appends
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.protocol import CREATE, ObjectStore
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.settings.collections import CollectionSettings
from tests.benchmarks.collections.columns import SCHEMA, TIMES, updates
from tests.benchmarks.collections.lake import Bench, bench
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require, stopwatch
from tests.benchmarks.slow_store import SlowStore

LARGE = "append of 64 MiB"
STREAM = "IPC stream, PUT"
DEFINITE, COMPARE = "append of a row, definite", "append of a row, compare"
FLIGHT = "appends of a row, 256 in flight"
FLIGHT_CPU = "processor time of an append, 256 in flight"
PUT, PUT_AND_HEAD = "PUT", "PUT, head read"
IN_FLIGHT = 256
DELAY_S = 0.05
BEYOND = "beside/"
"""Peers put next to the collection, where no name of its own lies."""


def stream(batch: pa.RecordBatch) -> pa.Buffer:
    """``batch`` as Arrow writes it by itself, compressed."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, SCHEMA.arrow, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(batch)
    return sink.getvalue()


async def large(turn: Turn) -> None:
    """Both to a local folder."""
    batch = updates(np.random.default_rng(turn.number), turn.plan.choose(2_000, 200_000, 1_032_000))
    runtime = system_runtime()
    with folder() as path:
        store = LocalStore(path, runtime)
        async with bench(store) as lake:
            writer = await lake.writer()
            for subject in turn.in_order((OURS, STREAM)):
                with turn.timed(LARGE, subject, batch.nbytes / 2**20, "MiB/s"):
                    if subject == OURS:
                        await writer.append(batch, upper=TIMES)
                    else:
                        await store.put(f"{BEYOND}peer", memoryview(await runtime.offload.run(lambda: stream(batch))))
            async with await (await lake.reader()).snapshot(TIMES - 1) as snapshot:
                found = await snapshot.to_arrow()
            require(sum(found["_diff"].to_pylist()) == sum(batch["_diff"].to_pylist()), OURS, "an append")
        await store.close()
    end_threads(runtime)


async def settled(lake: Bench) -> None:
    """There is a version, as in a collection that has been used."""
    await (await lake.controller()).round()


async def pending_object(store: ObjectStore) -> int:
    """Bytes of one pending batch."""
    return next(iter([info.size async for info in store.list("1/pending_batches/")] or [0]))


async def timed_ms(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return 1000 * (time.perf_counter() - began)


async def single(turn: Turn, measure: str, appends: Appends, peer: str) -> None:
    """Appends and PUTs one after the other, in turn, on a store that takes its time."""
    store, numbers = SlowStore(turn.plan.choose(0.0, DELAY_S, DELAY_S)), count()
    async with bench(store, appends) as lake:
        writer = await lake.writer()
        await settled(lake)

        async def append() -> None:
            number = next(numbers)
            await writer.append([(b"%044d" % number, number, 1)], upper=number + 1)

        async def put() -> None:
            await store.put(f"{BEYOND}{next(numbers)}", bytes(500), mode=CREATE)
            if appends is Appends.COMPARE:
                await lake.stores.versions.load()

        found: dict[str, list[float]] = {OURS: [], peer: []}
        for _ in range(turn.plan.choose(3, 20, 60)):
            for subject, work in turn.in_order([(OURS, append), (peer, put)]):
                found[subject].append(await timed_ms(work))
        for subject, times in found.items():
            turn.record(measure, subject, statistics.median(times), "ms")


async def many(turn: Turn) -> None:
    """As many appends and PUTs of the same bytes in flight."""
    store, wanted = SlowStore(turn.plan.choose(0.0, DELAY_S, DELAY_S)), turn.plan.choose(300, 2_048, 8_192)
    async with bench(store, settings=CollectionSettings(flush_parallelism=IN_FLIGHT)) as lake:
        writer = await lake.writer()
        await writer.append([(b"%044d" % 0, 0, 1)], upper=1)
        nbytes = await pending_object(store)
        places = asyncio.Semaphore(IN_FLIGHT)

        async def append(number: int) -> None:
            await writer.append([(b"%044d" % number, number, 1)], lower=number, upper=number + 1)

        async def put(number: int) -> None:
            async with places:
                await store.put(f"{BEYOND}{number}", bytes(nbytes), mode=CREATE)

        for subject, work in turn.in_order([(OURS, append), (PUT, put)]):
            with stopwatch() as watch:
                await asyncio.gather(*(work(number) for number in range(1, wanted + 1)))
            turn.record(FLIGHT, subject, wanted / watch.seconds[turn.plan.clock], "appends/s")
            turn.record(FLIGHT_CPU, subject, 1e6 * watch.seconds["cpu"] / wanted, "µs")
        require(writer.upper.elements == ((wanted + 1,),), OURS, "an append")


async def one_round(turn: Turn) -> None:
    await large(turn)
    await single(turn, DEFINITE, Appends.DEFINITE, PUT)
    await single(turn, COMPARE, Appends.COMPARE, PUT_AND_HEAD)
    await many(turn)


GOALS = (
    Goal(3, LARGE, 0.7, (LARGE, STREAM)),
    Goal(4, DEFINITE, 1.15, (DEFINITE, PUT), most=True),
    Goal(4, COMPARE, 1.15, (COMPARE, PUT_AND_HEAD), most=True),
    Goal(4, FLIGHT, 0.8, (FLIGHT, PUT)),
)
NOTES = (
    "Large appends go to a local folder; appends of one row to a store in memory that takes 50 ms for each request.",
)
