"""A database of rows that do not compress, of any size, and the check that all of them are there, in Arrow's columns.

Every value is one of a pool of random ones; which, its key says. So each row can be generated again, and in no block
are two that are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import slate_async as slate

KEY = "%012d"
VALUE_BYTES = 1_000
ROW_BYTES = VALUE_BYTES + 12
BATCH_ROWS = 4_000
POOL = np.random.default_rng(1).integers(0, 256, (4_093, VALUE_BYTES), np.uint8)


def made(numbers: np.ndarray) -> pa.RecordBatch:
    """Rows of these numbers, which rise."""
    keys = pa.array([KEY % number for number in numbers.tolist()], pa.string()).cast(pa.binary())
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * VALUE_BYTES
    values = np.take(POOL, numbers % len(POOL), axis=0).reshape(-1)
    columns = [keys, pa.Array.from_buffers(pa.binary(), len(numbers), [None, *map(pa.py_buffer, (ends, values))])]
    return pa.record_batch(columns, names=["key", "value"])


async def fill(path: Path, rows: int, sources: int, sst_bytes: int) -> None:
    """``rows`` in all, spread over ``sources`` ingests whose keys take turns: every key range meets all of them."""

    def of(source: int) -> Iterator[pa.RecordBatch]:
        numbers = np.arange(source, rows, sources)
        for first in range(0, len(numbers), BATCH_ROWS):
            yield made(numbers[first : first + BATCH_ROWS])

    settings = slate.Settings(sst_bytes=sst_bytes, auto_compaction=False)
    for source in range(sources):
        async with slate.open_ingest(path, job_id=f"source {source}", settings=settings, create=True) as job:
            await job.write(of(source))
            await job.commit(mode="exclusive")


async def count(path: Path) -> int:
    """The rows that are there: those of the numbers from 0 on, with the values they were made with."""
    found = 0
    async with slate.open_reader(path) as reader, reader.scan() as scan:
        async for batch in scan.batches():
            expected = made(np.arange(found, found + batch.num_rows))
            assert all(batch.column(name).equals(expected.column(name)) for name in ("key", "value"))
            found += batch.num_rows
    return found
