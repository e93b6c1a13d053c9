"""A load whose job id is known already: the same rows are in, or others were meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame

import slate_async as slate
from slate_async.engine.ingest.digest import MODULUS
from slate_async.engine.ingest.dry_run import rehearse
from slate_async.engine.ingest.rows import Duplicates
from slate_async.spark.engine_errors import plain_errors

OnKnown = Literal["error", "skip"]
"""What a load of other rows does under a job id that is known: raise, or count as done."""


def digest_of(rows: DataFrame, duplicates: Duplicates) -> int:
    """Of ``rows``, arranged for a load, what `slate_async.IngestInfo.digest` would be. Spark does all of the load's
    work but to store them."""

    def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = rehearse(batches, duplicates=duplicates, digest=True)
        if part is not None:
            yield pa.record_batch([[f"{part.digest}"]], names=["digest"])  # Spark has no unsigned numbers

    with plain_errors():
        return sum(int(row.digest) for row in rows.mapInArrow(digest, "digest string").collect()) % MODULUS


def check_known(info: slate.IngestInfo, digest: int | None) -> None:
    """Raise `InvalidError` unless ``digest`` is that of the rows that the job ``info`` brought."""
    if digest == info.digest is not None:
        return
    why = "these are others"
    if info.digest is None:
        why = "nothing is noted of them that these could be compared with"
    raise slate.InvalidError(
        f"job {info.job_id!r} is {info.state}, with {info.rows:,} rows, and {why}: other rows need another job id. To"
        " take the job for done whatever the rows: on_known='skip', option onKnown of a save",
        outcome="not_applied",
    )
