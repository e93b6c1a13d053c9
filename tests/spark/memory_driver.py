"""A driver whose Python workers have a memory limit: compacts two databases, the first one small.

    memory_driver.py SMALL LARGE NOTES BOUND SST_BYTES

BOUND: bytes of address space of each worker (``spark.executor.pyspark.memory``: RLIMIT_AS). Each worker that merges a
key range leaves the most memory it had resident so far in ``NOTES/DATABASE/PID``, in bytes. Lines: ``compacted COUNT``
twice · ``bound BYTES``: what a worker says · ``held BYTES``: of the large database's SSTs, by a task that reads
them and lets nothing go · ``done``.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.spark import compaction
from slate_async.spark.task_job import TaskFunction
from tests.integration.writer import say

CORES = 2
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.python.unix.domain.socket.enabled": "true",
}
ALLOCATION = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "OPENBLAS_NUM_THREADS": "1",
}
"""A bound of address space counts what allocators reserve, more than a gigabyte by default, and what they keep after it
was freed; with these they do neither."""
MERGE = compaction._merge_there


def peak_bytes() -> int:
    """The most this process has had resident."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def noted(notes: Path) -> Iterator[None]:
    """Workers that merge a range in this block note their peak."""
    notes.mkdir(parents=True)

    def merge_there(*what: Any) -> TaskFunction:
        merge = MERGE(*what)

        def run(rows: Iterable[int]) -> Iterator[bytes]:
            yield from merge(rows)
            (notes / str(os.getpid())).write_text(str(peak_bytes()))

        return run

    with patch.object(compaction, "_merge_there", merge_there):
        yield


async def compact(spark: SparkSession, path: str, sst_bytes: int) -> None:
    settings = slate.Settings(sst_bytes=sst_bytes, compaction_parallelism=CORES)
    with slate_spark.SparkExecutor(spark, path) as executor:
        async with slate.open_compactor(path, settings=settings, executor=executor, auto_compaction=False) as compactor:
            say(f"compacted {await compactor.compact(full=True)}")


def hold(path: str) -> Iterator[tuple[int, int]]:
    """In a task: its bound, and how many bytes of SSTs fit into it."""
    held: list[bytes] = []
    try:
        for sst in Path(path).glob("sst/*.obj"):
            held.append(sst.read_bytes())
    except MemoryError:
        pass
    nbytes = sum(map(len, held))
    held.clear()
    yield resource.getrlimit(resource.RLIMIT_AS)[0], nbytes


def main() -> None:
    os.environ.update(ALLOCATION)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    small, large, notes, bound, sst_bytes = sys.argv[1:]
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("memory test")
    for name, value in {**CONF, "spark.executor.pyspark.memory": f"{bound}b"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for path in (small, large):
        with noted(Path(notes) / Path(path).name):
            asyncio.run(compact(spark, path, int(sst_bytes)))
    [(limit, held)] = spark.sparkContext.parallelize([large], 1).flatMap(hold).collect()
    say(f"bound {limit}")
    say(f"held {held}")
    spark.stop()
    say("done")


if __name__ == "__main__":
    main()
