"""The data source ``slate`` as Spark finds it by name.

Spark makes a source in one process, plans with it in another, and reads or writes in others. Each imports what it is
asked for when it is asked: to import all takes longer than a small job.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from slate_async.spark.collection_source import SlateCollectionSource
from slate_async.spark.registration import register_once
from slate_async.spark.stream_source import SlateChangesSource


class SlateDataSource(DataSource):
    """``spark.read.format("slate")``; see docs/guide/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "slate"

    def schema(self) -> StructType:
        """What is read if Spark's reader is given no schema."""
        from slate_async.spark.read_options import ReadOptions  # noqa: PLC0415 - not where a schema is given

        return ReadOptions.of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from slate_async.spark.batch_read import BatchReader  # noqa: PLC0415 - not where a source is only made
        from slate_async.spark.read_options import ReadOptions  # noqa: PLC0415

        options = ReadOptions.of(self.options)
        if not options.push_filters:
            return BatchReader(options, schema)
        from slate_async.spark.pushdown import PushdownReader  # noqa: PLC0415 - seldom asked for

        return PushdownReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """None there is; see `NoStream`."""
        from slate_async.spark.stream_reader import NoStream  # noqa: PLC0415 - not where a source is only made

        return NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write; ``overwrite`` replaces what is there."""
        from slate_async.spark.write import BatchWriter  # noqa: PLC0415 - not where rows are read
        from slate_async.spark.write_options import WriteOptions  # noqa: PLC0415

        writer = BatchWriter(WriteOptions.of(self.options, schema, replace=overwrite))
        writer.begin()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A stream's write; Spark makes one for each batch, and another one to commit it. ``overwrite``: each batch is
        all there is to be."""
        from slate_async.spark.write import StreamWriter  # noqa: PLC0415 - not where rows are read
        from slate_async.spark.write_options import WriteOptions  # noqa: PLC0415

        return StreamWriter(WriteOptions.of(self.options, schema, replace=overwrite))


def register(spark: SparkSession) -> None:
    """Make ``slate``, ``slate-changes`` and ``slate-collection`` formats of this session, where Spark has not found
    them by itself (see docs/guide/spark.md). Done again, it changes nothing."""
    register_once(spark, SlateDataSource)
    register_once(spark, SlateChangesSource)
    register_once(spark, SlateCollectionSource)
