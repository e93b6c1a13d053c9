"""The data source ``slate`` as Spark finds it by name."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from slate_async.spark.batch_read import KEYS, ROW, BatchReader
from slate_async.spark.options import ReadOptions


class SlateDataSource(DataSource):
    """``spark.read.format("slate")``; see docs/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "slate"

    def schema(self) -> StructType:
        """`ROW`, or the key alone."""
        return KEYS if ReadOptions.of(self.options).keys_only else ROW

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return BatchReader(ReadOptions.of(self.options))


def register(spark: SparkSession) -> None:
    """Make ``slate`` a format of this session. Done again, it changes nothing."""
    spark.dataSource.register(SlateDataSource)


def read(spark: SparkSession, path: str, **options: str | int | float | bool) -> DataFrame:
    """A fresh DataFrame of the rows of the database at ``path`` (see docs/spark.md for ``options``): each query of it
    plans anew."""
    register(spark)
    return spark.read.format("slate").options(**options).load(path)
