"""How large a database is, for Spark's planner, which cannot ask a format written in Python."""

from __future__ import annotations

import re
from functools import partial

from pyspark.sql import DataFrame

import slate_async as slate
from slate_async.engine.read.bounds import EVERY_KEY, key_range
from slate_async.spark.options import OptionValue, as_strings
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.worker import this_worker

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_BYTES = re.compile(r"(\d+)([kmgt]?)b?")
WHOLE = 1 << 62
PARTS = 100
"""A range is cut into so many, to see how much of its SSTs lies in it."""


def size(path: str, **options: OptionValue) -> int:
    """About how many bytes the rows at ``path`` have, as they are stored: of all of them, or of those that ``options``
    name (see `read`). Old versions count that compaction has not dropped yet; of ranges, all rows of the log count.

    Asks for no more than the manifest, indexes and the log. Raises `InvalidError` if there is no such database."""
    return this_worker().run(partial(_size, ReadOptions.of({**as_strings(options), "path": path})))


async def _size(options: ReadOptions, environment: slate.Environment) -> int:
    pinned = options.checkpoint is not None
    async with environment.open_reader(
        options.path, options.checkpoint, metastore=options.metastore, pin=pinned
    ) as reader:
        span = key_range(options.start, options.end, options.prefix)
        whole = sum(split.nbytes for split in await reader.splits(span.start, span.end, target_bytes=WHOLE))
        if span != EVERY_KEY and whole:  # so far of all SSTs that have some of its keys
            parts = await reader.splits(span.start, span.end, target_bytes=-(-whole // PARTS))
            whole = sum(part.nbytes for part in parts)
        return whole + reader.status().memtable_bytes


def broadcast_if_small(df: DataFrame, nbytes: int) -> DataFrame:
    """``df``, of a database of so many bytes, with the hint to copy it to all tasks of a join if it is as small as
    Spark's setting ``spark.sql.autoBroadcastJoinThreshold`` says."""
    said = _BYTES.fullmatch(str(df.sparkSession.conf.get(THRESHOLD)).strip().lower())
    most = int(said[1]) << 10 * " kmgt".index(said[2] or " ") if said is not None else -1
    return df.hint("broadcast") if nbytes <= most else df
