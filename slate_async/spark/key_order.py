"""Rows brought into the order of a database's keys, so that each task reads ranges of its own, front to back."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate

RANGES_A_TASK = 4
"""Neighbouring ranges go to different tasks, so that keys which lie close together do not all wait for one."""
MOST_RANGES = 256
"""Unless more tasks are asked for. Spark searches their bounds by an expression, for each row."""
RANGE_BYTES = 4 << 20
"""A smaller range is not worth a task."""
TASKS_OF_CONNECT = 8
"""Of Spark Connect, which does not tell how many cores there are."""
_WHOLE = 1 << 62


def usual_tasks(spark: SparkSession) -> int:
    """As many tasks as Spark runs at a time."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return TASKS_OF_CONNECT
    return spark.sparkContext.defaultParallelism


async def range_bounds(seen: slate.Snapshot, tasks: int) -> list[bytes]:
    """Rising keys that cut what ``seen`` shows into some ranges for each of so many tasks; none if it is small."""
    count = max(tasks, min(MOST_RANGES, RANGES_A_TASK * tasks))
    whole = sum(split.nbytes for split in await seen.splits(target_bytes=_WHOLE))
    splits = await seen.splits(target_bytes=max(RANGE_BYTES, -(-whole // count)))
    return [split.start for split in splits if split.start is not None]


def in_key_order(df: DataFrame, key: str, bounds: Sequence[bytes], tasks: int) -> DataFrame:
    """``df`` spread over ``tasks``, or fewer, each sorted by the column ``key``, which is binary or a string, stored as
    UTF-8: what lies between two of ``bounds`` (one at least) is in one task. Rows whose key is null are spread evenly.
    Has a column more, `place_of` the key."""
    tasks = min(tasks, len(bounds) + 1)
    as_stored, place = f"CAST(`{key}` AS BINARY)", place_of(key)
    number = _number(as_stored, bounds, 0, tasks)
    placed = df.withColumns(
        {
            place: F.expr(f"IF(`{key}` IS NULL, spark_partition_id() % {tasks}, {number})"),
            key: F.expr(as_stored),
        }
    )
    return placed.repartitionById(tasks, place).sortWithinPartitions(key)


def place_of(key: str) -> str:
    """The name of a column that `in_key_order` adds."""
    return f"place of {key}"


def _number(key: str, bounds: Sequence[bytes], first: int, tasks: int) -> str:
    """The task of ``key``, by a search for its range; those between ``bounds`` are numbered from ``first`` on."""
    if not bounds:
        return str(first % tasks)
    middle = len(bounds) // 2
    low = _number(key, bounds[:middle], first, tasks)
    high = _number(key, bounds[middle + 1 :], first + middle + 1, tasks)
    return f"IF({key} < X'{bounds[middle].hex()}', {low}, {high})"
