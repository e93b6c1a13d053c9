"""What merging costs: rows and bytes a second of one key range, memory, and how far it holds up the event loop.

``python -m tests.benchmarks.merging --megabytes 100 2000`` merges overlapping sources of a local store and prints a
line for each case. Every case is built and merged in a process of its own, for the highest memory of a process never
goes down.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.codec.records import Shape
from slate_async.engine.compaction.executor import RangeResult, RangeTask
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.limited_offload import LimitedOffload
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import system_runtime
from slate_async.settings import Compression
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.storage.sst.reference import sst_ref
from slate_async.types import MAX_SEQ, PUT
from tests.benchmarks.machine import peak_mib, percentiles, watched_loop

DATABASE = UUID(int=1)
SHAPE = Shape[SstRef](SstRef)
KEY_BYTES = 16
BLOCK_BYTES = 32 << 10
SST_BYTES = 64 << 20
BATCH_ROWS = 4096


@dataclass(frozen=True)
class Case:
    """``megabytes`` of rows in all, of ``sources`` sources, with values of ``value`` bytes."""

    folder: str
    megabytes: int
    value: int
    compression: Compression
    sources: int
    threads: int

    @property
    def manifest(self) -> Path:
        """The file that names the sources."""
        return Path(self.folder, "sources")


def batch(rng: np.random.Generator, first: int, source: int, sources: int, rows: int, value: int) -> Columns:
    """Rows ``first`` onwards of one source: every ``sources``-th key, one in four a newer version of another's."""
    numbers = (np.arange(first, first + rows) * sources + np.where(np.arange(rows) % 4 == 0, 0, source)).astype("S16")
    keys = np.char.zfill(numbers, KEY_BYTES).tolist()
    letters = rng.integers(97, 113, rows * value, np.uint8).tobytes()
    offsets = np.arange(0, (rows + 1) * value, value, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    seqs = np.arange(rows, dtype=np.uint64) + np.uint64(1 + first + (sources - source) * 10**9)
    return Columns(
        pa.array(keys, pa.binary()), values, seqs, np.full(rows, PUT, np.uint8), None, np.zeros(rows, np.int64)
    )


async def build(store: ObjectStore, runtime: Runtime, case: Case) -> list[list[SstRef]]:
    """Sorted sources, each in SSTs of `SST_BYTES`."""
    rng = np.random.default_rng(1)
    rows_each = (case.megabytes << 20) // case.sources // (case.value + KEY_BYTES)
    built: list[list[SstRef]] = []
    for source in range(case.sources):
        ssts: list[SstRef] = []
        at = 0
        while at < rows_each:
            object_id = runtime.ids.ulid(runtime.clock.now_ms())
            builder = SstBuilder(
                database_id=DATABASE,
                object_id=object_id,
                writer_epoch=1,
                manifest_version=1,
                block_bytes=BLOCK_BYTES,
                compression=case.compression,
            )
            while at < rows_each and builder.size_estimate < SST_BYTES:
                rows = min(BATCH_ROWS, rows_each - at)
                builder.add(batch(rng, at, source, case.sources, rows, case.value))
                at += rows
            encoded = builder.finish()
            location = sst_key(1, object_id)
            await store.put(location, encoded.buffers)
            ssts.append(sst_ref(location, object_id, encoded, 1))
        built.append(ssts)
    return built


async def merge(store: ObjectStore, runtime: Runtime, task: RangeTask) -> tuple[RangeResult, float, list[float]]:
    """The result, seconds it took, and the lags of the loop meanwhile."""
    cache = BlockCache(0)

    def open_sst(sst: SstRef) -> SstReader:
        return SstReader(
            store,
            sst.location,
            size=sst.size,
            database_id=DATABASE,
            object_id=sst.object_id,
            cache=cache,
            offload=runtime.offload,
        )

    async with watched_loop() as found:
        started = time.perf_counter()
        result = await LocalExecutor(store, open_sst, runtime).run(task)
        seconds = time.perf_counter() - started
    return result, seconds, found


async def build_all(case: Case) -> None:
    """Write the inputs of ``case`` to its folder, and what the manifest would say of them."""
    runtime = system_runtime()
    sources = await build(LocalStore(case.folder, runtime), runtime, case)
    packed = [[SHAPE.pack(sst) for sst in source] for source in sources]
    case.manifest.write_bytes(msgspec.msgpack.encode(packed))


async def merge_all(case: Case) -> None:
    """Merge the inputs and print the line."""
    runtime = system_runtime()
    store = LocalStore(case.folder, runtime)
    slices = replace(runtime, offload=LimitedOffload(runtime.offload, case.threads))
    packed = msgspec.msgpack.decode(case.manifest.read_bytes())
    task = RangeTask(
        database_id=DATABASE,
        base_version=2,
        sources=tuple(tuple(SHAPE.unpack(sst) for sst in source) for source in packed),
        start=None,
        end=None,
        keep_above=MAX_SEQ,
        expired_at_ms=0,
        bottom=True,
        sst_bytes=SST_BYTES,
        block_bytes=BLOCK_BYTES,
        compression=case.compression,
        filter_bits_per_key=10,
    )
    async with watched_loop() as idle:
        await asyncio.sleep(3)
    before, cpu = peak_mib(), time.process_time()
    result, seconds, found = await merge(store, slices, task)
    cpu, counts = time.process_time() - cpu, result.counts
    print(
        f"{case.megabytes} MB, {case.value} B values, {case.compression}: {seconds:.2f} s, {cpu:.2f} s of CPU,"
        f" {counts.bytes_in / cpu / 1e6:.0f} MB and {counts.rows_in / cpu:,.0f} rows in per second of CPU;"
        f" loop lag {percentiles(found)} (idle {percentiles(idle)});"
        f" memory {before:.0f} to {peak_mib():.0f} MiB; {len(result.ssts)} SSTs",
        flush=True,
    )


def in_a_process(work: Callable[[Case], Coroutine[None, None, None]], case: Case) -> None:
    """Run ``work`` in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(work, case))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def _run(work: Callable[[Case], Coroutine[None, None, None]], case: Case) -> None:
    asyncio.run(work(case))


def main() -> None:
    """Every case the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100])
    parser.add_argument("--value", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--compression", nargs="+", default=["none", "zstd"])
    parser.add_argument("--sources", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="worker threads that compute at a time")
    arguments = parser.parse_args()
    for megabytes in arguments.megabytes:
        for value in arguments.value:
            for compression in arguments.compression:
                with tempfile.TemporaryDirectory() as folder:
                    case = Case(folder, megabytes, value, compression, arguments.sources, arguments.threads)
                    in_a_process(build_all, case)
                    in_a_process(merge_all, case)


if __name__ == "__main__":
    main()
