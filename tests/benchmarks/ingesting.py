"""What a bulk ingest costs one process: ``python -m tests.benchmarks.ingesting --rows 1000000 --value-bytes 100``.

Sorted random values of one size into a local folder, beside an idle writer, which then applies them.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time

import numpy as np
import pyarrow as pa

import slate_async as slate

KEY_BYTES = 16


def table_of(rows: int, value_bytes: int) -> pa.Table:
    """Ascending keys, random values."""
    keys = np.zeros((rows, KEY_BYTES // 8), ">u8")
    keys[:, 0] = np.arange(rows)
    values = np.random.default_rng(1).bytes(rows * value_bytes)

    def column(data: bytes, width: int) -> pa.Array:
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(data)])

    return pa.table({"key": column(keys.tobytes(), KEY_BYTES), "value": column(values, value_bytes)})


async def measure(rows: int, value_bytes: int) -> None:
    """One ingest, in figures."""
    table = table_of(rows, value_bytes)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/db"
        async with (
            slate.open(path, settings=slate.Settings(manifest_poll_interval_ms=100, auto_compaction=False)) as db,
            slate.open_ingest(path) as job,
        ):
            began, cpu = time.perf_counter(), time.process_time()
            ssts = await job.write([table])
            written, used = time.perf_counter() - began, time.process_time() - cpu
            began = time.perf_counter()
            await job.commit()
            applied = time.perf_counter() - began
            paused = db.metrics()["ingest.paused_seconds"]
    megabytes = rows * (KEY_BYTES + value_bytes) / 1e6
    print(f"{rows:,} rows of {value_bytes} B, {len(ssts)} SSTs")
    print(f"written: {rows / written:,.0f} rows/s, {megabytes / written:.0f} MB/s, {used:.2f} s of processor time")
    print(f"in after: {applied * 1e3:.0f} ms; writes waited: {paused * 1e3:.1f} ms")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    given = parser.parse_args()
    asyncio.run(measure(given.rows, given.value_bytes))


if __name__ == "__main__":
    main()
