"""A load whose job id is known already: the same rows are in, or others were meant."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slate_async as slate
from slate_async.engine.ingest.rows import Duplicates
from slate_async.spark.arrangement import KEY, OP
from slate_async.spark.engine_errors import plain_errors

OnKnown = Literal["error", "skip"]
"""What a load of another number of rows does under a job id that is known: raise, or count as done."""


def count_rows(rows: DataFrame, duplicates: Duplicates, *, replace: bool) -> int:
    """How many of ``rows``, arranged for a load, it would store; of one that replaces, the puts. Spark counts them."""
    counted = rows.filter(F.col(OP) == "put") if replace and OP in rows.columns else rows
    with plain_errors():
        return counted.count() if duplicates == "error" else counted.select(KEY).distinct().count()


def check_known(info: slate.IngestInfo, asked: int, *, replace: bool) -> None:
    """Raise `InvalidError` unless the job of that name loaded as many rows as are to be loaded now; other rows of the
    same number it cannot tell. Of a job that replaces, the deletes are not compared: it made some itself."""
    known = info.rows if replace else info.rows + info.deletes
    if asked != known:
        raise slate.InvalidError(
            f"job {info.job_id!r} is {info.state}, with {known:,} rows, and these are {asked:,}: other rows need"
            " another job id. To take the job for done whatever the rows: on_known='skip', option onKnown of a save",
            outcome="not_applied",
        )
