"""A process of its own that reads with Spark for the first time, and says what it took and which process took it.

    python -m tests.benchmarks.spark_first_read slate|parquet|nothing PATH

``nothing`` is a format written in Python that has one row: what each such format costs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tests.benchmarks.families.spark import consume, session

JVM, DRIVER, OTHERS = "JVM", "driver", "other"
PARTS = {
    "lookup_data_sources": "looks for formats",
    "create_data_source": "makes the source",
    "plan_data_source_read": "plans",
    "pyspark.worker": "tasks",
    "java": JVM,
    "spark_first_read": DRIVER,
}
"""Processes by a word of their command lines."""


class Nothing(DataSource):
    """One row."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: object) -> DataSourceReader:
        return NothingReader()


class NothingReader(DataSourceReader):
    """Two partitions, as many as there are processors."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(1,)])


def frame(spark: SparkSession, subject: str, path: str) -> DataFrame:
    """What is read; with what has to be imported for it."""
    if subject == "parquet":
        return spark.read.parquet(path)
    if subject == "slate":
        from slate_async import spark as slate_spark

        return slate_spark.read(spark, path)
    spark.dataSource.register(Nothing)
    return spark.read.format("nothing").load()


def processor_s() -> Counter[str]:
    """Processor time so far of this process and those below it that are alive, in seconds, by part (Linux)."""
    parents: dict[int, int] = {}
    taken: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_text()
            part = next((part for word, part in PARTS.items() if word in command), OTHERS)
            parents[int(path.parent.name)] = int(fields[1])
            taken[int(path.parent.name)] = part, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found: Counter[str] = Counter()
    for process, (part, seconds) in taken.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            found[part] += seconds
    return found


def main(subject: str, path: str) -> None:
    spark = session()
    took: list[float] = []
    before = processor_s()
    spent: Counter[str] = Counter()
    for _ in range(2):
        began = time.perf_counter()
        consume(frame(spark, subject, path))
        took.append(time.perf_counter() - began)
        spent = spent or processor_s() - before
    print(json.dumps({"seconds": took, "processor": spent}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
