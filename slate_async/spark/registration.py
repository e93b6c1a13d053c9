"""Formats made known to a session once: done again, Spark warns that one was replaced."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_known: WeakKeyDictionary[SparkSession, set[type[DataSource]]] = WeakKeyDictionary()


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Make ``source`` a format of the session unless it is one already."""
    known = _known.setdefault(spark, set())
    if source not in known:
        spark.dataSource.register(source)
        known.add(source)
