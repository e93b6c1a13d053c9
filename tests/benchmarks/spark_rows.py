"""The rows of the Spark benchmark: in Parquet, shuffled and sorted, and as databases of one run and of several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import slate_async as slate
from slate_async.engine.compaction.executor import Executor
from tests.benchmarks.rows import KEY_BYTES, VALUE_BYTES

FILES = 8
RUNS = 4
SST_BYTES = 16 << 20
"""So that a compaction has several ranges of keys."""


@dataclass(frozen=True)
class SparkRows:
    """``count`` rows under ``folder``; the names are those of files of Parquet and of databases."""

    folder: Path
    count: int

    def at(self, name: str) -> str:
        """The path of ``shuffled`` or ``sorted``, Parquet, or of ``one``, ``several`` or ``loaded``, which is empty."""
        return str(self.folder / name)

    async def make(self, seed: int) -> None:
        """Write all of them."""
        rng = np.random.default_rng(seed)
        columns = {"key": random_bytes(rng, self.count, KEY_BYTES), "value": random_bytes(rng, self.count, VALUE_BYTES)}
        shuffled = pa.table(columns)
        ordered = shuffled.take(pc.sort_indices(shuffled["key"])).combine_chunks()
        for name, table in (("shuffled", shuffled), ("sorted", ordered)):
            (self.folder / name).mkdir()
            each = -(-self.count // FILES)
            for number in range(FILES):
                pq.write_table(table.slice(number * each, each), self.folder / name / f"{number}.parquet")
        await write(self.at("loaded"), [])
        await write(self.at("one"), [ordered])
        await compact(self.at("one"))
        places = np.arange(self.count)
        await write(self.at("several"), [ordered.take(pa.array(places[run::RUNS])) for run in range(RUNS)])


def random_bytes(rng: np.random.Generator, rows: int, width: int) -> pa.BinaryArray:
    """``rows`` elements of ``width`` bytes, which do not compress."""
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    data = rng.bytes(rows * width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


async def write(path: str, parts: list[pa.Table]) -> None:
    """Each of ``parts``, sorted, in SSTs of its own."""
    settings = slate.Settings(auto_compaction=False, sst_bytes=SST_BYTES)
    async with slate.open(path, settings=settings):
        pass
    for part in parts:
        async with slate.open_ingest(path, settings=settings) as job:
            await job.write([part])
            await job.commit(mode="exclusive")


async def compact(path: str, executor: Executor | None = None, *, ranges: int = 2) -> None:
    """Everything into one run; so many ranges of keys at a time."""
    settings = slate.Settings(sst_bytes=SST_BYTES, compaction_parallelism=ranges)
    async with slate.open_compactor(path, settings=settings, executor=executor, auto_compaction=False) as compactor:
        await compactor.compact(full=True)
