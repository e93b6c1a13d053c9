"""A load rehearsed: Spark spreads and sorts the rows, tasks check and count them, and nothing is stored."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import DataFrame

import slate_async as slate
from slate_async.engine.ingest.dry_run import IngestPart, rehearse
from slate_async.engine.ingest.rows import Duplicates
from slate_async.spark.arrangement import KEY, VALUE, ColumnLike, SortMode, arrange
from slate_async.spark.engine_errors import plain_errors
from slate_async.spark.load import ArrowFunction, pickled


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would write: the parts of its tasks that have rows, in the order of keys."""

    parts: tuple[IngestPart, ...]

    @property
    def rows(self) -> int:
        """Rows that would be stored."""
        return sum(part.rows for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Their bytes in memory."""
        return sum(part.nbytes for part in self.parts)

    def most_ssts(self, target_sst_bytes: int) -> int:
        """How many SSTs it would make at most."""
        return sum(-(-part.nbytes // target_sst_bytes) for part in self.parts)


def plan_load(
    df: DataFrame,
    *,
    key: ColumnLike = KEY,
    value: ColumnLike = VALUE,
    op: ColumnLike | None = None,
    expire: ColumnLike | None = None,
    ttl: ColumnLike | float | None = None,
    order: ColumnLike | None = None,
    sort_mode: SortMode = "global",
    partitions: int | None = None,
) -> LoadPlan:
    """What `bulk_load` would write; no database is needed. Runs all of the load's work in Spark.

    Raises what that raises for rows that cannot be stored, and `InvalidError` for tasks whose ranges overlap."""
    rows = arrange(
        df,
        key=key,
        value=value,
        op=op,
        expire=expire,
        ttl=ttl,
        order=order,
        sort_mode=sort_mode,
        partitions=partitions,
    )
    with plain_errors():
        found = rows.mapInArrow(_counted("error" if order is None else "last"), "result binary").collect()
    parts: list[IngestPart] = []
    for row in found:
        result: IngestPart | slate.SlateError = pickle.loads(row.result)
        if isinstance(result, slate.SlateError):
            raise result
        parts.append(result)
    parts.sort(key=lambda part: part.first_key)
    for before, after in pairwise(parts):
        if before.last_key >= after.first_key:
            raise slate.InvalidError(
                "two tasks have overlapping keys: partition by ranges of keys, by repartitionByRange or"
                f" sort_mode='global'. One ends at {before.last_key[:64]!r}, another one begins at"
                f" {after.first_key[:64]!r}"
            )
    return LoadPlan(tuple(parts))


def _counted(duplicates: Duplicates) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result: IngestPart | slate.SlateError | None
        try:
            result = rehearse(batches, duplicates=duplicates)
        except slate.InvalidError as error:
            result = error
        if result is not None:
            yield pa.record_batch([pa.array([pickled(result)], pa.binary())], names=["result"])

    return run
