"""slate_async for Apache Spark: the only part that imports pyspark. See docs/spark.md.

>>> from slate_async import spark as slate_spark
>>> df = slate_spark.read(spark, "s3://bucket/db", prefix="user:")
"""

from slate_async.spark.arrange import arrange
from slate_async.spark.compaction import SparkExecutor
from slate_async.spark.load import bulk_load
from slate_async.spark.source import SlateDataSource, read, register

__all__ = ["SlateDataSource", "SparkExecutor", "arrange", "bulk_load", "read", "register"]
