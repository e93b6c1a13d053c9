"""Formats made known to a session once: done again, Spark warns that one was replaced."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_known: WeakKeyDictionary[SparkSession, set[type[DataSource]]] = WeakKeyDictionary()


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Make ``source`` a format of the session unless it is one already. Raises `InvalidError` for what is no session,
    and if Spark's Python has no slate_async."""
    if not hasattr(spark, "dataSource"):
        from slate_async.errors import InvalidError  # noqa: PLC0415 - not where a source is only made

        raise InvalidError(f"spark is a SparkSession, not {type(spark).__name__}")
    known = _known.setdefault(spark, set())
    if source not in known:
        if not known:
            from slate_async.spark.worker_python import check_python  # noqa: PLC0415 - of a driver only

            check_python(spark)
        spark.dataSource.register(source)
        known.add(source)
